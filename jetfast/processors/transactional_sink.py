"""Writes rows in transactions that become visible with the snapshot they belong to (`core.transaction` says how).

                       save_snapshot        prepare           commit, success
    (none) --> current ------------> sealed --------> prepared --------------> decided --> (none)
                  ^                    |     commit, failure |                             at the next decision
                  +--------------------+---------------------+
                    if none was begun since; a prepared one only if that can be taken back. Else it waits, and is
                    saved again, in order, with each further snapshot until one is decided.

Two writers of the sink, so that a commit never waits behind a write that the system blocks:

    transactions    rows, prepare, the restore; on the processor's thread
    committer       `commit_prepared`: commits, forgets, sweeps; opened, used and closed on the thread that calls it

Invariants:
- Only what is `waiting` (sealed or prepared) is in a snapshot, and all of it; so phase 2 commits `waiting`.
- Between `save_snapshot` and `commit` nobody here knows whether `waiting` is decided: it is not rolled back.
- Between `prepare` and `commit` `waiting` and `decided` do not change: `commit_prepared` reads them on its thread.
- Of transactions of earlier processors each is committed or rolled back by one processor: its index modulo the
  parallelism.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.crash_points import reach
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Output
from jetfast.core.processor import BROADCAST, ProcessorContext, StateBatch
from jetfast.core.transaction import (
    NEXT_TRANSACTION,
    TRANSACTIONS,
    TransactionalSink,
    TransactionalWriter,
    TransactionId,
    TransactionOwner,
)
from jetfast.errors import (
    DataLostError,
    JetfastError,
    JobFailedError,
    ProtocolError,
    RestartableError,
    SnapshotDamaged,
)
from jetfast.processors.sink_writer import SinkWriterProcessor, call_writer
from jetfast.processors.transaction_ids import FreeIds, PooledIds, ids_to_probe

logger = logging.getLogger("jetfast")

SWEEP_ATTEMPTS = 3
SWEEP_US = 60_000_000
"""So often transactions of earlier executions are looked for again: a process that was thought dead may add some."""

_STATE_SCHEMA = pa.schema(
    [pa.field("transaction", pa.string(), nullable=False), pa.field("token", pa.binary(), nullable=False)]
)
_NEXT_SCHEMA = pa.schema([pa.field("transaction", pa.string(), nullable=False)])


@dataclass
class _Transaction:
    """One that is not decided."""

    text: str
    begun_us: int
    token: bytes = b""
    touched: bool = False
    """Has `prepare` been called?"""
    prepared: bool = False


class TransactionalSinkProcessor(SinkWriterProcessor):
    """Drives a TransactionalWriter; under weaker guarantees than EXACTLY_ONCE it is the plain sink."""

    def __init__(self, sink: TransactionalSink, schema: pa.Schema) -> None:
        super().__init__(sink, schema)
        self.transactional_sink = sink
        self.transactions: TransactionalWriter | None = None
        self.committer: TransactionalWriter | None = None
        """Opened with the first commit."""
        self.current: _Transaction | None = None
        self.waiting: list[_Transaction] = []
        self.decided: list[str] = []
        """What this processor has committed last, with any snapshot."""
        self.reserved: frozenset[str] = frozenset()
        """Ids of this processor's pool in the last decided snapshot, whoever has committed them."""
        self.restored: dict[str, bytes] = {}
        self.restored_next: list[str] = []
        """Of each processor that took the snapshot, the first transaction that it cannot contain."""
        self.saving = False
        """A snapshot is under way: `waiting` may be decided without our knowing."""
        self.input_taken = False
        self.failure: JetfastError | None = None

    def open(self, context: ProcessorContext) -> None:
        self.owner = TransactionOwner.of(context)
        if context.guarantee is not Guarantee.EXACTLY_ONCE:
            super().open(context)
            return
        self.context = context
        context.counters.setdefault("rows_written", 0)
        self.transactions = self.transactional_sink.open_transactions(self.schema, context)
        self.rules = self.transactions.rules
        self.ids: FreeIds | PooledIds = (
            FreeIds(self.owner, context.execution_id, context.index)
            if self.rules.pool_size is None
            else PooledIds(self.owner, context.index, self.rules.pool_size)
        )
        self.round_us = self.sweep_us = context.now_us()

    # Rows

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        transactions = self.transactions
        if transactions is None:
            return super().process(ordinal, batch)
        if self.current is None:
            self._begin(transactions)
        call_writer(self.sink, "write", transactions.write, self.with_types(batch))
        self.context.counters["rows_written"] += batch.row_count
        return ()

    def complete(self) -> tuple[Output, ...]:
        transactions = self.transactions
        if transactions is None:
            return super().complete()
        if transactions.marks_end and self.takes_input and self.current is None:
            self._begin(transactions)
        self.input_taken = True  # what is open goes with the final snapshot
        return ()

    def _begin(self, transactions: TransactionalWriter) -> None:
        text = self._next_id()
        if text is None:
            raise ProtocolError(f"step {self.context.vertex!r}: rows came while its transactions took none")
        self.ids.take(text)  # whatever comes of it
        call_writer(self.sink, "begin a transaction", transactions.begin, text)
        self.current = _Transaction(text, self.context.now_us())

    def _next_id(self) -> str | None:
        """The id to begin now, None if none may be begun before the round has gone on."""
        if not self.rules.overlaps and not all(transaction.prepared for transaction in self.waiting):
            return None
        return self.ids.next_id([transaction.text for transaction in self.waiting], self.reserved)

    def _look_whether_it_takes_input(self) -> None:
        self.takes_input = self.current is not None or self._next_id() is not None

    # A snapshot round

    def save_snapshot(self) -> tuple[StateBatch, ...]:
        transactions = self.transactions
        if transactions is None:
            return super().save_snapshot()
        self.saving = True
        if self.current is not None:
            self.current.token = call_writer(self.sink, "seal", transactions.seal, self.current.text)
            self.waiting.append(self.current)
            self.current = None
        self._look_whether_it_takes_input()
        states = () if self.rules.pool_size is not None else (self._next_state(),)
        if not self.waiting:
            return states
        texts, tokens = zip(*((transaction.text, transaction.token) for transaction in self.waiting), strict=True)
        rows = pa.record_batch([list(texts), list(tokens)], schema=_STATE_SCHEMA)
        return (StateBatch(BROADCAST, TRANSACTIONS, rows), *states)

    def _next_state(self) -> StateBatch:
        rows = pa.record_batch([[self.ids.next_id((), ())]], schema=_NEXT_SCHEMA)
        return StateBatch(BROADCAST, NEXT_TRANSACTION, rows)

    def prepare(self, snapshot_id: int) -> bool:
        transactions = self.transactions
        if transactions is None:
            return True
        for transaction in self.waiting:
            if transaction.prepared:
                continue
            transaction.touched = True
            try:
                transaction.prepared = transactions.prepare(transaction.text)
            except Exception as error:
                self.failure = self._in_doubt(f"transaction {transaction.text} could not be prepared", error)
                raise self.failure from error
            if not transaction.prepared:
                return False
        self._look_whether_it_takes_input()
        return True

    def commit_prepared(self, snapshot_id: int) -> None:
        if self.context.guarantee is not Guarantee.EXACTLY_ONCE:
            return
        if self.failure is not None or not all(transaction.prepared for transaction in self.waiting):
            raise ProtocolError(f"step {self.context.vertex!r}: a snapshot succeeded though it was not prepared")
        sweep = self.context.now_us() - self.sweep_us >= SWEEP_US
        if not (self.waiting or sweep):
            return
        if self.committer is None:
            try:
                self.committer = self.transactional_sink.open_transactions(self.schema, self.context)
            except Exception as error:  # it has worked when the processor was opened
                raise RestartableError(f"{self.sink.name}: cannot begin to commit: {error}") from error
        for number, transaction in enumerate(self.waiting):
            if number:
                reach("between_two_commits")
            self._commit(self.committer, transaction.text, transaction.token)
        if self.waiting and self.decided:  # the last ones stay: they tell a store that was put back
            try:
                self.committer.forget(self.decided)
            except Exception as error:
                raise self._in_doubt("what tells of commits could not be removed", error) from error
        if sweep:
            self._sweep_late(self.committer)

    def end_commits(self) -> None:
        committer, self.committer = self.committer, None
        if committer is not None:
            committer.close()

    def commit(self, snapshot_id: int, success: bool) -> bool:
        transactions = self.transactions
        if transactions is None:
            return True
        if success:
            texts = [transaction.text for transaction in self.waiting]
            self.decided = texts or self.decided
            self.reserved = frozenset(texts)
            self.waiting = []
        else:
            self._keep_waiting(transactions)
        self.saving = False
        self._look_whether_it_takes_input()
        if not self.takes_input and not self.input_taken:
            raise RestartableError(
                f"{self.sink.name}: no transaction id is left after {len(self.waiting)} failed rounds; "
                f"the rows since the last snapshot are read again"
            )
        now = self.context.now_us()
        self._check_timeout(now)
        self.round_us = now
        return True

    def _keep_waiting(self, transactions: TransactionalWriter) -> None:
        """A failed round: go on with the last transaction, if that can be; else it waits."""
        if self.failure is not None:
            raise self.failure
        if self.current is None and self.waiting and not self.input_taken:
            last = self.waiting[-1]
            if not last.touched or (last.prepared and self.rules.revocable):
                call_writer(self.sink, "resume", transactions.resume, last.text)
                self.current = self.waiting.pop()
                self.current.touched = self.current.prepared = False

    def _check_timeout(self, now: int) -> None:
        """Ask for a restart while the next round can still be expected to come too late for a transaction."""
        timeout_us = self.rules.timeout_us
        open_transactions = self.waiting if self.current is None else [*self.waiting, self.current]
        if timeout_us is None or not open_transactions:
            return
        oldest = min(open_transactions, key=lambda transaction: transaction.begun_us)
        until_next_us = now - self.round_us  # as long as since the round before
        if now + until_next_us >= oldest.begun_us + timeout_us:
            raise RestartableError(
                f"{self.sink.name}: transaction {oldest.text} has been open for {(now - oldest.begun_us) / 1e6:.1f} s "
                f"and would be aborted after {timeout_us / 1e6:.1f} s, before the next snapshot; the rows since the "
                f"last one are read again. If this happens again, raise that timeout or lower the snapshot interval"
            )

    # Restore

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind == NEXT_TRANSACTION:
            self.restored_next += state.rows.column("transaction").to_pylist()
            return
        if state.kind != TRANSACTIONS:
            super().restore_snapshot(state)
        for saved in state.rows.to_pylist():
            self.restored[saved["transaction"]] = saved["token"]

    def finish_restore(self) -> None:
        if self.transactions is not None:
            self._settle(self.transactions)
        elif self.restored or self.restored_next:  # the guarantee was lowered after that snapshot
            transactions = self.transactional_sink.open_transactions(self.schema, self.context)
            self._settle(transactions)
            transactions.close()

    def _settle(self, transactions: TransactionalWriter) -> None:
        """Commit what the snapshot names, then roll back the rest."""
        named = {text: self._read_id(text) for text in self.restored}
        self._refuse_older_store(transactions)
        reach("restore_before_commit")
        lost: dict[str, DataLostError] = {}
        try:
            for text in self.restored:
                if self._is_mine(named[text]):
                    if self.decided:
                        reach("between_two_commits")
                    try:
                        self._commit(transactions, text, self.restored[text])
                    except DataLostError as error:
                        lost[text] = error
                    self.decided.append(text)
        except RestartableError:
            # The commit may wait for a statement that itself waits for the locks of what no snapshot names.
            with suppress(Exception):
                self._roll_back(transactions, self._unnamed(transactions))
            raise
        self._accept_losses(lost)
        self.reserved = frozenset(self.restored)
        reach("restore_between_commit_and_rollback")
        try:
            self._roll_back(transactions, self._unnamed(transactions))
            marks = self._of_earlier_executions(transactions.list_committed(self.owner.prefix))
            gone = [text for text in marks if text not in named]
            if gone and not self.decided:
                last = max(gone, key=lambda text: self._order(self._read_id(text)))
                gone.remove(last)
                self.decided = [last]
            if gone:
                transactions.forget(gone)
        except Exception as error:
            raise self._in_doubt("transactions of earlier executions could not be rolled back", error) from error

    def _accept_losses(self, lost: dict[str, DataLostError]) -> None:
        """Go on without the rows of these transactions, if the user has named all of them; else raise."""
        accepted = self.context.accepted_losses
        for text in lost:
            if text in accepted:
                logger.warning(
                    "step %r, %s: transaction %s is lost, and its rows are given up, as accept_loss says: %s",
                    self.context.vertex,
                    self.sink.name,
                    text,
                    lost[text].__cause__,
                )
        refused = [text for text in lost if text not in accepted]
        if refused:
            raise DataLostError(
                f"{lost[refused[0]]}. To go on without the rows of what is lost, submit or resume the job with "
                f"accept_loss={refused}"
            ) from lost[refused[0]]

    def _refuse_older_store(self, transactions: TransactionalWriter) -> None:
        """Raise SnapshotDamaged if rows are visible that only a later snapshot than the restored one can have decided.

        Each processor looks at the transactions of all, before it changes anything.
        """
        if not self.restored_next:
            return
        try:
            known = transactions.latest_known(self.owner.prefix)
        except Exception as error:
            raise self._in_doubt("what was committed could not be listed", error) from error
        bounds = [self._read_id(text) for text in self.restored_next]
        sequences = {(bound.execution_id, bound.processor): bound.sequence for bound in bounds}
        last_execution_id = max(bound.execution_id or 0 for bound in bounds)
        for text in known or ():
            found = self.owner.parse(text)
            if found is None or found.execution_id is None or found.execution_id >= self.context.execution_id:
                continue
            bound = sequences.get((found.execution_id, found.processor))
            if found.execution_id > last_execution_id or (bound is not None and found.sequence >= bound):
                raise SnapshotDamaged(
                    f"step {self.context.vertex!r}: the snapshot knows only transactions before "
                    f"{max(self.restored_next, key=lambda text: self._order(self._read_id(text)))}, but "
                    f"{self.sink.name} shows rows of {text}, which was committed later. The snapshot store was put "
                    "back from an older copy; going on from it would write rows twice. Bring the newest store back, "
                    "or submit the job with fresh=True to run it from the beginning"
                )

    @staticmethod
    def _order(transaction: TransactionId) -> tuple[int, int]:
        """Later transactions of a processor are greater, and those of a later execution."""
        return transaction.execution_id or 0, transaction.sequence

    def _read_id(self, text: str) -> TransactionId:
        found = self.owner.parse(text)
        if found is None:
            raise ProtocolError(
                f"step {self.context.vertex!r}: the snapshot names {text!r}, no transaction of this step"
            )
        return found

    def _is_mine(self, transaction: TransactionId) -> bool:
        """Is it for this processor to settle?"""
        return transaction.processor % self.context.parallelism == self.context.index

    def _unnamed(self, transactions: TransactionalWriter) -> list[str]:
        """What this processor has to roll back: all that earlier executions may have left, and no snapshot names."""
        context = self.context
        if transactions.rules.pool_size is not None:
            processors = range(context.index, max(context.parallelism_max, context.parallelism), context.parallelism)
            return [text for text in ids_to_probe(self.owner, processors) if text not in self.restored]
        found = self._of_earlier_executions(transactions.list_open(self.owner.prefix))
        return [text for text in found if text not in self.restored]

    def _of_earlier_executions(self, texts: Iterable[str]) -> list[str]:
        """Ids that this processor has to settle. If there is a later execution, that one counts, and we do not know."""
        execution_id = self.context.execution_id
        found = []
        for text in texts:
            read = self.owner.parse(text)
            if read is not None and self._is_mine(read) and (read.execution_id or 0) < execution_id:
                found.append(text)
        return found

    def _sweep_late(self, transactions: TransactionalWriter) -> None:
        """Roll back what processes of earlier executions have added since; if that fails now, then later."""
        self.sweep_us = self.context.now_us()
        if self.rules.pool_size is not None:
            return  # an id that is probed again might be in use by now
        try:
            late = self._unnamed(transactions)
        except Exception as error:
            logger.warning("%s: late transactions could not be rolled back: %s", self.sink.name, error)
            return
        for text in late:
            self._roll_back_late(transactions, text)

    def _roll_back_late(self, transactions: TransactionalWriter, text: str) -> None:
        """Try more than once: at the end of a job nobody comes after it, and a system keeps locks for what is left."""
        for attempt in range(1, SWEEP_ATTEMPTS + 1):
            try:
                transactions.rollback(text)
                return
            except Exception as error:
                if attempt == SWEEP_ATTEMPTS:
                    logger.warning("%s: late transaction %s could not be rolled back: %s", self.sink.name, text, error)

    # Single transactions

    def _commit(self, transactions: TransactionalWriter, text: str, token: bytes) -> None:
        try:
            transactions.commit(text, token)
        except Exception as error:
            raise self._in_doubt(f"transaction {text} could not be committed", error) from error

    def _roll_back(self, transactions: TransactionalWriter, texts: Iterable[str]) -> None:
        for text in texts:
            transactions.rollback(text)

    def _in_doubt(self, what: str, error: Exception) -> JetfastError:
        """The error to raise: a restart may help, unless the connector says that the user or the operator must act."""
        kind = next((kind for kind in (DataLostError, JobFailedError) if isinstance(error, kind)), RestartableError)
        return kind(f"step {self.context.vertex!r}, {self.sink.name}: {what}: {error}")

    def close(self, error: BaseException | None) -> None:
        transactions, self.transactions = self.transactions, None
        if transactions is None:
            super().close(error)
            return
        undecided = [] if self.saving else self.waiting
        if self.current is not None:
            undecided = [*undecided, self.current]
        try:
            self._roll_back(transactions, [transaction.text for transaction in undecided])
        except Exception as problem:  # the next execution does it
            logger.warning("%s: open transactions could not be rolled back: %s", self.sink.name, problem)
        if error is None:
            self._sweep_late(transactions)
        transactions.close()
