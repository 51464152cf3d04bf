"""Reads a PostgreSQL table that grows, in the order of a key, and never past a row that may still appear.

A key is handed out before its row becomes visible: who reads up to the greatest key that can be seen may pass rows of
transactions that are still open. So a bound is found first, in two looks:

    K = the greatest key that is visible
    L = the transactions that hold a lock on the table as its writers do

Whoever got a key up to K and is not visible has had that lock when L was taken: a statement locks its table before it
computes the key's default. When all of L have ended, whatever their end, every row up to K that will ever be is there.
That is stricter than to leave out rows above `pg_snapshot_xmin`: a writer has its key before it has a transaction id.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from jetfast.connectors.postgres_locks import READ_LOCK, explain_lock_wait
from jetfast.connectors.postgres_types import TableColumn, read_rows, select_expression
from jetfast.core.batch import Batch
from jetfast.core.source import Position, Rows
from jetfast.errors import JetfastError, JobFailedError, RestartableError, TransportError

PLACE = "jetfast key"
_WRITER_LOCKS = ["RowExclusiveLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"]


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a reader stands: the last key that was read, and the last that shall be (of a bounded source), as text."""

    key: str | None
    end: str | None


class PostgresReader:
    """The reader of one table.

    Parameters
    ----------
    connect : opens a connection in autocommit mode
    columns : to be read, in this order
    key : the column that grows
    bounded : end behind the rows that are there at first, instead of waiting for more
    poll_interval_us : the database is asked for new rows at most that often
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        name: str,
        table: str,
        columns: Sequence[TableColumn],
        key: TableColumn,
        *,
        bounded: bool,
        batch_rows: int,
        poll_interval_us: int,
        position: Position | None,
        start_after: str | None,
        now_us: Callable[[], int],
    ) -> None:
        self.connect = connect
        self.name = name
        self.table = table
        self.columns = columns
        self.key = key
        self.bounded = bounded
        self.batch_rows = batch_rows
        self.poll_interval_us = poll_interval_us
        self.now_us = now_us
        self.schema = pa.schema([pa.field(column.name, column.type) for column in columns])
        self.place = _Place(start_after, None) if position is None else msgspec.msgpack.decode(position, type=_Place)
        self.bound = self.place.end
        """Up to this key every row is there; None, or the place itself: a new one must be found."""
        self.candidate: tuple[str, set[str]] | None = None
        """A key, and the writers that must have ended before it is a bound."""
        self.connection: Any = None
        self.last_asked_us: int | None = None

    def read(self) -> Rows | None:
        import psycopg

        try:
            return self._read()
        except psycopg.errors.LockNotAvailable as error:
            raise RestartableError(f"{self.name}: {error}: it waited for {self._lock()}") from error
        except psycopg.OperationalError as error:
            raise TransportError(f"{self.name}: {error}") from error
        except psycopg.Error as error:
            raise JobFailedError(f"{self.name}: rows behind key {self.place.key} cannot be read: {error}") from error
        except pa.ArrowInvalid as error:
            raise JobFailedError(
                f"{self.name}: rows behind key {self.place.key} do not fit their columns: {error}; "
                "dates before 0001 or at infinity have no place in Arrow: leave them out by a view"
            ) from error

    def _lock(self) -> str:
        """What a read has waited for."""
        import psycopg

        try:
            with self.connect() as connection:
                return explain_lock_wait(connection, [self.table], READ_LOCK)
        except (psycopg.Error, JetfastError) as error:
            return f"{READ_LOCK} on {self.table}; who was in the way cannot be asked: {error}"

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _read(self) -> Rows | None:
        if self.connection is None:
            self.connection = self.connect()
        if self.bound is None or self.bound == self.place.key:
            if self.bounded and self.place.end is not None:
                return None
            now_us = self.now_us()
            if self.last_asked_us is not None and 0 <= now_us - self.last_asked_us < self.poll_interval_us:
                return self._nothing()
            self.last_asked_us = now_us
            if not self._find_bound():
                return None if self.bounded and self.candidate is None else self._nothing()
        return self._fetch()

    def _nothing(self) -> Rows:
        return Rows(Batch.from_arrow(pa.RecordBatch.from_pylist([], schema=self.schema)), self._position())

    def _position(self) -> Position:
        return msgspec.msgpack.encode(self.place)

    def _find_bound(self) -> bool:
        """Look for a key up to which every row is there."""
        if self.candidate is None:
            ((greatest,),) = self._query("select max({key})::text from {table} where {after}")
            if greatest is None:
                return False
            self.candidate = (greatest, self._writers())
        greatest, writers = self.candidate
        writers &= self._writers()
        if writers:
            return False
        self.candidate = None
        self.bound = greatest
        if self.bounded:
            self.place = _Place(self.place.key, greatest)
        return True

    def _writers(self) -> set[str]:
        """Transactions that have written to the table, or may be about to, prepared ones included."""
        found = self.connection.execute(
            "select virtualtransaction from pg_locks where locktype = 'relation' and granted and mode = any(%s) "
            "and database = (select oid from pg_database where datname = current_database()) "
            "and relation in (select relid from pg_partition_tree(%s::regclass) union select %s::regclass)",
            (_WRITER_LOCKS, self.table, self.table),
        )
        return {transaction for (transaction,) in found}

    def _fetch(self) -> Rows:
        """Read rows up to the bound."""
        from psycopg import sql

        expressions = [
            sql.SQL(select_expression(column)).format(sql.Identifier(column.name)) for column in self.columns
        ]
        # The key as text comes last: it says where the reader stands.
        query = self._compose(
            "copy (select {columns}, {key}::text as {place} from {table} where {after} and {key} <= {bound} "
            "order by {key} limit {limit}) to stdout (format csv, force_quote *)",
            place=sql.Identifier(PLACE),
            columns=sql.SQL(", ").join(expressions),
            bound=sql.Literal(self.bound),
            limit=sql.Literal(self.batch_rows),
        )
        with self.connection.cursor() as cursor, cursor.copy(query) as copy:
            data = b"".join(bytes(piece) for piece in copy)
        rows = read_rows(data, self.schema.append(pa.field(PLACE, pa.string())))
        last = self.bound if rows.num_rows < self.batch_rows else rows.column(len(self.columns))[-1].as_py()
        self.place = _Place(last, self.place.end)
        return Rows(Batch.from_arrow(rows.select(self.schema.names)), self._position())

    def _query(self, text: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(self._compose(text)).fetchall()
        return found

    def _compose(self, text: str, **parts: Any) -> Any:
        from psycopg import sql

        key = sql.Identifier(self.key.name)
        after: Any = sql.SQL("true")
        if self.place.key is not None:
            after = sql.SQL("{} > {}").format(key, sql.Literal(self.place.key))
        return sql.SQL(text).format(key=key, table=sql.SQL(self.table), after=after, **parts)
