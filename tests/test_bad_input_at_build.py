"""What is wrong with a pipeline is said when it is built: the step, the column, and what there is instead."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast import col
from jetfast.errors import DurationError, JobDefinitionError, JobFailedError

SCHEMA = pa.schema(
    [
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("scheduled", pa.timestamp("us")),
        ("day", pa.date32()),
        ("dep_delay", pa.float64()),
        ("distance", pa.int64()),
        ("tags", pa.list_(pa.string())),
    ]
)


def flights(pipeline: jf.Pipeline, name: str = "flights") -> Any:
    return pipeline.read(jf.memory(schema=SCHEMA), name=name)


def timed(pipeline: jf.Pipeline, name: str = "flights") -> Any:
    return flights(pipeline, name).with_event_time("scheduled", jf.watermarks.fixed_lag("2h"))


def windowed(stage: Any) -> Any:
    return stage.group_by("carrier").window(jf.tumbling("1h"))


HOUR = jf.tumbling("1h")


class Untyped(jf.BatchAggregate):
    """An aggregate that a user has not finished."""

    def state_type(self, inputs: pa.Schema) -> Any:
        return "int64"

    def result_type(self, inputs: pa.Schema) -> Any:
        return pa.int64()


# What is done with an event-time stage of the columns above, and what the error must say.
ON_TIMED_STAGE: dict[str, tuple[Callable[[Any], object], str]] = {
    "missing column in select": (
        lambda s: s.select("carrier", "dep_dleay"),
        "step 'select(carrier, dep_dleay)': there is no column 'dep_dleay'; did you mean 'dep_delay'? The columns are: "
        "carrier, origin, scheduled, day, dep_delay, distance, tags",
    ),
    "missing column in an expression": (
        lambda s: s.where(col("depdelay") > 0, name="late ones"),
        "step 'late ones': there is no column 'depdelay' (in (depdelay > 0)); did you mean 'dep_delay'?",
    ),
    "another case of letters": (lambda s: s.select("Carrier"), "did you mean 'carrier'?"),
    "missing column in drop": (
        lambda s: s.drop("orign"),
        "step 'drop(orign)': there is no column 'orign'; did you mean 'origin'?",
    ),
    "missing column in rename": (
        lambda s: s.rename({"x": "y"}),
        "step 'rename(x as y)': there is no column 'x'. The columns are",
    ),
    "missing key": (
        lambda s: s.group_by("airport"),
        "step 'group_by(airport)': there is no column 'airport' (as key). The columns are",
    ),
    "missing column in an aggregate": (
        lambda s: windowed(s).agg(worst=jf.max("delay"), name="delays"),
        "step 'delays': there is no column 'delay' (in worst); did you mean 'dep_delay'?",
    ),
    "missing column in a computed aggregate": (
        lambda s: windowed(s).agg(worst=jf.max(col("delay") * 60), name="delays"),
        "step 'delays': there is no column 'delay' (in (delay * 60)); did you mean 'dep_delay'?",
    ),
    "nothing selected": (lambda s: s.select(), "select needs at least one column"),
    "everything dropped": (lambda s: s.drop(*SCHEMA.names), "drop would leave no column"),
    "one name twice in select": (
        lambda s: s.select("carrier", col("origin").alias("carrier")),
        "two columns of the result are named 'carrier'",
    ),
    "rename to a name that is there": (
        lambda s: s.rename({"carrier": "origin"}),
        "two columns of the result are named 'origin'",
    ),
    "computed column without a name": (
        lambda s: s.select(col("distance") * 2),
        "the computed column (distance * 2) needs a name: add .alias(...)",
    ),
    "computed key without a name": (lambda s: s.group_by(col("distance") % 10), "needs a name: add .alias(...)"),
    "types that do not fit": (
        lambda s: s.with_column("x", col("carrier") + 1),
        "step 'with_column(x)', column 'x': (carrier + 1) does not fit the types of its columns: string + int32; cast "
        'one side, such as col("x").cast("int32")',
    ),
    "comparison of types that do not fit": (
        lambda s: s.where(col("carrier") > 5),
        "(carrier > 5) does not fit the types of its columns: string > int32; cast one side",
    ),
    "where without condition": (
        lambda s: s.where(col("distance") + 1),
        "step 'where((distance + 1))': where needs a condition (bool), but (distance + 1) is int64",
    ),
    "where with text": (
        lambda s: s.where("distance > 1"),
        "where needs a condition such as col('distance > 1') > 0, got text",
    ),
    "on_error misspelt": (
        lambda s: s.select("carrier", on_error="ignore"),
        'on_error must be "fail" or "null", got \'ignore\'',
    ),
    "event time replaced": (
        lambda s: s.with_column("scheduled", col("day")),
        "step 'with_column(scheduled)': 'scheduled' is the event time of these rows and cannot be replaced",
    ),
    "event time lost before a window": (
        lambda s: windowed(s.select("carrier", "distance")).agg(n=jf.count(), name="counts"),
        "step 'counts': a window needs event time, but 'select(carrier, distance)' has none: "
        "step 'select(carrier, distance)' leaves its event-time column 'scheduled' out; keep it",
    ),
    "event time twice": (lambda s: s.with_event_time("day"), "step 'flights' has an event time already: 'scheduled'"),
    "aggregate without a window": (
        lambda s: s.group_by("carrier").agg(n=jf.count()),
        "an aggregate over a stream needs a window: write .group_by(...).window(jf.tumbling(...)).agg(...)",
    ),
    "window that is none": (
        lambda s: s.group_by("carrier").window("1h"),
        'window needs jf.tumbling("1h"), jf.sliding("24h", "1h") or jf.session("30m"), got \'1h\'',
    ),
    "no key": (
        lambda s: s.group_by(),
        "group_by needs at least one key; without keys write .window(...).agg(...) at once",
    ),
    "a distinct count of lists": (
        lambda s: windowed(s).agg(n=jf.count_distinct("tags"), name="n"),
        "step 'n', column 'n': count_distinct needs numbers, times, booleans, texts or bytes, got list<",
    ),
    "top rows by a list": (
        lambda s: windowed(s).agg(n=jf.top_n("carrier", 3, by="tags"), name="n"),
        "step 'n', column 'n': top_n by a column needs numbers, times, booleans, texts or bytes, got list<",
    ),
    "top rows of a missing column": (
        lambda s: windowed(s).agg(n=jf.top_n(["carrier", "tail"], 3, by="distance"), name="n"),
        "step 'n': there is no column 'tail' (in n)",
    ),
    "top 0": (lambda s: jf.top_n("distance", 0), "top_n needs a whole number n of at least 1, got 0"),
    "bottom of two columns by nothing": (
        lambda s: jf.bottom_n(["distance", "carrier"], 2),
        "bottom_n of 2 columns needs by=, the column that decides",
    ),
    "a quantile of texts": (
        lambda s: windowed(s).agg(q=jf.quantile("carrier", 0.5), name="n"),
        "step 'n', column 'q': quantile needs numbers, got string (from carrier)",
    ),
    "a percentage as quantile": (
        lambda s: jf.quantile("distance", 99),
        "a quantile is in [0, 1], such as 0.99, got 99",
    ),
    "no quantiles": (
        lambda s: jf.quantiles("distance", 0.5),
        "quantiles needs a list of quantiles such as [0.5, 0.99]",
    ),
    "a quantile without error": (
        lambda s: jf.quantile("distance", 0.5, 0),
        "the error of a quantile is in [1e-6, 0.5]",
    ),
    "a distinct count that is too exact": (
        lambda s: jf.approx_count_distinct("carrier", error=1e-4),
        "approx_count_distinct needs an error in [0.002, 0.26], got 0.0001",
    ),
    "an approximate count of lists": (
        lambda s: windowed(s).agg(n=jf.approx_count_distinct("tags"), name="n"),
        "step 'n', column 'n': ",
    ),
    "a trend over a date": (
        lambda s: windowed(s).agg(t=jf.linear_trend("distance", "day"), name="n"),
        "linear_trend needs numbers, 'day' is date32[day]; without x it is over event time",
    ),
    "numbers as one text": (
        lambda s: windowed(s).agg(t=jf.concat("distance"), name="n"),
        """step 'n', column 't': concat needs texts, got int64; write col(...).cast("string") (from distance)""",
    ),
    "a number as separator": (lambda s: jf.concat("carrier", 1), "concat needs a text as separator, got 1"),
    "an aggregate whose state has no Arrow type": (
        lambda s: jf.aggregate("x", create=int, accumulate=max, combine=max, state=int),
        "aggregate needs an Arrow type as state, such as pa.float64(), got <class 'int'>",
    ),
    "an aggregate without a function": (
        lambda s: jf.aggregate("x", create=0, accumulate=max, combine=max, state=pa.int64()),
        "aggregate needs a function as create, got 0",
    ),
    "an aggregate of the user's that does not give types": (
        lambda s: windowed(s).agg(x=Untyped().over("distance"), name="n"),
        "step 'n', column 'x': Untyped must give Arrow types for its state and result, not 'int64' (from distance)",
    ),
    "no aggregate": (lambda s: windowed(s).agg(name="none"), "step 'none': agg needs at least one aggregate"),
    "aggregate that is none": (
        lambda s: windowed(s).agg(n="count", name="n"),
        "step 'n': n= needs an aggregate such as jf.count() or jf.mean(...), got 'count'",
    ),
    "aggregate of a type that has none": (
        lambda s: windowed(s).agg(m=jf.mean("carrier"), name="m"),
        "step 'm', column 'm': mean needs numbers, got string (from carrier)",
    ),
    "key that cannot be partitioned": (
        lambda s: s.group_by("tags"),
        "step 'group_by(tags)': ",
    ),
    "key named as a result column": (
        lambda s: s.group_by(col("carrier").alias("window_start")).window(HOUR).agg(n=jf.count(), name="n"),
        "step 'n': 'window_start' is a column that windows add themselves; use another name",
    ),
    "aggregate named as a result column": (
        lambda s: windowed(s).agg(window_end=jf.count(), name="n"),
        "step 'n': 'window_end' is a column that windows add themselves",
    ),
    "aggregate named as a key": (
        lambda s: windowed(s).agg(carrier=jf.count(), name="n"),
        "step 'n': two columns of the result are named 'carrier'",
    ),
    "computed key named as a column": (
        lambda s: s.group_by((col("distance") % 10).alias("distance")),
        "step 'group_by(distance)': the computed key 'distance' has the name of a column; give it another .alias(...)",
    ),
    "two keys of one name": (
        lambda s: s.group_by("carrier", "carrier"),
        "step 'group_by(carrier, carrier)': two columns of the result are named 'carrier'",
    ),
    "window after a window whose end was left out": (
        lambda s: windowed(windowed(s).agg(n=jf.count(), name="hours").drop("window_end")).agg(n=jf.count()),
        "step 'drop(window_end)' leaves its event-time column 'window_end' out; keep it",
    ),
    "window after early results": (
        lambda s: windowed(windowed(s).early_results(every="1s").agg(n=jf.count(), name="hours")).agg(m=jf.sum("n")),
        "the rows of 'hours' hold early results of 'hours', which would count besides the final ones; "
        "keep the final ones: .where(~col('is_early'))",
    ),
    "window over late rows": (
        lambda s: windowed(windowed(s).agg(n=jf.count(), name="hours").late_rows).agg(m=jf.count(), name="again"),
        "late and rejected rows have no event time any more",
    ),
    "union of other columns": (
        lambda s: s.union(s.drop("tags")),
        "a union needs equal columns, but 'flights' and 'drop(tags)' differ: only the first has tags",
    ),
    "union of other types": (
        lambda s: s.union(s.with_column("distance", col("distance").cast("int"))),
        "differ: distance is int64 and int32",
    ),
    "union of another order": (
        lambda s: s.select("carrier", "origin").union(s.select("origin", "carrier")),
        "differ: the order of the columns",
    ),
    "union with another pipeline": (lambda s: s.union(timed(jf.Pipeline())), "'flights' belongs to another pipeline"),
    "union with no stage": (lambda s: s.union(SCHEMA), "union needs stages, got"),
    "function that is none": (lambda s: s.map_batches("f"), "map_batches needs a function, got 'f'"),
    "function that raises on no rows": (
        lambda s: s.map_batches(lambda batch: batch.column("nope"), name="mapped"),
        "step 'mapped': the function raised KeyError on a batch without rows",
    ),
    "function that returns no batch": (
        lambda s: s.map_batches(lambda batch: 3, name="mapped"),
        "step 'mapped': the function must return a pyarrow.RecordBatch, it returned int",
    ),
    "schema that is none": (
        lambda s: s.map_batches(lambda batch: batch, schema={"a": "int64"}, name="mapped"),
        "step 'mapped': schema must be a pyarrow.Schema, got dict",
    ),
    "event time lost in a function": (
        lambda s: windowed(s.map_batches(lambda batch: batch.select(["carrier"]), name="f")).agg(
            n=jf.count(), name="n"
        ),
        "step 'f' does not return its event-time column 'scheduled' as timestamp[us]",
    ),
    "sink that is none": (lambda s: s.write("out"), "got 'out'; did you mean write(jf.files('out'))?"),
    "aggregate without aggregates": (
        lambda s: s.window(HOUR).agg(),
        "step 'agg': agg needs at least one aggregate, such as rows=jf.count()",
    ),
    "two steps of one name": (
        lambda s: s.where(col("distance") > 1, name="flights"),
        "two steps are named 'flights'; give one of them another name=",
    ),
    "two windows of one generated name": (
        lambda s: [windowed(s).agg(n=jf.count()), windowed(s).agg(n=jf.count())],
        "two steps would be named 'agg(n by carrier, tumbling 1h)'; give one of them a name= of its own",
    ),
    "a name that is no text": (lambda s: s.drop("tags", name=3), "a step is named by text, got 3"),
}


@pytest.mark.parametrize(("build", "message"), ON_TIMED_STAGE.values(), ids=ON_TIMED_STAGE.keys())
def test_a_wrong_step_is_an_error_at_build(build: Callable[[Any], object], message: str) -> None:
    with pytest.raises(JobDefinitionError, match=re.escape(message)):
        build(timed(jf.Pipeline()))


ON_UNTIMED_STAGE: dict[str, tuple[Callable[[Any], object], type[Exception], str]] = {
    "missing time column": (
        lambda s: s.with_event_time("schedulled"),
        JobDefinitionError,
        "step 'flights': there is no column 'schedulled' (as event time); did you mean 'scheduled'?",
    ),
    "time column of text": (
        lambda s: s.with_event_time("carrier"),
        JobDefinitionError,
        "step 'flights': event time 'carrier' must be a timestamp or date column, but it is string; "
        "write with_event_time(col('carrier').cast(\"timestamp[us]\"))",
    ),
    "time column of integers": (
        lambda s: s.with_event_time("distance"),
        JobDefinitionError,
        "event time 'distance' must be a timestamp or date column, but it is int64; write "
        "with_event_time(col('distance').cast(\"timestamp[us]\")) for microseconds since 1970 (s, ms and ns likewise)",
    ),
    "time expression without a name": (
        lambda s: s.with_event_time(jf.coalesce(col("day"), col("day"))),
        JobDefinitionError,
        "step 'flights': the computed column (case when day is not null then day else day) needs a name: add .alias",
    ),
    "missing column in a time expression": (
        lambda s: s.with_event_time(col("schedulled").cast("timestamp[us]")),
        JobDefinitionError,
        "step 'flights': there is no column 'schedulled' (as event time); did you mean 'scheduled'?",
    ),
    "policy that is none": (
        lambda s: s.with_event_time("scheduled", "2h"),
        JobDefinitionError,
        "policy must be one of jf.watermarks, such as jf.watermarks.fixed_lag(\"10s\"), got '2h'",
    ),
    "negative idle timeout": (
        lambda s: s.with_event_time("scheduled", idle_timeout="-1s"),
        DurationError,
        "idle_timeout must not be negative, got '-1s'",
    ),
    "bare int as idle timeout": (
        lambda s: s.with_event_time("scheduled", idle_timeout=60),
        TypeError,
        'idle_timeout must have a unit, got the bare number 60; did you mean "60s"?',
    ),
    "window without event time": (
        lambda s: windowed(s).agg(n=jf.count(), name="n"),
        JobDefinitionError,
        "step 'n': a window needs event time, but 'flights' has none: its source has no .with_event_time(...)",
    ),
    "event time after other steps": (
        lambda s: (s.drop("tags"), s.with_event_time("scheduled")),
        JobDefinitionError,
        "step 'flights': with_event_time must directly follow read, before other steps",
    ),
    "union of different event times": (
        lambda s: windowed(
            s.union(s.pipeline.read(jf.memory(schema=SCHEMA), name="more").with_event_time("scheduled"), name="both")
        ).agg(n=jf.count(), name="n"),
        JobDefinitionError,
        "the inputs of its union have different event times: 'flights' has none, 'more' has scheduled",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "error", "message"), ON_UNTIMED_STAGE.values(), ids=ON_UNTIMED_STAGE.keys())
def test_wrong_event_time_is_an_error_at_build(
    build: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        build(flights(jf.Pipeline()))


def test_wrong_durations_are_errors_where_they_are_written() -> None:
    with pytest.raises(
        JobDefinitionError,
        match="window size '10m' is not a multiple of the slide '3m'; the nearest sizes that are: 9m or 12m",
    ):
        jf.sliding("10m", "3m")
    with pytest.raises(DurationError, match="lag must not be negative, got '-1h'"):
        jf.watermarks.fixed_lag("-1h")
    with pytest.raises(
        TypeError, match=re.escape('window size must have a unit, got the bare number 10; did you mean "10s"?')
    ):
        jf.tumbling(10)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match='lag must have a unit, got the bare number 5; did you mean "5s"'):
        jf.watermarks.fixed_lag(5)  # type: ignore[arg-type]
    with pytest.raises(DurationError, match="window slide must be greater than zero"):
        jf.sliding("10m", "0s")


def test_a_pipeline_without_source_is_an_error_at_plan() -> None:
    with pytest.raises(JobDefinitionError, match="pipeline 'empty' reads nothing: begin with p.read"):
        jf.Pipeline("empty").plan()


def test_a_stage_without_sink_is_an_error_at_plan_that_names_it() -> None:
    pipeline = jf.Pipeline()
    stage = timed(pipeline)
    with pytest.raises(JobDefinitionError, match=r"nothing reads the stage 'flights': end it with \.write"):
        pipeline.plan()
    delays = windowed(stage).agg(n=jf.count(), name="delays")
    with pytest.raises(JobDefinitionError, match="nothing reads the stage 'delays'"):
        pipeline.plan()
    delays.write(jf.collect(), name="result")
    assert pipeline.plan().vertices
    delays.late_rows.select("carrier", name="late carriers")
    with pytest.raises(JobDefinitionError, match="nothing reads the stage 'late carriers'"):
        pipeline.plan()


def test_late_and_rejected_rows_need_no_sink() -> None:
    pipeline = jf.Pipeline()
    stage = timed(pipeline)
    assert stage.rejected_rows.schema.names == ["partition", "position", "reason", "row"]
    delays = windowed(stage).agg(n=jf.count(), name="delays")
    assert delays.late_rows.schema.names == [*SCHEMA.names, "missed_until"]
    delays.collect()
    pipeline.plan()


def test_what_is_neither_source_nor_name_is_refused() -> None:
    with pytest.raises(JobDefinitionError, match=r"read needs a source such as jf.files\(...\), got 'flights.parquet'"):
        jf.Pipeline().read("flights.parquet")  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match=r"did you mean read\(jf.files\('flights.parquet'\)\)"):
        jf.Pipeline().read("flights.parquet")  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="a pipeline is named by text"):
        jf.Pipeline("")
    pipeline = jf.Pipeline()
    flights(pipeline)
    with pytest.raises(JobDefinitionError, match="two steps are named 'flights'"):
        flights(pipeline)
    pipeline.read(jf.memory(schema=SCHEMA))
    with pytest.raises(JobDefinitionError, match="two steps would be named 'memory'; give one of them a name="):
        pipeline.read(jf.memory(schema=SCHEMA))


def test_the_size_of_the_cluster_is_checked() -> None:
    pipeline = jf.Pipeline()
    flights(pipeline).collect()
    with pytest.raises(JobDefinitionError, match="member_count must be at least 1, got 0"):
        pipeline.plan(member_count=0)
    with pytest.raises(JobDefinitionError, match="workers must be at least 1, got 0"):
        pipeline.plan(workers=0)


def test_too_many_files_to_be_merged_by_event_time_are_an_error_at_build(tmp_path: Path) -> None:
    for index in range(65):
        pq.write_table(SCHEMA.empty_table(), tmp_path / f"{index}.parquet")
    stage = jf.Pipeline().read(jf.files(str(tmp_path)), name="many")
    with pytest.raises(
        JobDefinitionError, match=r"step 'many': .*65 source partitions are too many .* give partitions="
    ):
        stage.with_event_time("scheduled")
    jf.Pipeline().read(jf.files(str(tmp_path), partitions=r"(.*)\d.parquet")).with_event_time("scheduled")


def test_files_that_are_missing_and_targets_that_clash_are_errors_at_build(tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match=r"nothing\.parquet"):
        jf.Pipeline().read(jf.files(str(tmp_path / "nothing.parquet")))
    pipeline = jf.Pipeline()
    stage = flights(pipeline)
    stage.write(jf.files(str(tmp_path / "out"), format="parquet"), name="one")
    with pytest.raises(JobDefinitionError, match="steps 'one' and 'two' both write to .*out"):
        stage.write(jf.files(str(tmp_path / "out"), format="parquet"), name="two")
    with pytest.raises(JobDefinitionError, match=r"step 'csv': .*tags"):
        stage.write(jf.files(str(tmp_path / "csv"), format="csv"), name="csv")


def test_one_file_of_a_source_without_end_is_an_error_since_nobody_would_see_it(tmp_path: Path) -> None:
    endless = jf.Pipeline().read(jf.generator({"x": pa.int64()}, rate=1), name="endless")
    with pytest.raises(JobDefinitionError, match=r"seen when all rows are written, and 'endless' has no end; .*files"):
        endless.write(jf.files(str(tmp_path / "out.csv")))
    endless.write(jf.files(str(tmp_path / "out"), format="csv"))


def test_event_time_after_other_steps_says_where_it_belongs() -> None:
    stage = flights(jf.Pipeline()).drop("tags")
    with pytest.raises(AttributeError, match="'with_event_time': it directly follows read, before other steps"):
        stage.with_event_time("scheduled")
    with pytest.raises(AttributeError, match="'Stage' object has no attribute 'groupby'$"):
        stage.groupby("carrier")


def test_columns_of_a_generator_have_types() -> None:
    with pytest.raises(JobDefinitionError, match=r"generator: columns are names with types of pyarrow, .*'int'"):
        jf.generator({"x": "int"})  # type: ignore[dict-item]
    with pytest.raises(JobDefinitionError, match="generator: it needs columns such as .*, or a function .*, got 5"):
        jf.generator(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda row: 3, r"a row must be a dict of columns, it made 3 \(int\)"),
        (lambda row: {"b": 1}, r"a row has none of the columns of its schema \(a\): {'b': 1}"),
    ],
)
def test_a_function_over_rows_that_gives_none_says_so(function: Callable[[Any], Any], message: str) -> None:
    rows = jf.Pipeline().read(jf.memory({"a": [1]}))
    rows.map_rows(function, schema=pa.schema([("a", pa.int64())])).collect()
    with pytest.raises(JobFailedError, match=message):
        jf.LocalCluster(workers=1).submit(rows.pipeline, progress=False).wait()


def test_a_target_that_holds_files_is_an_error_at_submission(tmp_path: Path) -> None:
    pipeline = jf.Pipeline()
    stage = flights(pipeline)
    stage.write(jf.files(str(tmp_path / "out"), format="parquet"), name="out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.parquet").write_bytes(b"old")
    with pytest.raises(JobDefinitionError, match=r"the directory holds other files, such as 'old.parquet'"):
        jf.LocalCluster().submit(pipeline, progress=False)
    assert "graph for 1 member of 1 worker" in pipeline.explain()
