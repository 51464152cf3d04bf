# ruff: noqa: E501 - one use a line is easier to read
"""What can be done with a column `x`: each use makes rows of (n, x), or of what it computes of x."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast import col

TIMES = pa.array([1, 2, 3, 4, 5, 6], pa.timestamp("s"))


class Rows:
    """Makes stages that read the rows (n, k, at, x), in two batches, of one pipeline."""

    def __init__(self, pipeline: jf.Pipeline, column: pa.Array) -> None:
        rows = pa.record_batch({"n": range(6), "k": [0, 0, 0, 1, 1, 1], "at": TIMES, "x": column})
        self.pipeline = pipeline
        self.batches = [rows.slice(0, 4), rows.slice(4)]
        self.reads = 0

    def name(self) -> str:
        """A name for a step that keeps state."""
        self.reads += 1
        return f"step {self.reads}"

    def __call__(self, *columns: str, timed: bool = True) -> Any:
        self.reads += 1
        source = jf.memory([batch.select(columns) if columns else batch for batch in self.batches])
        stage = self.pipeline.read(source, name=f"read {self.reads}")
        return stage.with_event_time("at") if timed else stage


@dataclass(frozen=True)
class Use:
    """`make` gives a stage; `expected` what its rows must be, by the values of x, as sets of repr unless in order."""

    name: str
    column: str
    """Of the table: uses that share one take the same types."""
    make: Callable[[Rows], Any]
    expected: Callable[[list[Any]], list[Any]]
    in_order: bool = False


def pairs(values: list[Any]) -> list[Any]:
    return list(enumerate(values))


def in_groups(fold: Callable[[list[Any]], Any], *, nulls: bool = False) -> Callable[[list[Any]], list[Any]]:
    """(k, fold of the values of each half)."""

    def folded(values: list[Any]) -> list[Any]:
        halves = [[v for v in values[k * 3 : k * 3 + 3] if nulls or v is not None] for k in (0, 1)]
        return [(k, fold(half)) for k, half in enumerate(halves)]

    return folded


def by_window(**aggregate: Any) -> Callable[[Rows], Any]:
    return lambda rows: (
        rows().group_by("k").window(jf.tumbling("1m")).agg(**aggregate, name=rows.name()).select("k", *aggregate)
    )


def by_session(**aggregate: Any) -> Callable[[Rows], Any]:
    return lambda rows: (
        rows().group_by("k").window(jf.session("20s")).agg(**aggregate, name=rows.name()).select("k", *aggregate)
    )


def running(rows: Rows, aggregate: Any) -> Any:
    return rows(timed=False).group_by("k").rolling_agg(out=aggregate, name=rows.name()).select("n", "out")


def run_of(fold: Callable[[list[Any]], Any]) -> Callable[[list[Any]], list[Any]]:
    def folded(values: list[Any]) -> list[Any]:
        results = []
        for n in range(6):
            half = [v for v in values[n // 3 * 3 : n + 1] if v is not None]
            results.append((n, fold(half)))
        return results

    return folded


def least(values: list[Any]) -> Any:
    return min(values, default=None)


def greatest(values: list[Any]) -> Any:
    return max(values, default=None)


def same_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def keep_last(rows: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    return rows.select(["n", "x"]), [0] * len(states)


def keep_rows(service: Any, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["n", "x"])


def with_schema(rows: Rows, make: Callable[[Any, pa.Schema], Any]) -> Any:
    stage = rows("n", "x", timed=False)
    return make(stage, stage.schema)


def equal_pairs(values: list[Any]) -> list[Any]:
    return [
        (n, m)
        for n, value in enumerate(values)
        for m, other in enumerate(values)
        if value is not None and value == other
    ]


def key_counts(values: list[Any]) -> list[Any]:
    return [(value, sum(repr(other) == repr(value) for other in values)) for value in distinct(values)]


def distinct(values: list[Any]) -> list[Any]:
    return list({repr(value): value for value in values}.values())


def other(rows: Rows, *columns: str) -> Any:
    return rows(*columns).rename({"n": "m"})


USES = [
    Use("select, where, rename", "passes", lambda rows: rows(timed=False).where(col("n") >= 0).rename({"x": "y"}).select("n", "y"), pairs),
    Use("expressions over other columns", "passes", lambda rows: rows(timed=False).with_column("m", col("n") + 1).select("m", "x").select((col("m") - 1).alias("n"), "x"), pairs),
    Use("is_null", "passes", lambda rows: rows(timed=False).select("n", col("x").is_null().alias("out")), lambda values: [(n, v is None) for n, v in enumerate(values)]),
    Use("union, rebalance, peek", "passes", lambda rows: rows("n", "x", timed=False).union(rows("n", "x", timed=False)).rebalance().where(col("n") >= 0), lambda values: pairs(values) * 2),
    Use("rebalance by it", "key", lambda rows: rows("n", "x", timed=False).rebalance("x"), pairs),
    Use("sort by it", "sort", lambda rows: rows("n", "x", timed=False).sort("x", "n"), lambda values: sorted(pairs(values), key=lambda pair: (pair[1] is None, pair[1] if pair[1] is not None else 0, pair[0])), in_order=True),
    Use("sort by another", "passes", lambda rows: rows("n", "x", timed=False).sort("n", descending=True), lambda values: pairs(values)[::-1], in_order=True),
    Use("key of windows", "key", lambda rows: rows().group_by("x").window(jf.tumbling("1m")).agg(out=jf.count()).select("x", "out"), key_counts),
    Use("key of sessions", "key", lambda rows: rows().group_by("x").window(jf.session("1m")).agg(out=jf.count()).select("x", "out"), key_counts),
    Use("count", "passes", by_window(out=jf.count("x")), in_groups(len)),
    Use("min", "min, max", by_window(out=jf.min("x")), in_groups(least)),
    Use("max of sessions", "min, max", by_session(out=jf.max("x")), in_groups(greatest)),
    Use("first", "first, collect", by_window(out=jf.first("x")), in_groups(lambda half: half[0], nulls=True)),
    Use("last of sessions", "first, collect", by_session(out=jf.last("x")), in_groups(lambda half: half[-1], nulls=True)),
    Use("count_distinct", "distinct, top", by_window(out=jf.count_distinct("x")), in_groups(lambda half: len(distinct(half)))),
    Use("collect_list", "first, collect", by_window(out=jf.collect_list("x")), in_groups(list)),
    Use("collect_set", "distinct, top", by_window(out=jf.collect_set("x")), in_groups(lambda half: sorted(distinct(half)))),
    Use("top_n", "distinct, top", by_window(out=jf.top_n("x", 1)), in_groups(lambda half: [max(half)] if half else [])),
    Use("top_n by another", "first, collect", by_window(out=jf.top_n("x", 1, by="n")), in_groups(lambda half: [half[-1]], nulls=True)),
    Use("rolling count", "passes", lambda rows: running(rows, jf.count("x")), run_of(len)),
    Use("rolling min", "min, max", lambda rows: running(rows, jf.min("x")), run_of(least)),
    Use("rolling max", "min, max", lambda rows: running(rows, jf.max("x")), run_of(greatest)),
    Use("beside rolling_agg", "passes", lambda rows: rows(timed=False).group_by("k").rolling_agg(out=jf.count(), name=rows.name()).select("n", "x"), pairs),
    Use("drop_duplicates by it", "key", lambda rows: rows("x", timed=False).distinct("x").with_column("one", jf.lit(1)).select("one", "x"), lambda values: [(1, value) for value in distinct(values)]),
    Use("drop_duplicates by another", "passes", lambda rows: rows("n", "at", "x").drop_duplicates("n", horizon="1m").select("n", "x"), pairs),
    Use("hash_join on it", "key", lambda rows: rows("n", "x", timed=False).hash_join(rows("n", "x", timed=False).rename({"n": "m"}), on="x").select("n", "m"), equal_pairs),
    Use("hash_join beside it", "passes", lambda rows: rows("n", "k", timed=False).hash_join(rows("n", "x", timed=False), on="n", how="left").select("n", "x"), pairs),
    Use("window_join on it", "key", lambda rows: rows().window_join(other(rows, "n", "at", "x"), jf.tumbling("1m"), on="x").select("n", "m"), equal_pairs),
    Use("window_join beside it", "passes", lambda rows: rows("n", "at").window_join(rows("n", "at", "x"), jf.tumbling("1m"), on="n", how="outer").select("n", "x"), pairs),
    Use("interval_join on it", "key", lambda rows: rows().interval_join(other(rows, "n", "at", "x"), lower="-1m", upper="1m", on="x").select("n", "m"), equal_pairs),
    Use("interval_join beside it", "passes", lambda rows: rows("n", "at").interval_join(rows("n", "at", "x"), lower="-1m", upper="1m", on="n", how="outer").select("n", "x"), pairs),
    Use("asof_join beside it", "passes", lambda rows: rows("n", "at").asof_join(rows("n", "at", "x"), on="n").select("n", "x"), pairs),
    Use("cogroup by it", "key", lambda rows: rows().group_by("x").cogroup(rows().group_by("x")).window(jf.tumbling("1m")).agg({"a": jf.count()}, {"b": jf.count()}).select("x", "a"), key_counts),
    Use("map_batches", "passes", lambda rows: rows("n", "x", timed=False).map_batches(same_rows), pairs),
    Use("map_rows", "map_rows", lambda rows: with_schema(rows, lambda stage, schema: stage.map_rows(dict, schema=schema)), pairs),
    Use("map_stateful", "passes", lambda rows: with_schema(rows, lambda stage, schema: stage.group_by("n").map_stateful(keep_last, state=pa.int64(), schema=schema)), pairs),
    Use("map_using_service", "passes", lambda rows: with_schema(rows, lambda stage, schema: stage.map_using_service(dict, keep_rows, schema=schema)), pairs),
    Use("with_event_time", "event time", lambda rows: rows("n", "x", timed=False).with_event_time("x").group_by("n").window(jf.tumbling("1d")).agg(out=jf.count("x")).select("n", "out"), lambda values: [(n, 1) for n, v in enumerate(values) if v is not None]),
]  # fmt: skip
