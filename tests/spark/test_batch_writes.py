"""Each row of each batch of a streaming query is visible once, whatever fails or dies between any two steps."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast.core import crash_points
from jetfast.core.batch import Batch
from jetfast.core.transaction import TransactionalWriter
from jetfast.engine.directory_blobs import DirectoryBlobs
from jetfast.errors import JetfastError, TransportError
from jetfast.spark.batch_records import BlobBatchRecords, PostgresBatchRecords
from jetfast.spark.batch_writes import BatchOfQuery, Target, abort_batch, commit_batch, prepare_write
from jetfast.spark.sink_folders import sink_folder
from jetfast.testing.outside_system import Faults
from jetfast.testing.transactional_memory import TransactionalMemory
from tests.connectors.postgres_server import PostgresServer
from tests.connectors.s3_server import CREDENTIALS, S3Server

QUERY = "0123456789abcdef0123456789abcdef"
ROWS = pa.schema([("id", pa.int64())])
BATCHES = 5
ROWS_OF_BATCH = 6

Open = Callable[[BatchOfQuery], Target]


class _Crash(Exception):
    """The process dies here."""


class _Mortal(TransactionalWriter):
    """A writer of a process that may die: then nothing is tidied up any more, its connection just ends."""

    def __init__(self, writer: TransactionalWriter, disconnect: Callable[[], None]) -> None:
        self.writer = writer
        self.disconnect = disconnect
        self.dead = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("writer", "disconnect", "dead", "die", "close", "__class__"):
            return object.__getattribute__(self, name)
        if self.dead:
            raise TransportError("dead")
        return getattr(self.writer, name)

    def die(self) -> None:
        self.dead = True

    def close(self) -> None:
        (self.disconnect if self.dead else self.writer.close)()


class Course:
    """One course of a query, which a seed chooses: drivers, tasks and attempts that die, fail, or come late."""

    def __init__(self, seed: int, open_target: Open, visible: Callable[[], list[int]]) -> None:
        self.random = Random(seed)
        self.open_target = open_target
        self.visible = visible
        self.crash_rate = 0.08
        self.noted = -1
        """The last batch that Spark has noted as committed."""
        self.late: list[Callable[[], object]] = []
        """Attempts of tasks that go on although nobody waits for them."""
        self.mortals: list[_Mortal] = []

    def reach(self, _: str) -> None:
        if self.random.random() < self.crash_rate:
            for mortal in self.mortals:
                mortal.die()
            raise _Crash

    def open(self, batch: BatchOfQuery) -> Target:
        target = self.open_target(batch)
        mortal = _Mortal(target.writer, getattr(target.writer, "drop", target.writer.close))
        self.mortals.append(mortal)
        return Target(mortal, target.records)

    def rows(self, numbers: Sequence[int]) -> Iterator[Batch]:
        for number in numbers:
            if self.random.random() < self.crash_rate / 4:
                raise ValueError("a row that cannot be computed")
            yield Batch.from_arrow(pa.record_batch([[number]], schema=ROWS))

    def run(self) -> None:
        for life in range(60):
            if life == 40:
                self.crash_rate = 0.0
            try:
                self.drive()
                return
            except (_Crash, JetfastError, ValueError):
                continue  # the next driver goes on from what Spark has noted
        raise AssertionError("it does not come to an end")

    def drive(self) -> None:
        """One driver's life."""
        while self.noted < BATCHES - 1:
            batch = BatchOfQuery(QUERY, self.noted + 1)
            first = batch.batch * ROWS_OF_BATCH
            numbers = list(range(first, first + ROWS_OF_BATCH))
            self.random.shuffle(numbers)
            cut = self.random.randrange(ROWS_OF_BATCH + 1)
            writes = [self.task(batch, index, part) for index, part in enumerate((numbers[:cut], numbers[cut:]))]
            told = [write for write in writes if write is not None]
            self.mortals = []
            target = self.open(batch)
            try:
                commit_batch(batch, told, target)
            except Exception:
                if self.random.random() < 0.5 and self.mortals and not self.mortals[0].dead:
                    abort_batch(batch, told, target)
                raise
            finally:
                target.close()
            self.run_late(0.5)
            assert sorted(self.visible()) == list(range(first + ROWS_OF_BATCH))
            self.reach("noted")
            self.noted = batch.batch

    def task(self, batch: BatchOfQuery, index: int, numbers: list[int]) -> Any:
        """Attempts of a task until one succeeds, and perhaps one more that nobody asks for."""
        for attempt in range(4):
            if self.random.random() < 0.2:
                self.late.append(lambda: self.attempt(batch, index, numbers))
            try:
                return self.attempt(batch, index, numbers)
            except (_Crash, JetfastError, ValueError):
                if attempt == 3:
                    raise
        return None

    def attempt(self, batch: BatchOfQuery, index: int, numbers: list[int]) -> Any:
        self.mortals = []
        return prepare_write(batch, index, self.rows(numbers), lambda _: self.open(batch))

    def run_late(self, rate: float) -> None:
        for run in [run for run in self.late if self.random.random() < rate]:
            self.late.remove(run)
            try:
                run()
            except (_Crash, JetfastError, ValueError):
                continue


def run_course(seed: int, open_target: Open, visible: Callable[[], list[int]]) -> None:
    course = Course(seed, open_target, visible)
    crash_points.set_crash_hook(course.reach)
    try:
        course.run()
        course.crash_rate = 0.0
        course.run_late(1.0)  # whatever still comes changes nothing, and goes
        every = list(range(BATCHES * ROWS_OF_BATCH))
        assert sorted(visible()) == every
        left = settle(BatchOfQuery(QUERY, BATCHES), open_target)
        assert left == []
        assert sorted(visible()) == every
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    finally:
        crash_points.set_crash_hook(None)


def settle(batch: BatchOfQuery, open_target: Open) -> list[str]:
    """Commit a batch without rows, however often the system refuses; return the transactions that are left."""
    for _ in range(100):
        target = open_target(batch)
        try:
            commit_batch(batch, [], target)
            return list(target.writer.list_open("jetfast."))
        except JetfastError:
            continue
        finally:
            target.close()
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize(
    "faults", [{}, {"prepare": 0.1, "commit": 0.1, "rollback": 0.1, "list": 0.05}], ids=["", "faults"]
)
def test_a_row_is_visible_once_in_a_system_with_transactions(faults: dict[str, float], tmp_path: Path) -> None:
    for seed in range(12):
        system = TransactionalMemory.named(faults=Faults(Random(seed), faults))
        blobs = DirectoryBlobs(tmp_path / str(seed))

        def open_target(batch: BatchOfQuery, system: Any = system, blobs: Any = blobs) -> Target:
            writer = system.sink().open_transactions(ROWS, batch.context)
            return Target(writer, BlobBatchRecords(blobs, batch.query))

        run_course(seed, open_target, lambda system=system: [row["id"] for row in system.rows()])


def test_a_row_is_visible_once_in_files(tmp_path: Path) -> None:
    for seed in range(4):
        directory = tmp_path / str(seed)
        sink = jf.files(str(directory), format="parquet")

        def open_target(batch: BatchOfQuery, sink: Any = sink, directory: Path = directory) -> Target:
            writer = sink.open_transactions(ROWS, batch.context)
            writer.drop = lambda: None  # what a process that dies has written stays
            return Target(writer, BlobBatchRecords(DirectoryBlobs(directory), batch.query))

        def visible(directory: Path = directory) -> list[int]:
            parts = sorted(directory.glob("part-*"))
            return [number for part in parts for number in pq.read_table(part)["id"].to_pylist()]

        run_course(seed, open_target, visible)
        assert not [path.name for path in directory.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.services
@pytest.mark.timeout(900)
def test_a_row_is_visible_once_in_a_bucket() -> None:
    with S3Server() as server:
        options = {"endpoint": server.endpoint, **CREDENTIALS}
        folder = pickle.loads(pickle.dumps(sink_folder("s3://bucket/out", options)))
        sink = jf.files(folder.path, format="parquet", filesystem=folder.filesystem)

        def open_target(batch: BatchOfQuery) -> Target:
            writer = sink.open_transactions(ROWS, batch.context)
            writer.drop = lambda: None  # what a process that dies has written stays
            return Target(writer, BlobBatchRecords(folder.blobs, batch.query))

        def parts() -> list[str]:
            return [name for name in server.names("out") if not name.startswith("_jetfast/")]

        def visible() -> list[int]:
            seen = [f"{folder.path}/{part}" for part in parts() if part.startswith("part-")]
            tables = [pq.read_table(path, filesystem=folder.filesystem) for path in seen]
            return [number for table in tables for number in table["id"].to_pylist()]

        run_course(1, open_target, visible)
        assert all(name.startswith("part-") for name in parts())


@pytest.mark.services
@pytest.mark.parametrize("unique", [False, True], ids=["prepared", "staged"])
def test_a_row_is_visible_once_in_postgres(postgres_server: PostgresServer, unique: bool) -> None:
    for seed in range(3):
        postgres_server.clear()
        with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
            connection.execute(f"create table rows (id bigint {'primary key' if unique else ''})")
            sink = jf.postgres(postgres_server.conninfo, "rows").staged_if_unique()
            assert sink.transactions == ("staged" if unique else None)

            def open_target(batch: BatchOfQuery, sink: Any = sink) -> Target:
                writer = pickle.loads(pickle.dumps(sink)).open_transactions(ROWS, batch.context)
                return Target(writer, PostgresBatchRecords(writer.table.twin(), batch.query))

            def visible(connection: Any = connection) -> list[int]:
                return [number for (number,) in connection.execute("select id from rows")]

            run_course(seed, open_target, visible)
            assert connection.execute("select count(*) from pg_prepared_xacts").fetchone() == (0,)


def test_an_attempt_that_comes_after_the_decision_leaves_nothing(tmp_path: Path) -> None:
    system = TransactionalMemory.named()
    batch = BatchOfQuery(QUERY, 0)

    def open_target() -> Target:
        writer = system.sink().open_transactions(ROWS, batch.context)
        return Target(writer, BlobBatchRecords(DirectoryBlobs(tmp_path), batch.query))

    def rows() -> Iterator[Batch]:
        yield Batch.from_arrow(pa.record_batch([[1]], schema=ROWS))

    write = prepare_write(batch, 0, rows(), lambda _: open_target())
    assert write is not None
    commit_batch(batch, [write], open_target())
    prepare_write(batch, 0, rows(), lambda _: open_target())
    assert system.in_doubt() == []
    assert system.rows() == [{"id": 1}]


def test_writes_that_were_rolled_back_are_not_decided(tmp_path: Path) -> None:
    system = TransactionalMemory.named()
    batch = BatchOfQuery(QUERY, 0)

    def open_target() -> Target:
        writer = system.sink().open_transactions(ROWS, batch.context)
        return Target(writer, BlobBatchRecords(DirectoryBlobs(tmp_path), batch.query))

    rows = [Batch.from_arrow(pa.record_batch([[1]], schema=ROWS))]
    write = prepare_write(batch, 0, rows, lambda _: open_target())
    assert write is not None
    abort_batch(batch, [write], open_target())
    with pytest.raises(TransportError, match="was rolled back; the batch must be run again"):
        commit_batch(batch, [write], open_target())
    assert open_target().records.last() is None
    assert system.rows() == []


def test_what_is_decided_outlives_abort(tmp_path: Path) -> None:
    system = TransactionalMemory.named()
    batch = BatchOfQuery(QUERY, 0)

    def open_target() -> Target:
        writer = system.sink().open_transactions(ROWS, batch.context)
        return Target(writer, BlobBatchRecords(DirectoryBlobs(tmp_path), batch.query))

    def prepared(number: int) -> Any:
        rows = [Batch.from_arrow(pa.record_batch([[number]], schema=ROWS))]
        return prepare_write(batch, 0, rows, lambda _: open_target())

    def crash(point: str) -> None:
        if point == "after_execution_record":
            raise _Crash

    first = prepared(1)
    crash_points.set_crash_hook(crash)
    try:
        with pytest.raises(_Crash):
            commit_batch(batch, [first], open_target())
    finally:
        crash_points.set_crash_hook(None)
    abort_batch(batch, [first], open_target())
    assert system.in_doubt() == [first.transaction]
    commit_batch(batch, [prepared(2)], open_target())
    assert system.rows() == [{"id": 1}]
    assert system.in_doubt() == []


def test_a_batch_older_than_the_last_is_not_written_again(tmp_path: Path) -> None:
    system = TransactionalMemory.named()

    def write(number: int) -> None:
        batch = BatchOfQuery(QUERY, number)

        def open_target() -> Target:
            writer = system.sink().open_transactions(ROWS, batch.context)
            return Target(writer, BlobBatchRecords(DirectoryBlobs(tmp_path), batch.query))

        rows = [Batch.from_arrow(pa.record_batch([[number]], schema=ROWS))]
        prepared = prepare_write(batch, 0, rows, lambda _: open_target())
        assert prepared is not None
        commit_batch(batch, [prepared], open_target())

    for number in (0, 1, 0):
        write(number)
    assert system.rows() == [{"id": 0}, {"id": 1}]
    assert system.in_doubt() == []
