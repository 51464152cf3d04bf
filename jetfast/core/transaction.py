"""The contract of sinks that write in transactions: what they are told, in which order, and what they must keep.

A transaction becomes visible in two phases. Its life, as the processor (`processors.transactional_sink`) drives it:

    begin -> write* -> seal -> [its id is saved in snapshot n] -> prepare -> [n is decided] -> commit -> forget
                                                       after a restart:       commit, or rollback if it is not in n

Three kinds of system, and how each fits:

    NAMED    ids can be chosen freely and listed (PostgreSQL gids, names of files): each id is used once, and a restart
             rolls back whatever is listed and not in the snapshot.
    POOLED   there are few ids, used again and again (Kafka binds one to a connection; some cannot list): a pool of 2
             or 3 per processor. A restart probes (rolls back) every id that the job can ever have used.
    STAGED   there is no prepare that outlives a connection: rows are staged under the id as a tag, in local
             transactions; commit moves them, with a marker row, in one local transaction. Driven as NAMED: prepare
             makes the staged rows durable, rollback deletes them, the list is that of staged tags.

An id is text, made here and never by a connector: connectors store it, list it and give it back.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.core.publishing import UNPUBLISHED
from jetfast.core.source import Sink
from jetfast.errors import RestartableError

ID_BYTES_MAX = 199
"""An id is ASCII and never longer: PostgreSQL takes less than 200 bytes."""

TRANSACTIONS = "transactions"
"""Kind of the state that names the transactions of a snapshot (`StateBatch.kind`)."""
NEXT_TRANSACTION = "next transaction"
"""Kind of the state that names, of each processor, the first transaction that the snapshot cannot contain."""
SETTLED_KINDS = frozenset({TRANSACTIONS, NEXT_TRANSACTION, UNPUBLISHED})
"""Kinds of state that are settled when phase 2 is over: an exported snapshot leaves them out."""

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_POOL = "pool"


class TransactionId(NamedTuple):
    """What the text of an id says. `execution_id` None: it belongs to a pool, and `sequence` is its place there."""

    execution_id: int | None
    processor: int
    """Index of the processor among all of its vertex, in the execution that began the transaction."""
    sequence: int


class TransactionOwner:
    """Whose transactions they are: those of one sink of one job. Makes and reads the text of ids.

        jetfast.<job>.<job id>.<vertex>.<execution>.<processor>.<sequence>

    Names are escaped ("=20" for a blank) so that there is no dot in them, and cut with a digest if they are long.
    """

    def __init__(self, job: str, job_id: str, vertex: str) -> None:
        labels = (_label(job, 40), _label(job_id, 32), _label(vertex, 60))
        self.prefix = f"jetfast.{'.'.join(labels)}."
        """What the text of every id begins with, and of no id of another owner."""

    @classmethod
    def of(cls, context: ProcessorContext) -> "TransactionOwner":
        return cls(context.job, context.job_id, context.vertex)

    def text(self, transaction: TransactionId) -> str:
        """Return the canonical text of an id, at most ID_BYTES_MAX bytes."""
        execution, processor, sequence = transaction
        return f"{self.prefix}{_POOL if execution is None else execution}.{processor}.{sequence}"

    def parse(self, text: str) -> TransactionId | None:
        """Return what a text says; None if it is no id of this owner."""
        if not text.startswith(self.prefix):
            return None
        execution, *numbers = text[len(self.prefix) :].split(".")
        if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            return None
        if execution != _POOL and not execution.isdecimal():
            return None
        found = TransactionId(None if execution == _POOL else int(execution), int(numbers[0]), int(numbers[1]))
        return found if self.text(found) == text else None


def _label(name: str, bytes_max: int) -> str:
    escaped = "".join(
        character if character in _PLAIN else "".join(f"={byte:02X}" for byte in character.encode())
        for character in name
    )
    if len(escaped) <= bytes_max:
        return escaped
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{escaped[: bytes_max - 17]}~{digest}"  # ~ is in no name that was not cut


@dataclass(frozen=True)
class TransactionRules:
    """What a system demands of whoever uses its transactions."""

    pool_size: int | None = None
    """Ids that a processor uses in turn, 2 or 3; None: ids are free (NAMED, STAGED). With 2 the sink takes no rows
    between phase 1 and phase 2, with 3 it does."""
    overlaps: bool = False
    """May a transaction begin while an earlier one of this writer is sealed, but not prepared yet? If not, the sink
    takes no rows until then."""
    revocable: bool = False
    """May a prepared transaction take further rows, if its round has failed? (Kafka flush, staged rows)"""
    timeout_us: int | None = None
    """The system aborts a transaction that is not committed so long after it began; None: never."""

    def __post_init__(self) -> None:
        if self.pool_size not in (None, 2, 3):
            raise ValueError(f"pool_size must be 2, 3 or None, got {self.pool_size}")


class TransactionalWriter:
    """Writes rows in transactions. Belongs to one processor, called by one thread; may block.

    A writer may be asked to commit or roll back any transaction of its sink, also one of another processor or of an
    earlier execution, which it has never seen.

    A processor opens two writers. One takes rows and prepares; the other commits and forgets, on another thread, while
    the first may be blocked in `write`. A commit must never wait for a write: an outside system keeps locks for what is
    prepared, a statement of another user may wait for these locks, and the write behind that statement. So writers
    share no connection, and what is open in one does not block a commit in the other. A `write` that waits for a lock
    must give up after a while with a RestartableError, for that lock may depend on an open transaction of another
    processor; the restart rolls that back.

    Errors: RestartableError if the system cannot be reached or an outcome is not known: the job restarts from its last
    snapshot and all that is in doubt is settled then. Any other error of `begin`, `write`, `seal` and `resume` is taken
    for one of the rows and fails the job; of the other methods it is taken for a RestartableError, but for
    DataLostError where that is said.
    """

    rules = TransactionRules()
    marks_end: bool = False
    """Begin a transaction at the end of the input even if no row has come: there is something to write all the same."""

    def begin(self, transaction: str) -> None:
        """Begin a transaction. An id of a pool has been committed or rolled back since it was last begun."""
        raise NotImplementedError

    def write(self, batch: Batch) -> None:
        """Take rows into the transaction begun last (or, if `revocable`, continued: see `resume`)."""
        raise NotImplementedError

    def seal(self, transaction: str) -> bytes:
        """No row follows. Return what commit must know besides the id, such as names of files or a producer's epoch.

        Called while the state is frozen: be quick. It is saved with the id before `prepare` is called.
        """
        return b""

    def prepare(self, transaction: str) -> bool:
        """Make a sealed transaction durable, so that any connection can commit it. False: not yet, call again.

        An error means that nobody knows what became of it: the round fails and the job restarts.
        """
        raise NotImplementedError

    def resume(self, transaction: str) -> None:
        """The round of a sealed transaction has failed, and rows follow in it after all.

        Only if it is not prepared yet, or if `revocable`.
        """

    def commit(self, transaction: str, token: bytes) -> None:
        """Make a prepared transaction visible; `token` is what `seal` gave. Idempotent: nothing happens if it is done.

        Raises DataLostError if the system says that it was aborted, or that it is neither prepared nor committed.
        """
        raise NotImplementedError

    def rollback(self, transaction: str) -> None:
        """Undo a transaction, open or prepared. Idempotent: nothing happens if there is none of that id."""
        raise NotImplementedError

    def list_open(self, prefix: str) -> Sequence[str]:
        """Return ids that begin with `prefix` and are prepared, staged or open. Not asked of a pool."""
        raise NotImplementedError

    def list_committed(self, prefix: str) -> Sequence[str]:
        """Return ids that begin with `prefix`, were committed and are not forgotten; () if nothing is kept of them."""
        return ()

    def latest_known(self, prefix: str) -> Sequence[str] | None:
        """Return ids that begin with `prefix` and whose rows are visible: of each writer at least the last one.

        Asked before anything is committed or rolled back. One that is later than the snapshot knows shows that the
        snapshot store was put back from a backup; the job is refused then. None: this system cannot tell, or only of
        ids that are not forgotten. A sink whose writers can tell has `tells_latest = True`.
        """
        return None

    def forget(self, transactions: Sequence[str]) -> None:
        """These were committed, and no snapshot names them any more: what tells that they were committed may go.

        Of each writer the last transaction that was committed is not forgotten before a later one was.
        """

    def close(self) -> None:
        """Release connections; called once. A transaction that is prepared stays, one that is open need not."""


class TransactionalSink(Sink, Protocol):
    """A sink whose rows become visible with the snapshot that they belong to. Used so for EXACTLY_ONCE only.

    Its `sink_delivery` is TRANSACTIONAL.

    Before the job runs, `check_target` should see that what one connection has prepared another can commit, by
    `prepared_outlives_connection`; a system that fails this stages rows.
    """

    def open_transactions(self, schema: pa.Schema, context: ProcessorContext) -> TransactionalWriter:
        """Open the writer of processor `context.index` of `context.parallelism`."""


def prepared_outlives_connection(connect: Callable[[], TransactionalWriter], transaction: str) -> bool:
    """Prepare a transaction without rows, drop its connection, and commit it from another one.

    `connect` opens a writer; the id should be one that no job uses. False: the system says that it cannot commit what
    it has prepared. A RestartableError is raised in either half, because a lost connection says nothing about the
    system; so are all errors of the first half. Whatever happens, the transaction is rolled back over one more
    connection if it was not committed.
    """
    try:
        first = connect()
        try:
            first.begin(transaction)
            token = first.seal(transaction)
            while not first.prepare(transaction):
                continue
        finally:
            first.close()
        committed = _commits(connect, transaction, token)
    except BaseException:
        with suppress(Exception):  # the first error counts
            _undo(connect, transaction)
        raise
    if not committed:
        with suppress(Exception):
            _undo(connect, transaction)
    return committed


def _commits(connect: Callable[[], TransactionalWriter], transaction: str, token: bytes) -> bool:
    second = connect()
    try:
        second.commit(transaction, token)
        second.forget([transaction])
    except RestartableError:
        raise
    except Exception:  # whatever it says: it did not do it
        return False
    finally:
        second.close()
    return True


def _undo(connect: Callable[[], TransactionalWriter], transaction: str) -> None:
    third = connect()
    try:
        third.rollback(transaction)
        third.forget([transaction])
    finally:
        third.close()
