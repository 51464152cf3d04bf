"""Partitions that come while a job runs, on members that are threads and on members that are processes."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.extend import Batch, Position, ProcessorContext, Rows

PATIENCE_S = 60.0


class Growing:
    """Each file is a partition with one number in each line; the file "complete" says that no more come."""

    cooperative = False
    bounded = False
    discovery_interval = "10ms"
    schema = pa.schema([("number", pa.int64())])

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = "growing"

    def partitions_complete(self) -> bool:
        return (self.directory / "complete").exists()

    def partitions(self) -> Sequence[str]:
        return [path.name for path in self.directory.glob("part-*")]

    def with_columns(self, names: Sequence[str]) -> "Growing":
        return self

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "GrowingReader":
        return GrowingReader(self.directory / partition, 0 if position is None else int(position))


class GrowingReader:
    """Gives one line at a time."""

    def __init__(self, path: Path, line: int) -> None:
        self.lines = path.read_text().split()
        self.line = line

    def read(self) -> Rows | None:
        if self.line == len(self.lines):
            return None
        numbers = pa.record_batch({"number": [int(self.lines[self.line])]})
        self.line += 1
        return Rows(Batch.from_arrow(numbers), str(self.line).encode(), self.line - 1)

    def close(self) -> None:
        pass


def add(directory: Path, part: int) -> None:
    written = directory / f"writing-{part}"
    written.write_text("\n".join(str(10 * part + line) for line in range(10)))
    written.rename(directory / f"part-{part}")


def numbers_of(job: jf.Job) -> list[int]:
    return sorted(job.collected("rows")["number"].to_pylist())


def cluster_of(kind: str, directory: Path) -> Any:
    if kind == "local":
        return jf.LocalCluster(workers=2)
    return jf.ProcessCluster(members=2, workers=1, snapshot_store=jf.snapshots.directory(directory))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("guarantee", [jf.Guarantee.NONE, jf.Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("kind", ["local", "processes"])
def test_partitions_that_come_while_a_job_runs_are_read_once(
    kind: str, guarantee: jf.Guarantee, tmp_path: Path
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    pipeline = jf.Pipeline("growing")
    pipeline.read(Growing(parts)).collect(name="rows")
    cluster = cluster_of(kind, tmp_path / "store")
    with cluster.submit(pipeline, guarantee=guarantee, snapshot_interval="50ms", progress=False) as job:
        for part in range(4):  # there is none at first
            add(parts, part)
            while len(numbers_of(job)) < 10 * (part + 1):
                assert not job.runner.wait(0.005), job.error
            if part == 1 and guarantee is not jf.Guarantee.NONE:
                if kind == "processes":
                    os.kill(job.metrics["members"][1]["pid"], signal.SIGKILL)
                else:
                    job.restart(PATIENCE_S)
        (parts / "complete").touch()
        job.wait(PATIENCE_S)
        assert numbers_of(job) == list(range(40))
