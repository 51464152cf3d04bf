"""A pipeline with state of every kind, for the stores in tests/golden: its rows never change.

The first half of the rows is read by the release that writes a store, the second half by the release that continues.
"""

from decimal import Decimal
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast import col

ROWS = 400
KEYS = 5
HALF = ROWS // 2
PARTITIONS = 3
JOB = "golden"
NAMED = "half"


def table(partition: int, rows: int) -> pa.Table:
    """The first rows of a source partition. Times are out of order by less than 20 ms, and unique in all partitions."""
    numbers = [partition * ROWS + row for row in range(rows)]
    times = [1_700_000_000_000_000 + partition + row * 2_500 - (row * 7919) % 13_000 for row in range(rows)]
    return pa.table(
        {
            "row": pa.array(numbers, pa.int64()),
            "key": pa.array([(row * 31) % KEYS for row in range(rows)], pa.int32()),
            "text": pa.array([None if row % 11 == 0 else f"t{row % 17}" for row in range(rows)]),
            "value": pa.array([None if row % 13 == 0 else (row % 97) / 8 for row in range(rows)], pa.float64()),
            "price": pa.array([Decimal(row % 7) / 4 for row in range(rows)], pa.decimal128(10, 2)),
            "time": pa.array(times, pa.timestamp("us")),
        }
    )


def source(rows: int, *, unbounded: bool) -> Any:
    halves = {
        f"p{number}": [table(number, rows).slice(start, HALF) for start in range(0, rows, HALF)]
        for number in range(PARTITIONS)
    }
    return jf.memory(partitions=halves, unbounded=unbounded)


STATE = pa.schema([("key", pa.int32()), ("row", pa.int64()), ("seen", pa.int64())])


def count_rows(batch: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    counts = [state or 0 for state in states.to_pylist()]
    seen = []
    for group in groups:
        counts[group] += 1
        seen.append(counts[group])
    return pa.record_batch([batch.column("key"), batch.column("row"), pa.array(seen, pa.int64())], schema=STATE), counts


def branches(p: jf.Pipeline, rows: int, *, unbounded: bool) -> dict[str, Any]:
    """The results of the pipeline by name."""

    def read(name: str) -> Any:
        stage = p.read(source(rows, unbounded=unbounded), name=name)
        return stage.with_event_time("time", jf.watermarks.fixed_lag("20ms"))

    first, second = read("first"), read("second")
    by_key = first.group_by("key")
    sliding = by_key.window(jf.sliding("200ms", "50ms")).agg(
        n=jf.count(), total=jf.sum("price"), mean=jf.mean("value"), least=jf.min("value"), most=jf.max("row"),
        spread=jf.stddev("value"), name="sliding",
    )  # fmt: skip
    texts = by_key.window(jf.tumbling("150ms")).agg(
        first=jf.first("text"), last=jf.last("text"), distinct=jf.count_distinct("text"),
        middle=jf.quantile("value", 0.5), texts=jf.collect_set("text"), name="texts",
    )  # fmt: skip
    sessions = first.where(col("row") % 9 == 0).group_by("text").window(jf.session("25ms"))
    thirds, fifths = first.where(col("row") % 3 == 0), second.where(col("row") % 5 == 0)
    names = p.read(jf.memory(pa.table({"key": pa.array(range(4), pa.int32()), "name": list("abcd")})), name="names")
    return {
        "sliding": sliding,
        "texts": texts,
        "sessions": sessions.agg(n=jf.count(), total=jf.sum("row"), name="sessions"),
        "top": by_key.window(jf.tumbling("100ms")).agg(n=jf.count(), total=jf.sum("row"), name="for top")
        .top(2, by="total", name="top"),
        "windows_of_windows": sliding.window(jf.tumbling("400ms")).agg(n=jf.sum("n"), name="windows of windows"),
        "window_join": thirds.window_join(fifths, jf.tumbling("100ms"), on="key", how="outer", name="window join"),
        "interval_join":
        thirds.interval_join(fifths, lower="-20ms", upper="20ms", on="key", how="outer", name="interval"),
        "asof_join": thirds.asof_join(fifths.drop("text"), on="key", tolerance="40ms", name="asof"),
        "hash_join": first.hash_join(names, on="key", how="left", name="hash"),
        "first_rows": by_window(first.drop_duplicates("key", "text", horizon="100ms", name="duplicates")),
        "running": first.where(col("row") < ROWS).group_by("key")
        .rolling_agg(n=jf.count(), total=jf.sum("row"), name="running"),
        "stateful": first.where(col("row") < ROWS).group_by("key")
        .map_stateful(count_rows, state=pa.int64(), schema=STATE, name="stateful"),
        "late": sliding.late_rows,
    }  # fmt: skip


def by_window(stage: Any) -> Any:
    """Which of several equal rows is first depends on timing: their count does not."""
    return stage.group_by("key").window(jf.tumbling("2s")).agg(keys=jf.count_distinct("text"), name="first rows")


def build(out: str, rows: int, *, unbounded: bool) -> jf.Pipeline:
    """The pipeline; it writes one directory a result below `out`."""
    p = jf.Pipeline(JOB)
    for name, stage in branches(p, rows, unbounded=unbounded).items():
        stage.write(jf.files(f"{out}/{name}", format="parquet"), name=f"to {name}")
    return p
