"""A system without transactions in the memory of this process: rows by key, or one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobDefinitionError
from jetfast.testing.outside_system import Faults, OutsideSystem


class StoredRows(OutsideSystem):
    """Rows that were written. Writes are in flight until they are flushed; what is in flight at a crash may get lost.

    key : columns whose values name a row: written again it replaces itself, so that its sink is idempotent. Without any
        the sink repeats rows after a restart
    faults : rates of "write" (of what is flushed)
    """

    def __init__(self, *key: str, name: str = "rows", faults: Faults | None = None) -> None:
        super().__init__(name, faults)
        self.key = key
        self.by_key: dict[Any, dict[str, Any]] = {}
        self.writes = 0
        """Rows written so far, also those that replaced themselves."""

    def sink(self, *, parallelism_one: bool = False) -> "StoredRowsSink":
        """A sink that writes here."""
        return StoredRowsSink(self, parallelism_one)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order in which they (or their keys) first came."""
        with self.lock:
            return list(self.by_key.values())

    def store(self, batches: list[pa.RecordBatch]) -> None:
        """Take rows as a client's."""
        self.perform("write", self._store, batches)

    def _store(self, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            for row in batch.to_pylist():
                key = tuple(row[name] for name in self.key) if self.key else self.writes
                self.by_key[key] = row
                self.writes += 1


@dataclass(frozen=True)
class StoredRowsSink:
    """See `StoredRows.sink`."""

    system: StoredRows
    parallelism_one: bool = False
    cooperative: bool = True
    target: str | None = None

    @property
    def name(self) -> str:
        return self.system.name

    @property
    def sink_delivery(self) -> Delivery:
        return Delivery.IDEMPOTENT if self.system.key else Delivery.REPEATING

    def check(self, schema: pa.Schema) -> None:
        missing = [name for name in self.system.key if name not in schema.names]
        if missing:
            raise JobDefinitionError(f"{self.name}: there is no key column {missing[0]!r} in {', '.join(schema.names)}")

    def check_target(self) -> None:
        """It is there."""

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> "BufferedWriter":
        return BufferedWriter(self.system.store)


class BufferedWriter:
    """Gathers rows until they are flushed."""

    def __init__(self, store: Callable[[list[pa.RecordBatch]], None]) -> None:
        self.store = store
        self.waiting: list[pa.RecordBatch] = []

    def write(self, batch: Batch) -> None:
        self.waiting.append(batch.to_arrow())

    def flush(self) -> None:
        if self.waiting:
            self.store(self.waiting)
            self.waiting = []

    def finish(self) -> None:
        self.flush()

    def abort(self) -> None:
        self.waiting = []
