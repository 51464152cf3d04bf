"""Which batch of a streaming query was decided last, and what is in it: kept in the target itself.

Spark runs a batch again until it has noted that it was committed; perhaps with its rows in other partitions, perhaps
from a second driver while the first still lives. So what counts is the list of writes that was recorded first: whoever
finds a record of the batch completes that one.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from jetfast.connectors.postgres_writer import PostgresTable
from jetfast.engine.blob_snapshot_store import Blobs

FOLDER = "_jetfast"
"""Of records in a directory of files; those who read it pass over names that begin so."""
BATCHES = "jetfast_batches"
"""The table of records in a database."""


class BatchWrite(msgspec.Struct, frozen=True, array_like=True):
    """One prepared write: its transaction, and the token that committing it takes."""

    transaction: str
    token: bytes


class BatchRecord(msgspec.Struct, frozen=True):
    """The decision on a batch: these writes are its rows."""

    batch: int
    writes: list[BatchWrite]


class BatchRecords(Protocol):
    """The records of one query. Errors of all methods: RestartableError if the target cannot be reached."""

    def held(self) -> AbstractContextManager[None]:
        """While this is held, no other process decides on a batch of this query or gives one up."""

    def last(self) -> BatchRecord | None:
        """Return the record of the latest batch that was decided, if there is one."""

    def add(self, record: BatchRecord) -> BatchRecord:
        """Record a batch that is later than the last, durably at the end of `held`; return what counts then.

        That is another record if somebody else was quicker.
        """

    def close(self) -> None:
        """Release connections."""


class BlobBatchRecords:
    """Records as named bytes: FOLDER/QUERY/BATCH, each created once; the greatest batch counts.

    Records of older batches are deleted, so somebody who is late may find the number of an old batch free. Whoever has
    created one looks whether there is a greater one, and has lost if so.
    """

    def __init__(self, blobs: Blobs, query: str) -> None:
        self.blobs = blobs
        self.folder = f"{FOLDER}/{query}"

    def held(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()  # to create a record is exclusive by itself

    def last(self) -> BatchRecord | None:
        while names := self.blobs.list(self.folder):
            found = self.blobs.get(names[-1])
            if found is not None:  # else it was deleted meanwhile: there is a later one
                return msgspec.msgpack.decode(found, type=BatchRecord)
        return None

    def add(self, record: BatchRecord) -> BatchRecord:
        self.blobs.create(self.name_of(record.batch), msgspec.msgpack.encode(record))  # the decision
        last = self.last()
        assert last is not None
        self.blobs.delete([name for name in self.blobs.list(self.folder) if name < self.name_of(last.batch)])
        return last

    def name_of(self, batch: int) -> str:
        """Names are in the order of the batches."""
        return f"{self.folder}/{batch:020d}"

    def close(self) -> None:
        """There is nothing to release."""


class PostgresBatchRecords:
    """Records as rows of a table in the schema of the target, one for each query."""

    def __init__(self, table: PostgresTable, query: str) -> None:
        from psycopg import sql

        self.table = table
        self.query = query
        self.parts = {"batches": sql.Identifier(table.namespace, BATCHES)}
        with table.errors_named("make the table of batches"), table.connection.transaction():
            table.lock("batches")
            table.execute(
                "create table if not exists {batches} (query text primary key, batch bigint not null, "
                "record bytea not null, decided timestamptz not null default now())",
                **self.parts,
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self.table.errors_named("decide on a batch"), self.table.connection.transaction():
            self.table.lock(self.query)
            yield

    def last(self) -> BatchRecord | None:
        with self.table.errors_named("read the last batch"):
            row = self.table.execute(
                "select record from {batches} where query = %s", self.query, **self.parts
            ).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0], type=BatchRecord)

    def add(self, record: BatchRecord) -> BatchRecord:
        self.table.execute(
            "insert into {batches} (query, batch, record) values (%s, %s, %s) on conflict (query) "
            "do update set batch = excluded.batch, record = excluded.record, decided = excluded.decided",
            self.query,
            record.batch,
            msgspec.msgpack.encode(record),
            **self.parts,
        )
        return record

    def close(self) -> None:
        self.table.close()


def transactions_of(writes: Sequence[BatchWrite]) -> set[str]:
    """The ids of writes."""
    return {write.transaction for write in writes}
