"""Pipelines of the API as jobs: what comes out equals DuckDB over the same rows."""

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast import col
from jetfast.errors import JobFailedError

HOUR_US = 3_600_000_000


def make_flights(seed: int, row_count: int, disorder_us: int) -> pa.Table:
    """Rows in order of arrival; each at most `disorder_us` behind the latest before it."""
    generator = random.Random(seed)
    times = sorted(generator.randrange(0, 72 * HOUR_US) for _ in range(row_count))
    arrival = sorted(range(row_count), key=lambda row: times[row] + generator.randrange(0, disorder_us + 1))
    return pa.table(
        {
            "carrier": [generator.choice(["AA", "UA", "DL", None]) for _ in arrival],
            "origin": [generator.choice(["JFK", "LGA", "EWR"]) for _ in arrival],
            "scheduled": pa.array([times[row] for row in arrival], pa.timestamp("us")),
            "dep_delay": [generator.choice([None, float(generator.randrange(-20, 200))]) for _ in arrival],
            "distance": [generator.randrange(100, 3000) for _ in arrival],
            "tail": [f"N{row}" for row in arrival],
        }
    )


def sorted_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def windows_of(
    flights: pa.Table, select: str, size_h: int, slide_h: int, where: str = "true", keys: str = "carrier, origin,"
) -> pa.Table:
    """The slow twin: every row once per window that contains it."""
    connection = duckdb.connect()
    connection.register("flights", flights)
    slide, size = f"interval '{slide_h} hours'", f"interval '{size_h} hours'"
    return connection.sql(f"""
        with expanded as (
            select *, time_bucket({slide}, scheduled) + (step + 1) * {slide} as window_end
            from flights, range({size_h // slide_h}) steps(step) where {where}
        )
        select {keys} window_end - {size} as window_start, window_end, {select} from expanded group by all
    """).to_arrow_table()


def run(pipeline: jf.Pipeline, members: int = 1, workers: int = 2, **options: Any) -> Any:
    job = jf.LocalCluster(members=members, workers=workers).submit(pipeline, progress=False, **options)
    job.wait(timeout=120)
    return job


def test_the_pipeline_of_the_readme_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flights").mkdir()
    table = make_flights(1, 3000, HOUR_US)
    for index, origin in enumerate(["JFK", "LGA", "EWR"]):
        rows = table.filter(pc.equal(table["origin"], origin))
        pq.write_table(rows, f"flights/{index}.parquet", row_group_size=500)

    # fmt: off
    p = jf.Pipeline("delays")
    flights = p.read(jf.files("flights/*.parquet"), name="flights").with_event_time(
        "scheduled", jf.watermarks.fixed_lag("2h"), idle_timeout="60s")
    delays = (flights.where(col("dep_delay").is_valid())
                     .group_by("carrier", "origin")
                     .window(jf.sliding("24h", "1h"))
                     .agg(flights=jf.count(), mean_delay=jf.mean("dep_delay"), worst=jf.max("dep_delay"),
                          name="delays"))
    delays.write(jf.files("out/windows", format="parquet"))
    delays.late_rows.write(jf.files("out/late", format="parquet"))
    # fmt: on

    job = jf.LocalCluster(workers=2).submit(p)
    job.wait()

    expected = windows_of(
        table,
        "count(*) as flights, avg(dep_delay) as mean_delay, max(dep_delay) as worst",
        24,
        1,
        "dep_delay is not null",
    )
    assert sorted_rows(pq.read_table("out/windows")) == sorted_rows(expected)
    assert pq.read_table("out/late").num_rows == 0


@pytest.mark.parametrize(
    ("members", "workers", "two_stage"), [(1, 1, False), (1, 2, None), (1, 2, True), (2, 1, None), (2, 2, False)]
)
def test_windows_are_the_same_however_they_are_planned(members: int, workers: int, two_stage: bool | None) -> None:
    table = make_flights(2, 2000, HOUR_US)
    pipeline = jf.Pipeline()
    flights = pipeline.read(jf.memory(table, partitions=3, batch_rows=100), name="flights").with_event_time(
        "scheduled", jf.watermarks.fixed_lag("1h")
    )
    kept = flights.with_column("far", col("distance") > 1000).where(col("far") | (col("distance") < 500)).drop("tail")
    kept.group_by((col("distance") % 3).alias("third"), "carrier").window(jf.sliding("6h", "2h")).agg(
        rows=jf.count(),
        delays=jf.count("dep_delay"),
        minutes=jf.sum(col("distance") * 2),
        lowest=jf.min("dep_delay"),
        highest=jf.max(col("distance")),
    ).collect("windows")
    kept.window(jf.tumbling("12h")).agg(rows=jf.count(), far=jf.sum(col("far").cast("int"))).collect("all")
    job = run(pipeline, members, workers, two_stage=two_stage)
    condition = "distance > 1000 or distance < 500"
    expected = windows_of(
        table, "count(*), count(dep_delay), sum(distance * 2)::bigint, min(dep_delay), max(distance)", 6, 2, condition,
        "distance % 3 as third, carrier,",
    )  # fmt: skip
    assert sorted_rows(job.collected("windows")) == sorted_rows(expected)
    expected = windows_of(table, "count(*), sum((distance > 1000)::int)::bigint", 12, 12, condition, "")
    assert sorted_rows(job.collected("all")) == sorted_rows(expected)


def test_every_row_is_on_time_late_or_rejected(tmp_path: Path) -> None:
    table = make_flights(3, 2000, 6 * HOUR_US)
    times = [None if row % 50 == 0 else time for row, time in enumerate(table["scheduled"].to_pylist())]
    table = table.set_column(2, "scheduled", pa.array(times, pa.timestamp("us")))
    pipeline = jf.Pipeline()
    flights = pipeline.read(jf.memory(table, batch_rows=50), name="flights").with_event_time("scheduled")
    hours = (
        flights.group_by((col("distance") % 2).alias("odd"))
        .window(jf.tumbling("1h"))
        .agg(rows=jf.count(), total=jf.sum(col("distance") + 0), name="hours")
    )
    hours.collect()
    hours.late_rows.select("tail", "missed_until").collect("late")
    flights.rejected_rows.collect("rejected")
    job = run(pipeline)
    late, rejected = job.collected("late"), job.collected("rejected")
    assert rejected.num_rows == 40
    assert late.num_rows > 0
    late_tails = set(late["tail"].to_pylist())
    assert len(late_tails) == late.num_rows
    on_time = table.filter(
        pa.array([row["tail"] not in late_tails and row["scheduled"] is not None for row in table.to_pylist()])
    )
    assert sum(job.collected("result")["rows"].to_pylist()) == on_time.num_rows == 2000 - 40 - late.num_rows
    expected = windows_of(on_time, "count(*), sum(distance)::bigint", 1, 1, keys="distance % 2 as odd,")
    assert sorted_rows(job.collected("result")) == sorted_rows(expected)


def test_unions_and_functions_give_all_rows_once() -> None:
    pipeline = jf.Pipeline()
    left = pipeline.read(jf.memory({"a": list(range(100))}, partitions=4), name="left")
    right = pipeline.read(jf.memory({"a": list(range(100, 150))}), name="right")

    def twice(batch: pa.RecordBatch) -> pa.Table:
        return pa.concat_tables([pa.Table.from_batches([batch])] * 2)

    left.union(right).where(col("a") % 2 == 0).map_batches(twice).rename({"a": "b"}).collect()
    assert sorted(run(pipeline, members=2).collected("result")["b"].to_pylist()) == sorted([*range(0, 150, 2)] * 2)


def test_a_row_that_fails_fails_the_job_and_names_the_step() -> None:
    pipeline = jf.Pipeline()
    rows = pipeline.read(jf.memory({"a": [1, 2, 3], "b": [1, 0, 3]}))
    rows.where(col("a") > 0).with_column("ratio", col("a") / col("b"), name="ratios").collect()
    with pytest.raises(
        JobFailedError, match=r"step 'ratios', column 'ratio', row 1 of a batch of 3: divide by zero; .*'b': 0"
    ):
        run(pipeline)


def test_a_pipeline_may_be_submitted_again() -> None:
    pipeline = jf.Pipeline()
    pipeline.read(jf.memory({"a": [1, 2, 3]})).collect()
    assert [run(pipeline).to_arrow().num_rows for _ in range(2)] == [3, 3]


def test_every_layout_is_a_key_and_stands_in_expressions() -> None:
    letters = pa.array(["a", "b", None, "a"])
    columns = {
        "dictionary": letters.dictionary_encode(),
        "large": letters.cast(pa.large_string()),
        "view": letters.cast(pa.string_view()),
        "fixed": pa.array([b"a", b"b", None, b"a"], pa.binary(1)),
        "day": pa.array([1, 2, None, 1], pa.date32()),
        "unsigned": pa.array([1, 2, None, 1], pa.uint16()),
        "span": pa.array([1, 2, None, 1], pa.duration("ms")),
    }
    fields = [
        pa.field("t", pa.timestamp("ms"), nullable=False),
        *(pa.field(name, a.type) for name, a in columns.items()),
    ]
    table = pa.table([pa.array([1, 2, 3, 4], pa.timestamp("ms")), *columns.values()], schema=pa.schema(fields))
    for name, values in columns.items():
        pipeline = jf.Pipeline()
        rows = pipeline.read(jf.memory(table)).with_event_time("t")
        first = values[0].as_py()
        kept = rows.where((col(name) == values[0].as_py()) | col(name).is_null() | col(name).isin(first))
        result = kept.group_by(name).window(jf.tumbling("1s")).agg(n=jf.count(), known=jf.count(name))
        result.collect()
        kept.with_column("same", jf.coalesce(col(name), first)).collect("rows")
        job = run(pipeline)
        found = job.collected("result")
        assert found.schema == result.schema
        assert {(row[name], row["n"], row["known"]) for row in found.to_pylist()} == {(first, 2, 2), (None, 1, 0)}, name
        assert job.collected("rows")["same"].to_pylist() == [first] * 3


def test_columns_that_hold_no_nulls_meet_columns_that_do() -> None:
    strict = pa.table({"a": [1, 2]}, schema=pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    loose = pa.table({"a": pa.array([3, None], pa.int64())})

    def strictly(batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = pa.schema([pa.field("a", pa.int64(), nullable=False)], metadata={"from": "a function"})
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    for members in (1, 2):
        pipeline = jf.Pipeline()
        one, two = pipeline.read(jf.memory(strict), name="one"), pipeline.read(jf.memory(loose), name="two")
        both = one.union(two, name="both")
        both.collect()
        both.map_batches(strictly, schema=loose.schema, name="strictly").collect("mapped")
        one.map_batches(strictly).union(one).collect("strict")
        job = run(pipeline, members)
        assert both.schema == job.collected("result").schema == loose.schema
        for name in ("result", "mapped"):
            assert sorted(job.collected(name)["a"].to_pylist(), key=str) == [1, 2, 3, None]
        assert sorted(job.collected("strict")["a"].to_pylist()) == [1, 1, 2, 2]


@pytest.mark.parametrize("beside", [False, True])
def test_event_time_may_be_computed_and_rows_without_one_are_rejected(tmp_path: Path, beside: bool) -> None:
    texts = ["2013-01-01 00:00:00", "2013-01-01 00:59:59.5", "soon", None, "2013-01-01 01:00:00", "2013-13-01 00:00:00"]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"at": texts, "n": range(6), "unused": texts}), tmp_path / "in" / "a.parquet")
    pipeline = jf.Pipeline()
    time = col("at").cast("timestamp[us]")
    source = pipeline.read(jf.files(str(tmp_path / "in")), name="rows")
    rows = source.with_event_time(time.alias("time") if beside else time)
    assert rows.event_time == ("time" if beside else "at")
    assert rows.schema.field(rows.event_time).type == pa.timestamp("us")
    rows.window(jf.tumbling("1h")).agg(rows=jf.count(), total=jf.sum("n"), name="hours").collect()
    rows.rejected_rows.collect("rejected")
    job = run(pipeline)
    hours = sorted(job.collected("result").select(["rows", "total"]).to_pylist(), key=str)
    assert hours == [{"rows": 1, "total": 4}, {"rows": 2, "total": 1}]
    rejected = job.collected("rejected")
    assert sorted(rejected["position"].to_pylist()) == [2, 3, 5]
    assert any("soon" in row for row in rejected["row"].to_pylist())
    numbers = pa.table({"ms": [0, 3_600_000, None]})
    pipeline = jf.Pipeline()
    rows = pipeline.read(jf.memory(numbers)).with_event_time(col("ms").cast(pa.timestamp("ms")))
    rows.window(jf.tumbling("1h")).agg(rows=jf.count()).collect()
    assert run(pipeline).to_arrow()["rows"].to_pylist() == [1, 1]


def test_a_function_over_rows_gives_a_row_or_none() -> None:
    pipeline = jf.Pipeline()
    schema = pa.schema([("b", pa.int64()), ("text", pa.string()), ("missing", pa.float64())])
    rows = pipeline.read(jf.memory({"a": list(range(10))}, partitions=2))
    rows.map_rows(
        lambda row: {"b": row["a"] * 2, "text": str(row["a"])} if row["a"] % 2 else None, schema=schema
    ).collect()
    rows.map_rows(lambda row: 1 / (row["a"] - 7) and row, schema=rows.schema, name="inverse").collect("never")
    with pytest.raises(JobFailedError, match=r"step 'inverse' failed.* ZeroDivisionError"):
        run(pipeline)
    pipeline = jf.Pipeline()
    rows = pipeline.read(jf.memory({"a": list(range(10))}, partitions=2))
    rows.map_rows(
        lambda row: {"b": row["a"] * 2, "text": str(row["a"])} if row["a"] % 2 else None, schema=schema
    ).collect()
    result = run(pipeline).to_arrow()
    assert result.schema == schema
    expected = [{"b": number * 2, "text": str(number), "missing": None} for number in range(1, 10, 2)]
    assert sorted(result.to_pylist(), key=lambda row: row["b"]) == expected
