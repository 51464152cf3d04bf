"""A standalone cluster of Spark: members with and without dynamic allocation, and tasks that Spark runs twice."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast.spark import SparkCluster, read_dataframe, window_aggregate
from jetfast.spark.slots import count_slots, require_slots
from tests.connectors.postgres_server import PostgresServer
from tests.spark.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 10_000


@pytest.fixture(scope="module")
def standalone() -> Iterator[StandaloneCluster]:
    with StandaloneCluster(workers=2, cores=2) as cluster:
        yield cluster


EXECUTORS_COME_S = 300.0
"""A standalone cluster tells nobody how many executors will come, nor when."""
EVERY = {key: len(range(key, ROWS, 7)) for key in range(7)}


def counts(cluster: SparkCluster) -> dict[int, int]:
    """How often members of the cluster have counted each key."""
    pipeline = jf.Pipeline("counts")
    at = pa.array(range(ROWS), pa.timestamp("us"))
    table = pa.table({"key": [number % 7 for number in range(ROWS)], "at": at})
    rows = pipeline.read(jf.memory(table, partitions=4, batch_rows=500), name="rows")
    timed = rows.with_event_time("at", jf.watermarks.fixed_lag("1s"))
    timed.group_by("key").window(jf.tumbling("1h")).agg(n=jf.count()).collect()
    job = cluster.submit(pipeline, progress=False)
    found = {row["key"]: row["n"] for row in job.to_arrow().to_pylist()}
    assert all(member["rows_received"] > 0 for member in job.metrics["members"])
    return found


def test_each_executor_has_a_member_with_all_its_cores(standalone: StandaloneCluster, make_spark_session: Any) -> None:
    session = make_spark_session(standalone.url)
    require_slots(lambda: count_slots(session), standalone.workers * standalone.cores, EXECUTORS_COME_S)
    cluster = SparkCluster(session)
    assert (cluster.members, cluster.workers) == (2, 2)
    assert counts(cluster) == EVERY


def test_dynamic_allocation_brings_executors_for_members(
    standalone: StandaloneCluster, make_spark_session: Any
) -> None:
    settings = {
        "spark_dynamicAllocation_enabled": "true",
        "spark_dynamicAllocation_shuffleTracking_enabled": "true",
        "spark_dynamicAllocation_maxExecutors": "2",
        "spark_executor_cores": "2",
    }
    session = make_spark_session(standalone.url, **settings)
    cluster = SparkCluster(session)
    assert (cluster.members, cluster.workers) == (2, 2)
    assert counts(cluster) == EVERY


@pytest.fixture
def speculating(standalone: StandaloneCluster, make_spark_session: Any) -> Any:
    """A session that soon starts a copy of a task which others have overtaken."""
    settings = {"speculation": "true", "speculation_interval": "50ms", "speculation_minTaskRuntime": "50ms"}
    settings |= {"speculation_quantile": "0.5", "speculation_multiplier": "1.1", "sql_shuffle_partitions": "2"}
    return make_spark_session(standalone.url, **{f"spark_{name}": value for name, value in settings.items()})


def straggling(folder: Path, name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: the first attempt of a task gives no rows until a second one has come."""

    def straggle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context.partitionId() == 0:
            second_has_come = Path(folder, name)
            if context.attemptNumber() > 0:
                second_has_come.touch()
            while not second_has_come.exists():
                threading.Event().wait(0.01)
        yield from batches

    return straggle


def test_rows_of_tasks_that_spark_runs_twice_count_once(speculating: Any, tmp_path: Path) -> None:
    numbers = speculating.range(0, 1000, 1, 4).selectExpr("id", "timestamp_seconds(id) as at")
    df = numbers.mapInArrow(straggling(tmp_path, "windows"), "id long, at timestamp")
    windows = window_aggregate(df, time="at", window=jf.tumbling("100s"), n=jf.count(), total=jf.sum("id"))
    assert sorted((row.n, row.total) for row in windows.collect()) == [
        (100, sum(range(first, first + 100))) for first in range(0, 1000, 100)
    ]
    assert (tmp_path / "windows").exists()

    df = numbers.mapInArrow(straggling(tmp_path, "source"), "id long, at timestamp")
    pipeline = jf.Pipeline("ids")
    pipeline.read(read_dataframe(df, directory=tmp_path), name="rows").collect()
    rows = jf.LocalCluster().submit(pipeline, progress=False).to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(1000))
    assert (tmp_path / "source").exists()


@pytest.mark.services
def test_writes_of_tasks_that_spark_runs_twice_count_once_and_leave_nothing(
    speculating: Any, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    from tests.spark.striking_sinks import STRIKES, StrickenFiles, StrickenPostgres

    postgres_server.clear()
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("create table rows (id bigint)")
    for folder in ("source", "files", "postgres"):
        (tmp_path / folder).mkdir()
    for number in range(4):
        pq.write_table(
            pa.table({"id": range(number * 10, number * 10 + 10)}), tmp_path / "source" / f"{number}.parquet"
        )
    speculating.dataSource.register(StrickenFiles)
    speculating.dataSource.register(StrickenPostgres)
    rows = speculating.readStream.schema("id long").option("maxFilesPerTrigger", "2").parquet(str(tmp_path / "source"))
    for sink, options in (
        ("files", {"path": str(tmp_path / "out")}),
        ("postgres", {"conninfo": postgres_server.conninfo, "table": "rows"}),
    ):
        stream = rows.writeStream.format(f"jetfast.{sink}").options(**options).trigger(availableNow=True)
        stream = stream.option(STRIKES, f"straggle:{tmp_path / sink}")
        stream.option("checkpointLocation", str(tmp_path / f"{sink} checkpoint")).start().awaitTermination()
        assert len(list((tmp_path / sink).iterdir())) == 2  # batches
    assert {path.name.partition("-")[0] for path in (tmp_path / "out").iterdir()} == {"part", "_jetfast"}
    written = pa.concat_tables([pq.read_table(file) for file in (tmp_path / "out").glob("part-*")])
    assert sorted(written["id"].to_pylist()) == list(range(40))
    with psycopg.connect(postgres_server.conninfo) as connection:
        assert connection.execute("select gid from pg_prepared_xacts").fetchall() == []
        found = connection.execute("select id from rows order by id").fetchall()
    assert [number for (number,) in found] == list(range(40))
