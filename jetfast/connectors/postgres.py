"""PostgreSQL: a table that grows as a source, a table as an exactly-once or idempotent sink."""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from typing import Any, Self

import pyarrow as pa

from jetfast.connectors.away import postgres_is_away
from jetfast.connectors.postgres_reader import PLACE, PostgresReader
from jetfast.connectors.postgres_types import TableColumn, check_columns, table_columns
from jetfast.connectors.postgres_writer import (
    PROBE,
    ROW,
    TAG,
    PostgresAppender,
    PostgresTable,
    PostgresTransactions,
    PostgresUpserter,
    sweep_probes,
)
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position
from jetfast.core.transaction import prepared_outlives_connection
from jetfast.errors import JetfastError, JobDefinitionError, JobFailedError, SystemUnavailable, TransportError
from jetfast.types import BATCH_ROWS_MAX, Duration, Secret, positive_duration_us

logger = logging.getLogger("jetfast")

PROBE_AGE_S = 3600.0
"""A probe that was prepared longer ago belongs to a submission that is over: none takes so long."""
_HOW_TO_PREPARE = (
    "as superuser say ALTER SYSTEM SET max_prepared_transactions = 100 (at least two for each writer), and restart the "
    "server"
)
_MISSING = "PostgreSQL needs psycopg: pip install 'jetfast[postgres]'"


def postgres(
    conninfo: str,
    table: str,
    *,
    key: str | None = None,
    start_after: object = None,
    bounded: bool = False,
    poll_interval: Duration = "50ms",
    batch_rows: int = 8192,
    upsert_by: str | Sequence[str] | None = None,
    transactions: str | None = None,
    lock_timeout: Duration | None = "5s",
) -> "Postgres":
    """A table of a PostgreSQL database (13 or later), to read from or to write to.

    Parameters
    ----------
    conninfo : as libpq takes it: "postgresql://user@host/database" or "host=... dbname=..."; "": what its environment
        (PGHOST, ...) says on each member. A password is better left to a password file or PGPASSWORD
    table : its name, with the schema if that is not on the search path, written as in SQL
    key : to read: the column by which the table grows. Rows are read once, in its order; it must be unique, not null,
        and given out in ascending order within the INSERT (serial, identity)
    start_after : to read: begin behind this key instead of with the first row
    bounded : to read: end behind the rows that are there at the start, instead of waiting for more
    poll_interval : to read: ask for new rows at most this often
    batch_rows : to read: rows of a batch at most
    upsert_by : to write: the column(s) of a unique index; a row replaces that of the same key (idempotent)
    transactions : to write exactly once, without `upsert_by`: "prepared" (PREPARE TRANSACTION), "staged" (rows go
        through a second table, for servers with max_prepared_transactions = 0), None: what the server allows
    lock_timeout : in a job that keeps EXACTLY_ONCE, a statement waits for a lock at most that long, then the job
        restarts from its last snapshot. That releases the locks of its open transactions, for which the holder of that
        lock may wait (ALTER TABLE, LOCK TABLE, VACUUM FULL, ...). None: without limit, or as the role's settings say

    numeric without digits, uuid, json and the like are read as text. NULL is null both ways. Written exactly once, the
    table's schema gets a table `jetfast_commits`, and for "staged" one more.

    Raises JobDefinitionError, when it is used, if the server cannot be reached or the table does not do.
    """
    if not isinstance(conninfo, str):
        raise TypeError(f"postgres: conninfo must be text, got {type(conninfo).__name__}")
    if not isinstance(table, str) or not table:
        raise TypeError(f"postgres: table must be text that is not empty, got {table!r}")
    if transactions not in (None, "prepared", "staged"):
        raise JobDefinitionError(f'postgres: transactions must be "prepared", "staged" or None, got {transactions!r}')
    if not 1 <= batch_rows <= BATCH_ROWS_MAX:
        raise JobDefinitionError(f"postgres: batch_rows must be in [1, {BATCH_ROWS_MAX}], got {batch_rows}")
    return Postgres(
        conninfo=Secret(conninfo),
        table=table,
        key=key,
        start_after=None if start_after is None else str(start_after),
        bounded=bounded,
        poll_interval_us=positive_duration_us(poll_interval, "poll_interval"),
        batch_rows=batch_rows,
        upsert_by=(upsert_by,) if isinstance(upsert_by, str) else tuple(upsert_by or ()),
        transactions=transactions,
        lock_timeout_us=None if lock_timeout is None else positive_duration_us(lock_timeout, "lock_timeout"),
    )


@dataclass(frozen=True)
class _Found:
    """What the server says of the table."""

    table: str
    """Its name, quoted where need be, with the schema."""
    namespace: str
    columns: list[TableColumn]


@dataclass(frozen=True)
class Postgres:
    """See `postgres`. Position: the last key that was read, and the last that shall be, as text."""

    conninfo: str
    table: str
    key: str | None
    start_after: str | None
    bounded: bool
    poll_interval_us: int
    batch_rows: int
    upsert_by: tuple[str, ...]
    transactions: str | None
    lock_timeout_us: int | None
    selected: tuple[str, ...] | None = None
    """Columns to be read; None: all."""
    cooperative: bool = field(default=False, init=False)
    parallelism_one: bool = field(default=False, init=False)
    source_delivery: Delivery = field(default=Delivery.REPLAYABLE, init=False)
    discovery_interval: None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return f"postgres({self.table})"

    @property
    def target(self) -> str | None:
        return None  # several sinks may append to one table

    @property
    def tells_latest(self) -> bool:
        return not self.upsert_by

    @property
    def sink_delivery(self) -> Delivery:
        return Delivery.IDEMPOTENT if self.upsert_by else Delivery.TRANSACTIONAL

    @cached_property
    def found(self) -> _Found:
        """The table, looked up once. Raises JobDefinitionError."""
        try:
            with self._asking() as connection:
                row = connection.execute(
                    "select format('%%I.%%I', n.nspname, c.relname), n.nspname from pg_class c "
                    "join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)",
                    (self.table,),
                ).fetchone()
                if row is None:
                    raise JobDefinitionError(f"{self.name}: there is no such table in {self._place()}")
                return _Found(row[0], row[1], table_columns(connection, row[0]))
        except TransportError as error:
            away = postgres_is_away(str(error))
            raise (SystemUnavailable if away else JobDefinitionError)(str(error)) from error

    def connect(self, label: str = "jetfast", lock_timeout_us: int | None = None) -> Any:
        """Open a connection in autocommit mode; `label` is shown by the server. TransportError if that fails."""
        try:
            import psycopg
        except ImportError as error:
            raise JobDefinitionError(_MISSING) from error
        options = "-c timezone=UTC -c datestyle=ISO -c intervalstyle=iso_8601 -c extra_float_digits=1"
        if lock_timeout_us is not None:
            options += f" -c lock_timeout={max(1, lock_timeout_us // 1000)}"
        try:
            return psycopg.connect(self.conninfo, autocommit=True, application_name=label, options=options)
        except psycopg.OperationalError as error:
            raise TransportError(f"{self.name}: {self._place()} cannot be reached: {error}") from error
        except psycopg.ProgrammingError:  # it shows what it could not read, which may be a password
            raise JobDefinitionError(
                f'{self.name}: conninfo cannot be read; write it like "postgresql://user@host/database" or '
                '"host=... dbname=..."'
            ) from None

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """Open a connection to ask the server something before the job runs. TransportError if it is lost."""
        import psycopg

        try:
            with self.connect() as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise TransportError(f"{self.name}: {self._place()} does not answer: {error}") from error
        except psycopg.Error as error:
            raise JobDefinitionError(f"{self.name}: {self._place()} cannot be asked: {error}") from error

    # As a source

    @cached_property
    def schema(self) -> pa.Schema:
        columns = self._read_columns()
        self._key_column()
        return pa.schema([pa.field(column.name, column.type) for column in columns])

    def partitions(self) -> Sequence[str]:
        return [self.table]

    def with_columns(self, names: Sequence[str]) -> Self:
        return replace(self, selected=tuple(self.schema.field(name).name for name in names))

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> PostgresReader:
        return PostgresReader(
            self._connect_as(context.guarantee is Guarantee.EXACTLY_ONCE),
            self.name,
            self.found.table,
            self._read_columns(),
            self._key_column(),
            bounded=self.bounded,
            batch_rows=self.batch_rows,
            poll_interval_us=self.poll_interval_us,
            position=position,
            start_after=self.start_after,
            now_us=context.now_us,
        )

    def _read_columns(self) -> list[TableColumn]:
        present = {column.name: column for column in self.found.columns}
        columns = [present[name] for name in self.selected or present]
        if PLACE in present and PLACE in (self.selected or present):
            raise JobDefinitionError(f"{self.name}: jetfast itself needs the column name {PLACE!r}; rename yours")
        unreadable = [f"{column.name} ({column.type_name})" for column in columns if column.type is None]
        if unreadable and self.selected is None:
            raise JobDefinitionError(
                f"{self.name}: columns that cannot be read: {', '.join(unreadable)}; read a view that casts them"
            )
        return columns

    def _key_column(self) -> TableColumn:
        if self.key is None:
            raise JobDefinitionError(
                f'{self.name}: to read a table say by which column it grows: postgres(..., key="id")'
            )
        columns = {column.name: column for column in self.found.columns}
        column = columns.get(self.key)
        if column is None:
            raise JobDefinitionError(f"{self.name}: there is no column {self.key!r}; there are {', '.join(columns)}")
        if not column.ordered:
            raise JobDefinitionError(
                f"{self.name}: rows cannot be read in the order of {self.key} ({column.type_name})"
            )
        self._check_key(column)
        return column

    def _check_key(self, column: TableColumn) -> None:
        """Rows of equal keys, null keys, and keys that sessions take ahead would be lost."""
        with self._asking() as connection:
            (kind,) = connection.execute(
                "select relkind from pg_class where oid = %s::regclass", (self.found.table,)
            ).fetchone()
            if kind not in ("r", "p"):
                return  # a view promises what it does
            if column.nullable:
                raise JobDefinitionError(f"{self.name}: key {column.name} may be null; such rows would never be read")
            if not self._is_unique(connection, [column.name]):
                raise JobDefinitionError(
                    f"{self.name}: key {column.name} is not unique: of rows with equal keys some could be lost; "
                    "make it a primary key or create a unique index on it"
                )
            cache = connection.execute(
                "select seqcache from pg_sequence where seqrelid = pg_get_serial_sequence(%s, %s)::regclass",
                (self.found.table, column.name),
            ).fetchone()
            if cache is not None and cache[0] > 1:
                raise JobDefinitionError(
                    f"{self.name}: the sequence of {column.name} gives each session {cache[0]} keys ahead, so keys do "
                    "not grow with time; say ALTER SEQUENCE ... CACHE 1"
                )

    # As a sink

    def check(self, schema: pa.Schema) -> None:
        check_columns(schema, self.found.columns, self.name)
        reserved = ROW if self.upsert_by else TAG
        if reserved in schema.names:
            raise JobDefinitionError(f"{self.name}: jetfast itself needs the column name {reserved!r}; rename yours")
        if not self.upsert_by:
            return
        missing = [name for name in self.upsert_by if name not in schema.names]
        if missing:
            raise JobDefinitionError(f"{self.name}: upsert_by names {missing[0]!r}, which the rows do not have")
        with self._asking() as connection:
            if not self._is_unique(connection, self.upsert_by):
                raise JobDefinitionError(
                    f"{self.name}: there is no unique index on ({', '.join(self.upsert_by)}); create one, so that "
                    "a row can replace that of its key"
                )

    def check_target(self) -> None:
        if self.upsert_by:
            return
        with self._asking() as connection:
            allowed = int(connection.execute("show max_prepared_transactions").fetchone()[0])
        if allowed:
            if self.transactions != "staged":
                self._check_prepare()
        elif self.transactions == "prepared":
            raise JobDefinitionError(
                f"{self.name}: the server allows no prepared transactions; {_HOW_TO_PREPARE}, or leave out "
                'transactions="prepared": rows are then written through a second table'
            )
        elif self.transactions is None:
            logger.warning(
                "%s: max_prepared_transactions is 0, so rows written exactly once go through a second table, which "
                "costs a second copy of them; to prepare them instead, %s",
                self.name,
                _HOW_TO_PREPARE,
            )

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> PostgresAppender:
        table = self._table(schema, context.guarantee is Guarantee.EXACTLY_ONCE)
        return PostgresUpserter(table, self.upsert_by) if self.upsert_by else PostgresAppender(table)

    def open_transactions(self, schema: pa.Schema, context: ProcessorContext) -> PostgresTransactions:
        table = self._table(schema, exactly_once=True)
        staged = self.transactions == "staged"
        if self.transactions is None:
            staged = table.execute("show max_prepared_transactions").fetchone()[0] == "0"
        return PostgresTransactions(table, staged, context)

    def staged_if_unique(self) -> Self:
        """The same sink; staged, unless the user said otherwise, if the table has a unique index.

        For writers that try again before anybody has rolled back what an earlier attempt has prepared: its keys would
        make them wait.
        """
        if self.transactions is not None:
            return self
        with self._asking() as connection:
            unique = connection.execute(
                "select from pg_index where indrelid = %s::regclass and (indisunique or indisexclusion) limit 1",
                (self.found.table,),
            ).fetchone()
        return self if unique is None else replace(self, transactions="staged")

    def _table(self, schema: pa.Schema, exactly_once: bool) -> PostgresTable:
        connect = self._connect_as(exactly_once)
        return PostgresTable(connect, self.name, self.found.table, self.found.namespace, schema.names)

    def _connect_as(self, exactly_once: bool) -> Callable[..., Any]:
        """What opens connections of a job; only where a restart repeats nothing it gives up waiting for a lock."""
        return partial(self.connect, lock_timeout_us=self.lock_timeout_us) if exactly_once else self.connect

    def _check_prepare(self) -> None:
        """What one connection has prepared, another must be able to commit. TransportError if a connection is lost."""
        number = uuid.uuid4().hex
        attempts = count(1)
        table = PostgresTable(
            self._connect_as(exactly_once=True), self.name, self.found.table, self.found.namespace, []
        )

        def connect() -> PostgresTransactions:
            # Each attempt ends what the one before has still open on the server, as an execution does.
            context = ProcessorContext(vertex="probe", job=f"probe {number}", execution_id=next(attempts))
            return PostgresTransactions(table.twin(), False, context)

        try:
            works = prepared_outlives_connection(connect, f"{PROBE}{number}")
        except JobFailedError as error:
            raise JobDefinitionError(f"{error}; grant that, or write to a schema of your own") from error
        if not works:
            raise JobDefinitionError(
                f"{self.name}: what one connection has prepared cannot be committed by another; some poolers and "
                'managed servers do not allow it. Say transactions="staged"'
            )
        try:
            sweep_probes(table, PROBE_AGE_S)
        except JetfastError as error:  # the next submission tries again
            logger.warning("%s: stale probes of earlier submissions are left: %s", self.name, error)
        finally:
            table.close()

    def _is_unique(self, connection: Any, names: Sequence[str]) -> bool:
        """Is there a unique index, valid and whole, on exactly these columns?"""
        found = connection.execute(
            "select array(select a.attname::text from unnest(i.indkey) k join pg_attribute a "
            "on a.attrelid = i.indrelid and a.attnum = k) from pg_index i where i.indrelid = %s::regclass "
            "and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null",
            (self.found.table,),
        ).fetchall()
        return any(set(columns) == set(names) for (columns,) in found)

    def _place(self) -> str:
        """Where the table is, without a password."""
        from psycopg.conninfo import conninfo_to_dict

        try:
            told = conninfo_to_dict(self.conninfo)
        except Exception:  # it cannot be read: the error of connecting tells why
            return "the server"
        return f"database {told.get('dbname', '')!r} on {told.get('host', 'this host')}"
