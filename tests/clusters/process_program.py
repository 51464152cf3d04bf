"""A program that runs a job on processes: killed or interrupted, and started again, by `test_process_cluster`."""

import sys
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import jetfast as jf
from jetfast.core.crash_points import CrashPoint
from tests.clusters.crashing_processes import arrive

COORDINATOR_POINTS: tuple[CrashPoint, ...] = (
    "before_validation_record",
    "between_records",
    "after_execution_record",
    "before_phase2",
)


def number(rows: npt.NDArray[np.int64], random: np.random.Generator) -> pa.RecordBatch:
    return pa.record_batch({"row": rows})


def copy(folder: Path, rows: int) -> None:
    """Copy numbered rows into files; die at each crash point of the coordinator, once."""
    crashes = folder / "crashes"
    crashes.mkdir(exist_ok=True)
    arrive(dict.fromkeys(COORDINATOR_POINTS, 2), crashes, times=1)
    pipeline = jf.Pipeline("copy")
    source = jf.generator(number, rows=rows, rate=100_000.0, partitions=3)
    pipeline.read(source).write(jf.files(str(folder / "out"), format="parquet"))
    cluster = jf.ProcessCluster(2, snapshot_store=jf.snapshots.directory(folder / "snapshots"))
    cluster.submit(pipeline, snapshot_interval="20ms", progress=False).wait()
    print("completed", flush=True)


def run_for_ever() -> None:
    """Print the process ids of members when rows flow; go on until somebody ends this."""
    pipeline = jf.Pipeline("endless")
    rows = pipeline.read(jf.memory({"n": list(range(10))}, partitions=2, unbounded=True), name="rows")
    rows.collect()
    job = jf.ProcessCluster(2).submit(pipeline, progress=False)

    def tell() -> None:
        while job.metrics["rows_written"] < 10:
            threading.Event().wait(0.01)
        print(*(member["pid"] for member in job.metrics["members"]), flush=True)

    # Whoever reads the ids may interrupt at once: this thread is to be in `wait` by then.
    threading.Thread(target=tell, name="tell", daemon=True).start()
    try:
        job.wait()
    except KeyboardInterrupt:
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("jetfast")]
        print(job.status.value, *names, flush=True)
        raise


if __name__ == "__main__":
    if sys.argv[1:]:
        copy(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        run_for_ever()
