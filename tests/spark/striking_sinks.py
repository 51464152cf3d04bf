"""The streaming sinks with crash points that strike: in tests a task, an executor or a driver dies there for real."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from jetfast.core import crash_points
from jetfast.spark.batch_writes import BatchOfQuery, Target
from jetfast.spark.data_source import BatchWriter, FilesSink, PostgresSink, PreparedWrite

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers lack this file

STRIKES = "strikes"
"""Option: "strike_attempts", or "stop_at" or "straggle", a colon and its argument."""


class StrickenWriter(BatchWriter):
    """A writer of batches that is struck."""

    def __init__(self, writer: BatchWriter, strike: Callable[[str, int], None]) -> None:
        self.writer = writer
        self.strike = strike

    def open_target(self, batch: BatchOfQuery, schema: pa.Schema) -> Target:
        return self.writer.open_target(batch, schema)

    def check(self, schema: pa.Schema) -> None:
        self.writer.check(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PreparedWrite:
        batch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
        return self.struck(batch, lambda: self.writer.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.struck(batchId, lambda: self.writer.commit(messages, batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.writer.abort(messages, batchId)

    def struck(self, batch: int, work: Callable[[], Any]) -> Any:
        crash_points.set_crash_hook(lambda point: self.strike(point, batch))
        try:
            return work()
        finally:
            crash_points.set_crash_hook(None)


class StrickenFiles(FilesSink):
    kinds = {**FilesSink.kinds, STRIKES: "for tests"}

    def make_writer(self, names: Sequence[str], options: dict[str, str]) -> BatchWriter:
        return StrickenWriter(super().make_writer(names, options), strike_of(options))


class StrickenPostgres(PostgresSink):
    kinds = {**PostgresSink.kinds, STRIKES: "for tests"}

    def make_writer(self, names: Sequence[str], options: dict[str, str]) -> BatchWriter:
        return StrickenWriter(super().make_writer(names, options), strike_of(options))


def strike_of(options: dict[str, str]) -> Callable[[str, int], None]:
    name, _, argument = options[STRIKES].partition(":")
    return {"stop_at": stop_at, "straggle": straggle}[name](argument) if argument else strike_attempts


def strike_attempts(point: str, batch: int) -> None:
    """When the first attempt of a task has prepared: it fails in batch 0, its worker dies in 1, its executor in 2."""
    context = TaskContext.get()
    if point != "after_prepare" or context is None or context.attemptNumber() > 0 or context.partitionId() > 0:
        return
    if batch == 0:
        raise RuntimeError("struck")
    if batch == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if batch == 2:
        os.kill(parent_of(os.getppid()), signal.SIGKILL)  # above the worker is the daemon that forks workers


def stop_at(places: str) -> Callable[[str, int], None]:
    """Stop for ever at a crash point of a batch, having told so in a file: "point,batch,file"."""
    wanted, number, told = places.split(",")

    def strike(point: str, batch: int) -> None:
        if (point, batch) == (wanted, int(number)):
            Path(told).touch()
            threading.Event().wait()

    return strike


def straggle(folder: str) -> Callable[[str, int], None]:
    """The first attempt of a task waits, when it has prepared, until a second one has, too."""

    def strike(point: str, batch: int) -> None:
        context = TaskContext.get()
        if point != "after_prepare" or context is None or context.partitionId() > 0:
            return
        second_has_prepared = Path(folder, f"{batch} has prepared twice")
        if context.attemptNumber() > 0:
            second_has_prepared.touch()
        while not second_has_prepared.exists():
            threading.Event().wait(0.01)

    return strike


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
