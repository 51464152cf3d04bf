"""A system with transactions in the memory of this process: named, pooled or staged, with faults."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.transaction import TransactionalWriter, TransactionRules
from jetfast.errors import DataLostError, RestartableError
from jetfast.testing.outside_system import Faults, OutsideSystem
from jetfast.testing.stored_rows import BufferedWriter


@dataclass
class _Stored:
    """A transaction that is open or prepared."""

    writer: "TransactionalMemoryWriter"
    begun_us: int
    rows: list[pa.RecordBatch] = field(default_factory=list)
    prepared: bool = False


class TransactionalMemory(OutsideSystem):
    """Rows that were committed, and transactions that are not yet.

        outside = TransactionalMemory.named(faults=Faults(Random(7), {"commit": 0.2, "slow": 0.5}))
        stage.write(outside.sink())
        ...
        outside.rows()

    `named`, `pooled` and `staged` make the three kinds of `jetfast.core.transaction`. Like the systems they stand for,
    it refuses what a sink must never do, with an AssertionError: to begin an id that is in use, to write to a
    transaction that is prepared, to commit one that is not.

    faults : rates of "begin", "write", "prepare", "commit", "rollback", "list", "forget", and "slow"
    now_us : the clock by which transactions time out, microseconds
    """

    def __init__(
        self,
        rules: TransactionRules,
        name: str = "transactions",
        faults: Faults | None = None,
        now_us: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(name, faults)
        self.rules = rules
        self.now_us = now_us
        self.transactions: dict[str, _Stored] = {}
        self.committed: list[tuple[str, pa.RecordBatch]] = []
        """Visible rows, with the id of their transaction, in the order of the commits."""
        self.outcomes: dict[str, str] = {}
        """What an id has last become: "committed", "rolled back" or "aborted" (it timed out); until it is forgotten."""
        self.fences: dict[str, int] = {}
        """Of ids of pools: the last execution that has taken it."""

    @classmethod
    def named(cls, *, overlaps: bool = False, timeout_us: int | None = None, **options: Any) -> Self:
        """Ids are free and can be listed."""
        return cls(TransactionRules(overlaps=overlaps, timeout_us=timeout_us), **options)

    @classmethod
    def pooled(
        cls,
        size: int,
        *,
        overlaps: bool = False,
        revocable: bool = False,
        timeout_us: int | None = None,
        **options: Any,
    ) -> Self:
        """A pool of 2 or 3 ids per processor, and no list."""
        return cls(TransactionRules(size, overlaps, revocable, timeout_us), **options)

    @classmethod
    def staged(cls, *, overlaps: bool = False, **options: Any) -> Self:
        """Rows are staged under tags, and moved together."""
        return cls(TransactionRules(overlaps=overlaps, revocable=True), **options)

    def sink(self, *, parallelism_one: bool = False) -> "TransactionalMemorySink":
        """A sink that writes here."""
        return TransactionalMemorySink(self, parallelism_one=parallelism_one)

    def rows(self) -> list[dict[str, Any]]:
        """All rows that have become visible, in the order in which they did."""
        with self.lock:
            return [row for _, rows in self.committed for row in rows.to_pylist()]

    def in_doubt(self) -> list[str]:
        """Ids of transactions that are open or prepared; none may be left when a job is over."""
        with self.lock:
            return sorted(self.transactions)

    def store(self, batches: list[pa.RecordBatch]) -> None:
        """Take rows without a transaction."""
        self.perform("write", self.committed.extend, [("", rows) for rows in batches])

    def expire(self) -> None:
        """Abort what has been open for too long."""
        timeout_us = self.rules.timeout_us
        if timeout_us is None:
            return
        now = self.now_us()
        for text in [text for text, stored in self.transactions.items() if stored.begun_us + timeout_us <= now]:
            del self.transactions[text]
            self.outcomes[text] = "aborted"


@dataclass(frozen=True)
class TransactionalMemorySink:
    """See `TransactionalMemory.sink`."""

    system: TransactionalMemory
    parallelism_one: bool = False
    cooperative: bool = True
    sink_delivery: Delivery = Delivery.TRANSACTIONAL

    @property
    def name(self) -> str:
        return self.system.name

    @property
    def tells_latest(self) -> bool:
        return self.system.rules.pool_size is None

    @property
    def target(self) -> str | None:
        return None

    def check(self, schema: pa.Schema) -> None:
        """Everything that Arrow holds can be kept."""

    def check_target(self) -> None:
        """It is there."""

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> BufferedWriter:
        return BufferedWriter(self.system.store)

    def open_transactions(self, schema: pa.Schema, context: ProcessorContext) -> "TransactionalMemoryWriter":
        return TransactionalMemoryWriter(self.system, context.execution_id)


class TransactionalMemoryWriter(TransactionalWriter):
    """A connection to a TransactionalMemory."""

    def __init__(self, system: TransactionalMemory, execution_id: int) -> None:
        self.system = system
        self.execution_id = execution_id
        self.rules = system.rules
        self.text = ""
        """What rows go to."""

    def perform(self, call: str, function: Callable[..., Any], *arguments: Any) -> Any:
        with self.system.lock:
            self.system.expire()
            return self.system.perform(call, function, *arguments)

    def raise_fence(self, text: str) -> None:
        """Shut earlier executions off from an id of a pool, as Kafka does by epochs; others bear the execution."""
        fences = self.system.fences
        if self.rules.pool_size is not None:
            if fences.get(text, 0) > self.execution_id:
                raise RestartableError(f"{self.system.name}: a later execution has taken transaction {text} over")
            fences[text] = self.execution_id

    def mine(self, text: str) -> _Stored:
        """A transaction of this connection. Raises RestartableError if it was aborted, or others have the id now."""
        stored = self.system.transactions.get(text)
        if stored is None or stored.writer is not self:
            raise RestartableError(f"{self.system.name}: transaction {text} of this connection was aborted")
        return stored

    def begin(self, transaction: str) -> None:
        self.text = transaction
        self.perform("begin", self._begin, transaction)

    def _begin(self, text: str) -> None:
        system = self.system
        self.raise_fence(text)
        stored = system.transactions.get(text)
        if stored is not None and stored.writer.execution_id >= self.execution_id:
            raise AssertionError(f"{system.name}: transaction {text} is begun while it is in use")
        if self.rules.pool_size is None and text in system.outcomes:
            raise AssertionError(f"{system.name}: the id {text} is used twice")
        if not self.rules.overlaps:
            for other, unfinished in system.transactions.items():
                if unfinished.writer is self and not unfinished.prepared:
                    raise AssertionError(f"{system.name}: {text} is begun before {other} is prepared")
        system.outcomes.pop(text, None)
        system.transactions[text] = _Stored(self, system.now_us())

    def write(self, batch: Batch) -> None:
        self.perform("write", self._write, batch.to_arrow())

    def _write(self, rows: pa.RecordBatch) -> None:
        stored = self.mine(self.text)
        if stored.prepared:
            raise AssertionError(f"{self.system.name}: rows come to transaction {self.text}, which is prepared")
        stored.rows.append(rows)

    def prepare(self, transaction: str) -> bool:
        if self.system.faults.happens("slow"):
            return False
        self.perform("prepare", self._prepare, transaction)
        return True

    def _prepare(self, text: str) -> None:
        self.mine(text).prepared = True

    def resume(self, transaction: str) -> None:
        stored = self.mine(transaction)
        if stored.prepared and not self.rules.revocable:
            raise AssertionError(f"{self.system.name}: {transaction} is prepared, and cannot be continued")
        stored.prepared = False
        self.text = transaction

    def commit(self, transaction: str, token: bytes) -> None:
        self.perform("commit", self._commit, transaction)

    def _commit(self, text: str) -> None:
        system = self.system
        if system.fences.get(text, 0) > self.execution_id:
            self.raise_fence(text)
        stored = system.transactions.get(text)
        if stored is not None:
            if not stored.prepared:
                raise AssertionError(f"{system.name}: {text} is committed, but not prepared")
            del system.transactions[text]
            system.committed += [(text, rows) for rows in stored.rows]
            system.outcomes[text] = "committed"
        elif (outcome := system.outcomes.get(text)) != "committed":
            raise DataLostError(f"{system.name}: transaction {text} is {outcome or 'unknown'}: its rows are lost")

    def rollback(self, transaction: str) -> None:
        self.perform("rollback", self._rollback, transaction)

    def _rollback(self, text: str) -> None:
        self.raise_fence(text)
        if self.system.transactions.pop(text, None) is not None:
            self.system.outcomes[text] = "rolled back"

    def list_open(self, prefix: str) -> Sequence[str]:
        if self.rules.pool_size is not None:
            raise AssertionError(f"{self.system.name}: transactions of a pool cannot be listed")
        return self._list(self.system.transactions, prefix)

    def list_committed(self, prefix: str) -> Sequence[str]:
        if self.rules.pool_size is not None:
            return ()  # it is known of each id
        return self._list([text for text, outcome in self.system.outcomes.items() if outcome == "committed"], prefix)

    def latest_known(self, prefix: str) -> Sequence[str] | None:
        return None if self.rules.pool_size is not None else self.list_committed(prefix)

    def _list(self, texts: Iterable[str], prefix: str) -> list[str]:
        found: list[str] = self.perform("list", lambda: [text for text in texts if text.startswith(prefix)])
        return found

    def forget(self, transactions: Sequence[str]) -> None:
        self.perform("forget", self._forget, transactions)

    def _forget(self, texts: Sequence[str]) -> None:
        if self.rules.pool_size is None:  # what a pool's id has last done is known until it is begun again
            for text in texts:
                self.system.outcomes.pop(text, None)

    def close(self) -> None:
        """The connection goes: what it has begun and not prepared is aborted."""
        with self.system.lock:
            for text, stored in list(self.system.transactions.items()):
                if stored.writer is self and not stored.prepared:
                    del self.system.transactions[text]
