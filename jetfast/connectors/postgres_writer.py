"""Writes rows to a PostgreSQL table: in two-phase transactions, in staged ones, by key, or one batch after the other.

Two ways to keep a transaction between the phases, told apart by the token that is saved with its id:

    prepared   COPY into the table, PREPARE TRANSACTION 'id' / COMMIT PREPARED 'id'
    staged     COPY into a table of staged rows under the id / one local transaction moves them
               (where max_prepared_transactions is 0)

A prepared id that is gone was committed or rolled back: a row in the table `jetfast_commits`, written by the same
transaction, tells which. It is deleted when no snapshot names the id any more.

Transactions keep a lock on the table until they are committed. A statement of another session that wants to alter the
table waits for them, and all later writes wait behind it. The server sees no deadlock, because a prepared or idle
transaction waits for nothing. So phase 2 has its own connection and thread, and a write waits for a lock only for
`lock_timeout`: the restart rolls back what is open, and lets that statement through.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pyarrow as pa

from jetfast.connectors.postgres_locks import WRITE_LOCK, explain_lock_wait
from jetfast.connectors.postgres_types import write_rows
from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.core.transaction import TransactionalWriter, TransactionOwner, TransactionRules
from jetfast.errors import DataLostError, JetfastError, JobFailedError, RestartableError, TransportError

COMMITS = "jetfast_commits"
PROBE = "jetfast-probe."
"""Ids of transactions with which a submission tries the server begin so, and no id of a job does."""
_PROBES = r"^(jetfast-probe\.[0-9a-f]{32}|jetfast\.probe=20[0-9a-f]{32}\.\.probe\.1\.0\.0)$"
"""As a regular expression of the server; the second form is that of earlier versions."""
TAG = "jetfast transaction"
"""The column of staged rows that holds the id."""
ROW = "jetfast row"
"""The column that tells which of two rows of a batch came first."""
_TERMINATION_WAIT_MS = 5_000


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """What commit must know besides the id."""

    staged: bool
    rows: int


class PostgresTable:
    """A connection to the database of a table, and what all writers do with it. Used by one thread.

    Parameters
    ----------
    connect : opens a connection in autocommit mode, under a name that the server shows
    sink : for messages
    table : canonical, quoted where need be; in the schema `namespace`
    columns : that rows will have, in this order
    """

    def __init__(
        self, connect: Callable[[str], Any], sink: str, table: str, namespace: str, columns: Sequence[str]
    ) -> None:
        self.open_connection = connect
        self.sink = sink
        self.table = table
        self.namespace = namespace
        self.columns = list(columns)
        self.label = "jetfast"
        self._connection: Any = None

    @property
    def connection(self) -> Any:
        """The connection, opened when it is first needed."""
        if self._connection is None:
            self._connection = self.open_connection(self.label)
        return self._connection

    def twin(self) -> "PostgresTable":
        """The same over a connection of its own."""
        twin = PostgresTable(self.open_connection, self.sink, self.table, self.namespace, self.columns)
        twin.label = self.label
        return twin

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def errors_named(self, what: str) -> Iterator[None]:
        """Say what was to be done, and who must act: nobody (restart), or the user (a row that does not fit)."""
        import psycopg

        try:
            yield
        except psycopg.errors.LockNotAvailable as error:
            raise RestartableError(f"{self.sink}: cannot {what}: {error}: it waited for {self._lock()}") from error
        except psycopg.OperationalError as error:
            raise TransportError(f"{self.sink}: cannot {what}: {error}") from error
        except psycopg.Error as error:
            raise JobFailedError(f"{self.sink}: cannot {what}: {error}") from error

    def _lock(self) -> str:
        """What a write has waited for."""
        import psycopg

        tables = [self.table, self._qualified(COMMITS), self._qualified(self.staged_name)]
        try:
            with self.open_connection(self.label) as connection:
                return explain_lock_wait(connection, tables, WRITE_LOCK)
        except (psycopg.Error, JetfastError) as error:
            return f"{WRITE_LOCK} on {self.table}; who was in the way cannot be asked: {error}"

    def compose(self, text: str, escape: bool = False, **parts: Any) -> Any:
        """Return SQL; {table}, {columns}, {commits}, {staged} and its column {tag} stand for names, quoted.

        escape : the SQL will be executed with arguments, so a % in a name must be doubled
        """
        from psycopg import sql

        namespace = sql.Identifier(self.namespace)
        names = {
            "table": sql.SQL(self.table),
            "columns": sql.SQL(", ").join(map(sql.Identifier, self.columns)),
            "commits": sql.SQL("{}.{}").format(namespace, sql.Identifier(COMMITS)),
            "staged": sql.SQL("{}.{}").format(namespace, sql.Identifier(self.staged_name)),
            "tag": sql.Identifier(TAG),
            **parts,
        }
        if escape:
            names = {name: sql.SQL(part.as_string(self.connection).replace("%", "%%")) for name, part in names.items()}
        return sql.SQL(text).format(**names)

    def execute(self, text: str, *arguments: Any, **parts: Any) -> Any:
        """Execute SQL (see `compose`) with arguments for its %s."""
        return self.connection.execute(self.compose(text, escape=bool(arguments), **parts), arguments or None)

    def copy(self, rows: pa.RecordBatch, text: str, **parts: Any) -> None:
        """Send rows by COPY."""
        with self.connection.cursor() as cursor, cursor.copy(self.compose(text, **parts)) as copy:
            copy.write(write_rows(rows))

    @property
    def staged_name(self) -> str:
        """The name of the table of staged rows: of these columns of this table."""
        key = "\0".join([self.table, *self.columns])
        return f"jetfast_staged_{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}"

    def lock(self, name: str) -> None:
        """Wait until nobody else has locked this name, and keep others waiting until the transaction ends."""
        self.execute("select pg_advisory_xact_lock(%s)", zlib.crc32(f"jetfast.{self.namespace}.{name}".encode()))

    def make_helpers(self, staged: bool) -> None:
        """Make the tables that transactions need, if they are not there; of two who do so at once one waits."""
        with self.connection.transaction():
            self.lock("helpers")
            self.execute(
                "create table if not exists {commits} "
                "(transaction text primary key, committed timestamptz default now())"
            )
            if staged and self.execute("select to_regclass(%s)", self._qualified(self.staged_name)).fetchone() == (
                None,
            ):
                self.execute("create table {staged} as select ''::text as {tag}, {columns} from {table} limit 0")
                self.execute("create index on {staged} ({tag})")

    def has_staged(self) -> bool:
        """Is there a table of staged rows?"""
        found: tuple[Any] = self.execute("select to_regclass(%s)", self._qualified(self.staged_name)).fetchone()
        return found[0] is not None

    def _qualified(self, name: str) -> str:
        from psycopg import sql

        return str(sql.Identifier(self.namespace, name).as_string(None))


class PostgresTransactions(TransactionalWriter):
    """Rows in transactions of the job's snapshots.

    Connections bear the job's and the execution's name: those of older executions are ended first, so that a process
    which has lost its job can prepare nothing any more.
    """

    rules = TransactionRules()

    def __init__(self, table: PostgresTable, staged: bool, context: ProcessorContext) -> None:
        self.table = table
        self.staged = staged
        self.transaction: str | None = None
        """That which is open: begun, and neither prepared nor rolled back."""
        self.rows = 0
        """Of that."""
        owner = hashlib.blake2b(TransactionOwner.of(context).prefix.encode(), digest_size=8).hexdigest()
        self._name = f"jetfast {owner} "
        self._execution_id = context.execution_id
        table.label = f"{self._name}{context.execution_id}"
        with table.errors_named("begin"):
            self._end_older_executions()
            table.make_helpers(staged)
        self.data = table.twin()
        """Rows go through a connection of their own: prepared transactions are not committed inside another one."""

    def begin(self, transaction: str) -> None:
        self.transaction = transaction
        self.rows = 0
        self.table.close()  # it is seldom needed from now on, and connections are few
        with self.table.errors_named("begin a transaction"):
            self.data.execute("begin")

    def write(self, batch: Batch) -> None:
        rows = batch.to_arrow()
        with self.table.errors_named("write"):
            if self.staged:
                tags = pa.repeat(pa.scalar(self.transaction), rows.num_rows)
                tagged = pa.record_batch([tags, *rows.columns], names=[TAG, *rows.schema.names])
                self.data.copy(tagged, "copy {staged} ({tag}, {columns}) from stdin (format csv)")
            else:
                self.data.copy(rows, "copy {table} ({columns}) from stdin (format csv)")
        self.rows += rows.num_rows

    def seal(self, transaction: str) -> bytes:
        return msgspec.msgpack.encode(_Token(self.staged, self.rows))

    def prepare(self, transaction: str) -> bool:
        from psycopg import sql

        with self.table.errors_named("prepare a transaction"):
            if self.staged:
                self.data.execute("commit")
            else:
                self.data.execute("insert into {commits} (transaction) values (%s)", transaction)
                self.data.connection.execute(sql.SQL("prepare transaction {}").format(sql.Literal(transaction)))
        self.transaction = None
        return True

    def commit(self, transaction: str, token: bytes) -> None:
        told = msgspec.msgpack.decode(token, type=_Token)
        with self.table.errors_named("commit a transaction"):
            done = self._move(transaction, told.rows) if told.staged else self._commit_prepared(transaction)
        if not done:
            raise DataLostError(
                f"{self.table.sink}: transaction {transaction} is neither prepared nor committed: somebody has rolled "
                f"it back, and its {told.rows} rows are lost"
            )

    def rollback(self, transaction: str) -> None:
        import psycopg
        from psycopg import sql

        with self.table.errors_named("roll a transaction back"):
            if transaction == self.transaction:
                self.transaction = None
                self.data.execute("rollback")
            if self._is_prepared(transaction):
                with suppress(psycopg.errors.UndefinedObject):  # another session was quicker
                    self.table.connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(transaction)))
            elif self.table.has_staged():
                self.table.execute("delete from {staged} where {tag} = %s", transaction)

    def list_open(self, prefix: str) -> Sequence[str]:
        with self.table.errors_named("list transactions"):
            found = self.table.execute(
                "select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, %s)",
                prefix,
            ).fetchall()
            if self.table.has_staged():
                found += self.table.execute(
                    "select distinct {tag} from {staged} where starts_with({tag}, %s)", prefix
                ).fetchall()
        return [transaction for (transaction,) in found]

    def list_committed(self, prefix: str) -> Sequence[str]:
        with self.table.errors_named("list commits"):
            found = self.table.execute("select transaction from {commits} where starts_with(transaction, %s)", prefix)
            return [transaction for (transaction,) in found.fetchall()]

    def latest_known(self, prefix: str) -> Sequence[str]:
        return self.list_committed(prefix)

    def forget(self, transactions: Sequence[str]) -> None:
        with self.table.errors_named("forget transactions"):
            self.table.execute("delete from {commits} where transaction = any(%s)", list(transactions))

    def close(self) -> None:
        self.data.close()
        self.table.close()

    def _end_older_executions(self) -> None:
        """End what older executions of this sink still have open; wait until the server has done it."""
        self.table.execute(
            "select pg_terminate_backend(pid, %s) from pg_stat_activity where starts_with(application_name, %s) "
            "and pid <> pg_backend_pid() and substr(application_name, %s)::bigint < %s",
            _TERMINATION_WAIT_MS,
            self._name,
            len(self._name) + 1,
            self._execution_id,
        ).fetchall()

    def _is_prepared(self, transaction: str) -> bool:
        found = self.table.execute(
            "select from pg_prepared_xacts where gid = %s and database = current_database()", transaction
        )
        return found.fetchone() is not None

    def _is_committed(self, transaction: str) -> bool:
        return self.table.execute("select from {commits} where transaction = %s", transaction).fetchone() is not None

    def _commit_prepared(self, transaction: str) -> bool:
        import psycopg
        from psycopg import sql

        if self._is_prepared(transaction):
            with suppress(psycopg.errors.UndefinedObject):  # another session was quicker
                self.table.connection.execute(sql.SQL("commit prepared {}").format(sql.Literal(transaction)))
                return True
        return self._is_committed(transaction)

    def _move(self, transaction: str, rows: int) -> bool:
        """Move staged rows into their table, once; False if they are not there."""
        with self.table.connection.transaction():
            marked = self.table.execute(
                "insert into {commits} (transaction) values (%s) on conflict do nothing returning 1", transaction
            )
            if marked.fetchone() is None:
                return True
            self.table.execute(
                "insert into {table} ({columns}) select {columns} from {staged} where {tag} = %s", transaction
            )
            moved = self.table.execute("delete from {staged} where {tag} = %s", transaction).rowcount
            if moved != rows:
                import psycopg

                raise psycopg.Rollback
        return bool(moved == rows)


def sweep_probes(table: PostgresTable, age_s: float) -> None:
    """Roll back probes that submissions of this role have left behind, and forget those that were committed.

    The server's clock says how old they are; what is younger than `age_s` seconds may be in use.
    """
    import psycopg
    from psycopg import sql

    with table.errors_named("sweep probes"):
        left = table.execute(
            "select gid from pg_prepared_xacts where database = current_database() and owner = current_user "
            "and gid ~ %s and prepared <= now() - make_interval(secs => %s)",
            _PROBES,
            age_s,
        ).fetchall()
        for (transaction,) in left:
            with suppress(psycopg.errors.UndefinedObject):  # another submission was quicker
                table.connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(transaction)))
        table.execute(
            "delete from {commits} where transaction ~ %s and committed <= now() - make_interval(secs => %s)",
            _PROBES,
            age_s,
        )


class PostgresAppender:
    """Rows of jobs that do not write in transactions: each batch is there when `write` returns."""

    def __init__(self, table: PostgresTable) -> None:
        self.table = table

    def write(self, batch: Batch) -> None:
        with self.table.errors_named("write"):
            self.table.copy(batch.to_arrow(), "copy {table} ({columns}) from stdin (format csv)")

    def flush(self) -> None:
        """Everything is there."""

    def finish(self) -> None:
        self.table.close()

    def abort(self) -> None:
        self.table.close()


class PostgresUpserter(PostgresAppender):
    """Rows that replace those of the same key, so that writing them again changes nothing.

    The last row of a key in a batch counts. Rows are locked in the order of their keys: two writers cannot wait for
    each other.
    """

    def __init__(self, table: PostgresTable, key: Sequence[str]) -> None:
        super().__init__(table)
        from psycopg import sql

        names = [sql.Identifier(name) for name in table.columns if name not in key]
        updates = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in names)
        self.parts = {
            "key": sql.SQL(", ").join(map(sql.Identifier, key)),
            "row": sql.Identifier(ROW),
            "action": sql.SQL("do update set {}").format(updates) if names else sql.SQL("do nothing"),
        }
        self.ready = False

    def write(self, batch: Batch) -> None:
        rows = batch.to_arrow()
        numbers = pa.array(range(rows.num_rows))
        numbered = pa.record_batch([numbers, *rows.columns], names=[ROW, *rows.schema.names])
        with self.table.errors_named("write"), self.table.connection.transaction():
            if not self.ready:
                self.table.execute(
                    "create temporary table jetfast_rows as select 0::bigint as {row}, {columns} from {table} limit 0",
                    **self.parts,
                )
                self.ready = True
            self.table.copy(numbered, "copy jetfast_rows ({row}, {columns}) from stdin (format csv)", **self.parts)
            self.table.execute(
                "insert into {table} ({columns}) select distinct on ({key}) {columns} from jetfast_rows "
                "order by {key}, {row} desc on conflict ({key}) {action}",
                **self.parts,
            )
            self.table.execute("truncate jetfast_rows")
