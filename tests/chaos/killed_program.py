"""A program that copies numbered rows into files: started, killed and started again by `test_killed_program`."""

import sys

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import jetfast as jf


def number(rows: npt.NDArray[np.int64], random: np.random.Generator) -> pa.RecordBatch:
    return pa.record_batch({"row": rows})


def main(out: str, snapshots: str, rows: int, rate: float) -> None:
    pipeline = jf.Pipeline("copy")
    source = jf.generator(number, rows=rows, rate=rate, partitions=3)
    pipeline.read(source).write(jf.files(out, format="parquet"))
    cluster = jf.LocalCluster(members=2, workers=1, snapshot_store=jf.snapshots.directory(snapshots))
    job = cluster.submit(pipeline, snapshot_interval="20ms", progress=False)
    print("submitted", job.guarantee.name, flush=True)
    job.wait()
    print("completed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
