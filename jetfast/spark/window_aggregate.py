"""Aggregates by key and window over a DataFrame, as Spark's groupBy(keys, window(...)) gives them."""

from typing import Any

import numpy as np
import pyarrow as pa

from jetfast.api.grouped import check_aggregate, window_result_schema
from jetfast.api.keys import check_keys
from jetfast.api.naming import require_distinct
from jetfast.core.aggregate import Aggregate, AggregateKind
from jetfast.core.windows import AnyWindow, SessionWindow, Window
from jetfast.errors import JobDefinitionError
from jetfast.kernels.partitioning import assign_partitions
from jetfast.kernels.windows import unused_name
from jetfast.spark.conversion import arrow_schema, spark_type
from jetfast.spark.streaming_windows import aggregate_stream, check_stream
from jetfast.spark.window_stages import PIECES_SCHEMA, AccumulateRows, CombineStates, WindowedRows

_STEP = "window_aggregate"
_COUNTS = (AggregateKind.COUNT, AggregateKind.COUNT_VALUES)
"""Never null, as in Spark."""


def window_aggregate(df: Any, *, time: Any, by: Any = (), window: AnyWindow, **aggregates: Aggregate) -> Any:
    """Aggregate a DataFrame by keys and window; the same rows as `df.groupBy(*by, window).agg(...)`.

        window_aggregate(df, time="at", by=["carrier"], window=jf.sliding("10 s", "100 ms"), n=jf.count(),
                         mean=jf.mean("delay"))

    No row is copied into each window that holds it, which is how Spark plans a sliding window.

    Parameters
    ----------
    df : DataFrame, classic or Spark Connect. Its rows may come in any order. A streaming one needs
        `withWatermark` on its time, and is written in append mode: a window is given once the watermark has passed its
        end, and rows none of whose windows is open are dropped, as by Spark
    time : column of type timestamp, timestamp_ntz or date (midnight in the session's time zone); rows without time do
        not count
    by : column(s) to group by, by name or as Spark columns; none: all rows together
    window : `jf.tumbling`, `jf.sliding` or, unless `df` is streaming, `jf.session`
    aggregates : result columns, such as n=jf.count(), mean=jf.mean("x") or mean=jf.mean(F.col("x") / 2)

    Returns
    -------
    DataFrame of the keys, `window` (for sessions `session_window`), a struct of start and end with the type of `time`,
    and the aggregates; in no order. It is computed when Spark needs it, in two stages with a shuffle of
    spark.sql.shuffle.partitions between them.

    Raises JobDefinitionError for columns, types and aggregates that do not do.
    """
    from pyspark.sql.types import StructField, StructType

    if not isinstance(window, Window | SessionWindow):
        raise JobDefinitionError(
            f"window_aggregate: window= needs jf.tumbling(...), jf.sliding(...) or jf.session(...), got {window!r}"
        )
    if not aggregates:
        raise JobDefinitionError("window_aggregate needs at least one aggregate, such as n=jf.count()")
    inputs = _Inputs(df)
    keys = [inputs.add(key) for key in ([by] if isinstance(by, str) or _is_column(by) else by)]
    result_names = [*(inputs.names[key] for key in keys), *aggregates]
    time_name = inputs.add_time(time)
    replaced = {name: inputs.replace(name, aggregate) for name, aggregate in aggregates.items()}
    rows = inputs.frame()
    if df.isStreaming:
        check_stream(rows, time_name, inputs.names[time_name], window)
    schema = arrow_schema(df.sparkSession, rows.schema)

    require_distinct(_STEP, result_names)
    key_fields = [schema.field(key) for key in keys]
    check_keys(_STEP, pa.schema(key_fields))
    checked = [check_aggregate(_STEP, name, aggregate, schema) for name, aggregate in replaced.items()]
    results = window_result_schema(key_fields, schema.field(time_name), window, checked)

    instant = schema.field(time_name).type
    window_name = "session_window" if isinstance(window, SessionWindow) else "window"
    bounds = pa.struct([("start", instant), ("end", instant)])
    named = [pa.field(name, field.type) for name, field in zip(aggregates, list(results)[len(keys) + 2 :], strict=True)]
    keyed = [pa.field(name, field.type) for name, field in zip(result_names[: len(keys)], key_fields, strict=True)]
    result = pa.schema([*keyed, pa.field(window_name, bounds), *named])
    spark_result = StructType(
        [
            *(
                StructField(field.name, rows.schema[key].dataType, rows.schema[key].nullable)
                for field, key in zip(keyed, keys, strict=True)
            ),
            StructField(window_name, spark_type(bounds)),
            *(
                StructField(field.name, spark_type(field.type), aggregates[field.name].function not in _COUNTS)
                for field in named
            ),
        ]
    )

    partition_count = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions")) if keys else 1
    labels = shuffle_labels(partition_count)
    windowed = WindowedRows(
        schema, tuple(keys), time_name, tuple(each.for_processor() for each, _ in checked), window, len(labels)
    )
    accumulate, combine = AccumulateRows(windowed, labels), CombineStates(windowed, labels, result)
    if df.isStreaming:
        return aggregate_stream(rows, accumulate, combine, spark_result)
    pieces = rows.mapInArrow(accumulate, PIECES_SCHEMA)
    shuffled = pieces.repartition("partition") if keys else pieces.repartition(1)
    return shuffled.sortWithinPartitions("start").mapInArrow(combine, spark_result)


class _Inputs:
    """Columns that are read of a DataFrame, each under a name of its own."""

    def __init__(self, df: Any) -> None:
        self.df = df
        self.columns: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        """What Spark calls each."""

    def add(self, column: Any) -> str:
        """Read a column, given by name or as Spark's; return the name that it gets."""
        if not isinstance(column, str) and not _is_column(column):
            raise JobDefinitionError(
                f"window_aggregate needs names of columns or Spark's own (pyspark.sql.functions.col), got {column!r}"
            )
        found = self.df[column] if isinstance(column, str) else column
        name = self.df.select(found).columns[0]
        own = unused_name(name, self.columns)
        self.columns[own] = found.alias(own)
        self.names[own] = name
        return own

    def add_time(self, column: Any) -> str:
        """Read the event time; a date is the midnight that it begins with."""
        from pyspark.sql import types

        name = self.add(column)
        data_type = self.frame().schema[name].dataType
        if isinstance(data_type, types.DateType):
            self.columns[name] = self.columns[name].cast("timestamp").alias(name)
        elif not isinstance(data_type, types.TimestampType | types.TimestampNTZType):
            raise JobDefinitionError(
                f"window_aggregate: the time {self.names[name]!r} must be a timestamp, timestamp_ntz or date, it is "
                f'{data_type.simpleString()}; cast it: time=F.col(...).cast("timestamp")'
            )
        return name

    def replace(self, name: str, aggregate: Aggregate) -> Aggregate:
        """Read what an aggregate takes; return it over the names."""
        if not isinstance(aggregate, Aggregate):
            raise JobDefinitionError(
                f"window_aggregate: {name}= needs an aggregate such as jf.count() or jf.mean(...), got {aggregate!r}"
            )
        return Aggregate(aggregate.function, tuple(self.add(column) for column in aggregate.columns))

    def frame(self) -> Any:
        """The DataFrame of these columns."""
        return self.df.select(*self.columns.values())


def _is_column(value: Any) -> bool:
    from pyspark.sql import Column

    return isinstance(value, Column)


def shuffle_labels(count: int) -> tuple[int, ...]:
    """Return a value for each of `count` partitions that `repartition` sends to a partition of its own.

    Spark does not go by a number, but by its hash: of 200 numbers about 74 partitions would get none.
    """
    found: dict[int, int] = {}
    first = 0
    while len(found) < count:
        values = np.arange(first, first + 8 * count, dtype=np.int32)
        for value, partition in zip(values.tolist(), assign_partitions(pa.array(values), count).tolist(), strict=True):
            found.setdefault(partition, value)
        first += len(values)
    return tuple(found[partition] for partition in range(count))
