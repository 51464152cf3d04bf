"""window_aggregate gives the rows, the names and the types of Spark's own groupBy(keys, window(...))."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.core.windows import AnyWindow
from jetfast.errors import JobDefinitionError
from jetfast.spark import window_aggregate
from tests.spark.new_york import new_york_session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # a loaded machine takes minutes to start a JVM

HOUR_US = 3_600_000_000


session = pytest.fixture(scope="module")(new_york_session)


@pytest.fixture(scope="module")
def rows(session: Any) -> Any:
    """Unsorted, in three partitions, before and after 1970; every column has nulls, keys have NaN and both zeros."""
    count = 600
    generator = np.random.default_rng(3)
    times = generator.integers(-30 * HOUR_US, 30 * HOUR_US, count)

    def sometimes_null(values: Any, data_type: pa.DataType) -> pa.Array:
        return pa.array(values, mask=generator.random(count) < 0.1).cast(data_type)

    table = pa.table(
        {
            "text": sometimes_null(generator.choice(["a", "b", "ü"], count), pa.string()),
            "number": sometimes_null(generator.choice([1.5, 0.0, -0.0, np.nan], count), pa.float64()),
            "at": sometimes_null(times, pa.timestamp("us", "UTC")),
            "x": sometimes_null(generator.integers(-1000, 1000, count) / 64, pa.float64()),
            "small": sometimes_null(generator.integers(-100, 100, count), pa.int8()),
            "money": sometimes_null(generator.integers(-(10**6), 10**6, count) / 4, pa.decimal128(9, 2)),
        }
    )
    return session.createDataFrame(table).repartition(3).cache()


def same(ours: Any, theirs: Any) -> int:
    """Check names, types and rows (NULL and NaN are equal to themselves); return how many rows there are."""
    assert [(field.name, field.dataType) for field in ours.schema] == [
        (field.name, field.dataType) for field in theirs.schema
    ]
    found, wanted = ours.toArrow(), theirs.toArrow()
    assert found.schema.types == wanted.schema.types
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
    return int(found.num_rows)


@pytest.mark.parametrize(
    ("window", "spark_window"),
    [
        (jf.tumbling("1h", offset="10 min"), ("window", ["1 hour", "1 hour", "10 minutes"])),
        (jf.sliding("6h", "30 min"), ("window", ["6 hours", "30 minutes"])),
        (jf.session("20 min"), ("session_window", ["20 minutes"])),
    ],
    ids=["tumbling", "sliding", "session"],
)
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_rows_names_and_types_are_those_of_spark(
    rows: Any, window: AnyWindow, spark_window: tuple[str, list[str]], kind: str
) -> None:
    from pyspark.sql import functions as F

    df = rows.withColumn("at", F.col("at").cast(kind))
    ours = window_aggregate(
        df,
        time="at",
        by=["text", "number"],
        window=window,
        n=jf.count(),
        xs=jf.count("x"),
        total=jf.sum("small"),
        mean=jf.mean("x"),
        paid=jf.sum("money"),
        least=jf.min("small"),
        last=jf.max("at"),
    )
    name, arguments = spark_window
    theirs = df.groupBy("text", "number", getattr(F, name)("at", *arguments)).agg(
        F.count("*").alias("n"),
        F.count("x").alias("xs"),
        F.sum("small").alias("total"),
        F.avg("x").alias("mean"),
        F.sum("money").alias("paid"),
        F.min("small").alias("least"),
        F.max("at").alias("last"),
    )
    assert same(ours, theirs) > 50


def test_keys_and_arguments_may_be_expressions_of_spark(rows: Any) -> None:
    from pyspark.sql import functions as F

    key, argument = F.upper("text").alias("loud"), F.col("x") * 2
    ours = window_aggregate(
        rows, time="at", by=key, window=jf.tumbling("1 day"), highest=jf.max(argument), xs=jf.count_distinct("x")
    )
    theirs = rows.groupBy(key, F.window("at", "1 day")).agg(
        F.max(argument).alias("highest"), F.count_distinct("x").alias("xs")
    )
    assert same(ours, theirs) > 5


def test_without_keys_all_rows_are_one_group(rows: Any) -> None:
    from pyspark.sql import functions as F

    ours = window_aggregate(rows, time="at", window=jf.sliding("3h", "1h"), n=jf.count(), mean=jf.mean("x"))
    theirs = rows.groupBy(F.window("at", "3 hours", "1 hour")).agg(F.count("*").alias("n"), F.avg("x").alias("mean"))
    assert same(ours, theirs) > 5


def test_no_rows_give_no_rows(rows: Any) -> None:
    none = window_aggregate(rows.where("false"), time="at", by="text", window=jf.tumbling("1h"), n=jf.count())
    assert none.collect() == []


def test_a_sum_that_does_not_fit_fails_the_query(rows: Any) -> None:
    huge = window_aggregate(rows.selectExpr("at", f"{2**63 - 1}L as x"), time="at", window=jf.tumbling("60 days"),
                            total=jf.sum("x"))  # fmt: skip
    with pytest.raises(Exception, match="total.*does not fit"):
        huge.collect()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": "1h"}, "window= needs"),
        ({"n": None}, "n= needs an aggregate"),
        ({"time": "x"}, "'x' must be a timestamp, timestamp_ntz or date, it is double"),
        ({"text": jf.count()}, "two columns of the result are named 'text'"),
        ({"n": jf.mean("text")}, "mean needs numbers, got string"),
        ({"n": jf.mean(jf.col("x") * 2)}, "names of columns or Spark's own"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_runs(rows: Any, arguments: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"time": "at", "by": "text", "window": jf.tumbling("1h"), "n": jf.count()}
    with pytest.raises(JobDefinitionError, match=message):
        window_aggregate(rows, **right | arguments)
