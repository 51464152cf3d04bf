"""A job that copies numbered rows into files or a table, exactly once, and what a user finds there afterwards."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

import jetfast as jf

ROWS = 400_000
RATE = 100_000.0
LEASE = "3s"


class Copied(NamedTuple):
    """Where the rows go: into a table, if there is a server, else into files in the folder, which has the snapshots."""

    folder: str
    conninfo: str = ""

    @property
    def store(self) -> Any:
        return jf.snapshots.directory(str(Path(self.folder) / "snapshots"))

    @property
    def sink(self) -> Any:
        return jf.postgres(self.conninfo, "copied") if self.conninfo else jf.files(self._out, format="parquet")

    @property
    def rows(self) -> list[int]:
        """Those that are visible, sorted. Nothing may be left in doubt."""
        if not self.conninfo:
            return sorted(ds.dataset(self._out, format="parquet").to_table()["row"].to_pylist())
        assert self.execute("select gid from pg_prepared_xacts") == []
        return [row for (row,) in self.execute("select row from copied order by row")]

    def execute(self, statement: str) -> Any:
        import psycopg

        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else None

    @property
    def _out(self) -> str:
        return str(Path(self.folder) / "out")


def number(rows: npt.NDArray[np.int64], random: np.random.Generator) -> pa.RecordBatch:
    return pa.record_batch({"row": rows})


def copy_on_processes(copied: Copied, lease: str) -> jf.Job:
    """Copy ROWS rows on two processes."""
    pipeline = jf.Pipeline("copy")
    pipeline.read(jf.generator(number, rows=ROWS, rate=RATE, partitions=3)).write(copied.sink)
    cluster = jf.ProcessCluster(2, snapshot_store=copied.store, lease=lease)
    return cluster.submit(pipeline, snapshot_interval="50ms", progress=False)
