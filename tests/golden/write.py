"""Writes the store of this release: python -m tests.golden.write tests/golden/0.1

A job reads half of the rows of tests/golden/pipeline.py and is suspended. What lies in FOLDER then: the store, what the
sinks have written (out), and the rows of a run without interruption (expected.json). Written once a release; a store is
never written again by a later one.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

import jetfast as jf
from tests.golden.pipeline import HALF, NAMED, PARTITIONS, ROWS, build


def as_text(row: dict[str, Any]) -> str:
    """Floats with nine digits: sums of floats may differ in the last ones from run to run."""
    rounded = {name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()}
    return json.dumps(rounded, default=str, sort_keys=True)


def rows_of(out: Path) -> dict[str, list[str]]:
    """Rows of each result, as text, sorted."""
    return {
        folder.name: sorted(
            as_text(row)
            for row in ds.dataset(str(folder), format="parquet", exclude_invalid_files=False).to_table().to_pylist()
        )
        if any(folder.glob("*.parquet"))
        else []
        for folder in sorted(out.iterdir())
    }


def main(folder: Path) -> None:
    store, out = folder / "store", folder / "out"
    with tempfile.TemporaryDirectory() as whole:
        jf.LocalCluster().submit(build(whole, ROWS, unbounded=False), progress=False).wait()
        expected = rows_of(Path(whole))
    shutil.rmtree(folder, ignore_errors=True)
    out.mkdir(parents=True)
    job = jf.LocalCluster(workers=2).submit(
        build(str(out), HALF, unbounded=True),
        snapshot_store=jf.snapshots.directory(store),
        guarantee=jf.Guarantee.EXACTLY_ONCE,
        snapshot_interval="100ms",
        progress=False,
    )
    vertices = ("first", "second")
    while any(job.metrics["vertices"].get(name, {}).get("rows_out", 0) < HALF * PARTITIONS for name in vertices):
        time.sleep(0.05)
    job.export_snapshot(NAMED)
    job.suspend()
    (folder / "expected.json").write_text(json.dumps(expected, indent=0))
    print(
        {name: len(rows) for name, rows in expected.items()}, {name: len(rows) for name, rows in rows_of(out).items()}
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
