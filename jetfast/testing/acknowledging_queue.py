"""A message queue in the memory of this process: what is not acknowledged is delivered again, with faults."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from jetfast.core.acknowledging import REDELIVERY_RETENTION_US
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, Rows
from jetfast.errors import RestartableError
from jetfast.testing.outside_system import Faults, OutsideSystem


@dataclass(frozen=True)
class _Message:
    message_id: str | None
    row: Mapping[str, Any]


class AcknowledgingQueue(OutsideSystem):
    """Messages of one row each, delivered to one of those who read the queue, until somebody acknowledges them.

    Readers of an older execution lose their connection when one of a newer execution comes, as a broker drops clients
    that are silent: what they have not acknowledged is delivered again. If they come later still, they get none: a
    bounded queue would end while they held its last messages.

    Parameters
    ----------
    schema : of the rows
    bounded : readers come to an end when no message is left for them
    confirms : False: an acknowledgement may get lost without anybody's knowing (fault "lose")
    faults : rates of "read", "acknowledge" and "lose", and "redeliver": that a message comes again, to the same reader,
        before it was acknowledged
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        bounded: bool = True,
        confirms: bool = True,
        batch_rows: int = 16,
        name: str = "queue",
        faults: Faults | None = None,
    ) -> None:
        super().__init__(name, faults)
        self.schema = schema
        self.bounded = bounded
        self.confirms = confirms
        self.batch_rows = batch_rows
        self.messages: list[_Message] = []
        self.ready: deque[int] = deque()
        """Numbers of messages that wait to be delivered."""
        self.readers: list[QueueReader] = []
        self.newest_execution_id = 0
        """Of all that have read; older ones get no connection."""
        self.acknowledged: set[int] = set()
        self.deliveries = 0

    def publish(self, rows: Iterable[Mapping[str, Any]], ids: Iterable[str | None] | None = None) -> None:
        """Add messages; their ids are their numbers unless others are given (None: a message without id)."""
        with self.lock:
            given = None if ids is None else iter(ids)
            for row in rows:
                number = len(self.messages)
                self.messages.append(_Message(str(number) if given is None else next(given), row))
                self.ready.append(number)

    def source(self) -> "QueueSource":
        """A source that reads here."""
        return QueueSource(self)

    @property
    def unacknowledged(self) -> int:
        """Messages that would still be delivered (again)."""
        with self.lock:
            return len(self.messages) - len(self.acknowledged)

    def drop(self, reader: "QueueReader") -> None:
        """A reader is gone: its messages come again, to whomever."""
        with self.lock:
            if reader in self.readers:
                self.readers.remove(reader)
                self.ready.extendleft(reversed([number for number in reader.unacknowledged]))
                reader.unacknowledged.clear()


@dataclass(frozen=True)
class QueueSource:
    """See `AcknowledgingQueue.source`."""

    system: AcknowledgingQueue
    columns: tuple[str, ...] | None = None
    cooperative: bool = True
    source_delivery: Delivery = Delivery.ACKNOWLEDGING
    redelivery_retention_us: int = REDELIVERY_RETENTION_US

    @property
    def name(self) -> str:
        return self.system.name

    @property
    def schema(self) -> pa.Schema:
        schema = self.system.schema
        return schema if self.columns is None else pa.schema([schema.field(name) for name in self.columns])

    @property
    def bounded(self) -> bool:
        return self.system.bounded

    def partitions(self) -> Sequence[str]:
        return [self.system.name]

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "QueueReader":
        return QueueReader(self, context.execution_id)

    def with_columns(self, names: Sequence[str]) -> Self:
        for name in names:
            self.system.schema.field(name)  # KeyError
        return type(self)(self.system, tuple(names))


class QueueReader:
    """One client of the queue."""

    def __init__(self, source: QueueSource, execution_id: int) -> None:
        self.system = system = source.system
        self.schema = source.schema
        self.execution_id = execution_id
        self.confirms = system.confirms
        self.unacknowledged: dict[int, None] = {}
        """Numbers of the messages that it has, in the order of delivery."""
        with system.lock:
            for other in list(system.readers):
                if other.execution_id < execution_id:
                    system.drop(other)
            system.newest_execution_id = max(system.newest_execution_id, execution_id)
            if execution_id == system.newest_execution_id:
                system.readers.append(self)

    def read(self) -> Rows | None:
        return self.system.perform("read", self._read)

    def _read(self) -> Rows | None:
        system = self.system
        self._check_connected("read")
        numbers: list[int] = []
        while system.ready and len(numbers) < system.batch_rows:
            number = system.ready.popleft()
            self.unacknowledged[number] = None
            numbers.append(number)
        if not numbers and not system.ready and system.bounded:
            return None
        if self.unacknowledged and system.faults.happens("redeliver"):
            numbers.append(system.faults.random.choice(list(self.unacknowledged)))
        system.deliveries += len(numbers)
        messages = [system.messages[number] for number in numbers]
        rows = pa.RecordBatch.from_pylist([dict(message.row) for message in messages], schema=self.schema)
        return Rows(
            Batch.from_arrow(rows), b"", receipts=numbers, message_ids=[message.message_id for message in messages]
        )

    def acknowledge(self, receipts: Sequence[Any]) -> None:
        system = self.system
        if not self.confirms and system.faults.happens("lose"):
            return
        system.perform("acknowledge", self._acknowledge, receipts)

    def _acknowledge(self, numbers: Sequence[int]) -> None:
        self._check_connected("acknowledge")
        for number in numbers:
            self.unacknowledged.pop(number, None)
        self.system.acknowledged.update(numbers)

    def _check_connected(self, call: str) -> None:
        if self not in self.system.readers:
            raise RestartableError(f"{self.system.name}: the connection was lost before {call}")

    def close(self) -> None:
        self.system.drop(self)
