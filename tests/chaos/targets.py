"""Where hunted jobs write, and what is found there afterwards."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import jetfast as jf
from tests.chaos.hunted_pipeline import KEYS, WINDOW_US
from tests.chaos.hunted_query import count_rows
from tests.connectors.cutting_proxy import CuttingProxy
from tests.connectors.postgres_server import PostgresServer

SinkKind = Literal["files", "postgres"]


class Found(NamedTuple):
    """What a job has left, against what it should have."""

    rows: int
    lost: int
    duplicated: int
    wrong: int
    """Rows that the source does not have, or with another key or window than theirs."""
    left: int
    """Files or transactions that are neither visible nor removed."""


class Target(msgspec.Struct, frozen=True):
    """Where one job writes."""

    kind: SinkKind
    job: str
    folder: str
    """Of the job; files go to its `out`."""
    conninfo: str = ""
    """For the sink: perhaps through a proxy."""
    direct: str = ""
    """For whom reads what was written."""
    schema: str = ""
    """Of the job, in the database."""
    transactions: Literal["prepared", "staged"] = "prepared"

    @property
    def table(self) -> str:
        return f"{self.schema}.out"

    def make(self) -> None:
        """Make the table, empty."""
        if self.kind == "postgres":
            with _connected(self.direct) as connection:
                connection.execute(f"drop schema if exists {self.schema} cascade; create schema {self.schema}")
                connection.execute(f"create table {self.table} (row bigint, key bigint, window_start timestamp)")

    def sink(self) -> Any:
        """Return what a pipeline writes to."""
        if self.kind == "postgres":
            return jf.postgres(self.conninfo, self.table, transactions=self.transactions)
        return jf.files(str(Path(self.folder, "out")), format="parquet")

    def compare(self, rows: int) -> Found:
        """Compare what is there with `rows` numbered rows."""
        table, left = self._read()
        numbers, keys, starts = (table[name].to_numpy().astype(np.int64) for name in ("row", "key", "window_start"))
        known = (numbers >= 0) & (numbers < rows)
        wrong = ~known | (keys != numbers % KEYS) | (starts != numbers // WINDOW_US * WINDOW_US)
        times: npt.NDArray[np.int64] = np.bincount(numbers[known], minlength=rows)
        return Found(rows, int((times == 0).sum()), int(np.maximum(times - 1, 0).sum()), int(wrong.sum()), left)

    def compare_with(self, answer: pa.Table) -> Found:
        """Compare what is there with a table."""
        table, left = self._read()
        wanted, found = (count_rows(rows, answer.column_names) for rows in (answer, table))
        surplus = found - wanted
        duplicated = sum(times for row, times in surplus.items() if row in wanted)
        return Found(answer.num_rows, (wanted - found).total(), duplicated, surplus.total() - duplicated, left)

    def _read(self) -> tuple[pa.Table, int]:
        return self._read_table() if self.kind == "postgres" else self._read_files()

    def _read_files(self) -> tuple[pa.Table, int]:
        paths = sorted(Path(self.folder, "out").iterdir())
        visible = [path for path in paths if not path.name.startswith(".")]
        for path in visible:
            pq.read_metadata(path)  # each of them is whole
        return ds.dataset(visible, format="parquet").to_table(), len(paths) - len(visible)

    def _read_table(self) -> tuple[pa.Table, int]:
        with _connected(self.direct) as connection:
            found = connection.execute(
                f"select row, key, (extract(epoch from window_start) * 1000000)::bigint from {self.table}"
            ).fetchall()
            (left,) = connection.execute(
                "select count(*) from pg_prepared_xacts where starts_with(gid, %s)", (f"jetfast.{self.job}.",)
            ).fetchone()
            staging = connection.execute(
                "select tablename from pg_tables where schemaname = %s and starts_with(tablename, 'jetfast_staged')",
                (self.schema,),
            ).fetchall()
            for (table,) in staging:
                left += connection.execute(f"select count(*) from {self.schema}.{table}").fetchone()[0]
        rows, keys, starts = zip(*found, strict=True)
        return pa.table({"row": rows, "key": keys, "window_start": starts}), left


def _connected(conninfo: str) -> Any:
    import psycopg

    return psycopg.connect(conninfo, autocommit=True)


class Database:
    """A server of PostgreSQL and a proxy before it, which jobs use; both fail on demand, for one caller at a time."""

    def __init__(self, server: PostgresServer, proxy: CuttingProxy) -> None:
        self.server = server
        self.proxy = proxy
        self._failing = threading.Lock()

    @property
    def conninfo(self) -> str:
        """Through the proxy."""
        return self.server.conninfo.replace(f"port={self.server.port}", f"port={self.proxy.port}")

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """The server is killed, and starts again at the end."""
        with self._failing:
            self.server.stop("immediate")
            try:
                yield
            finally:
                self.server.start()

    @contextlib.contextmanager
    def cut_after(self, bytes_max: int) -> Iterator[None]:
        """Connections are cut after so many bytes, until the end."""
        with self._failing:
            self.proxy.cut_after_bytes(bytes_max)
            try:
                yield
            finally:
                self.proxy.pass_all()


class Targets:
    """Gives each job a place of its own; for PostgreSQL tables of one server."""

    def __init__(self, kind: SinkKind, database: Database | None) -> None:
        self.kind = kind
        self.database = database

    def target(self, number: int, folder: Path) -> Target:
        """Return the place for the rows of a job (`number` in its campaign), made."""
        transactions: Literal["prepared", "staged"] = "staged" if number % 3 == 2 else "prepared"
        conninfo, direct = (
            ("", "") if self.database is None else (self.database.conninfo, self.database.server.conninfo)
        )
        target = Target(self.kind, f"hunted-{number}", str(folder), conninfo, direct, f"hunted_{number}", transactions)
        target.make()
        return target


@contextlib.contextmanager
def targets(kind: SinkKind, server: PostgresServer | None = None) -> Iterator[Targets]:
    """Targets of a kind; with a server of their own unless one is given."""
    with contextlib.ExitStack() as stack:
        database = None
        if kind == "postgres":
            running = server if server is not None else stack.enter_context(PostgresServer())
            database = Database(running, stack.enter_context(CuttingProxy(running.port)))
        yield Targets(kind, database)
