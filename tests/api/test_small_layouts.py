"""Types in places where Arrow has no function for them, and numbers that a double cannot hold."""

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.api.stage import Stage

TIMES = pa.array([0, 1], pa.timestamp("s"))


def run(stage: Stage) -> list[dict[str, object]]:
    stage.collect()
    rows: list[dict[str, object]] = (
        jf.LocalCluster(workers=1).submit(stage.pipeline, progress=False).to_arrow().to_pylist()
    )
    return rows


def read(columns: dict[str, pa.Array]) -> Stage:
    source = jf.memory(pa.table(columns | {"t": TIMES}))
    return jf.Pipeline("layouts").read(source, name="rows").with_event_time("t")


def test_a_running_mean_takes_integers_beyond_the_precision_of_a_double() -> None:
    values = pa.array([2**53 + 1, 2**62 + 1])
    rows = run(read({"v": values, "k": pa.array(["a", "b"])}).group_by("k").rolling_agg(mean=jf.mean("v")))
    assert sorted(row["mean"] for row in rows) == [float(2**53), float(2**62)]  # type: ignore[type-var]


def test_concat_joins_texts_of_64_bit_offsets() -> None:
    rows = run(
        read({"v": pa.array(["a", "b"], pa.large_string())}).window(jf.tumbling("1m")).agg(v=jf.concat("v", "-"))
    )
    assert [row["v"] for row in rows] == ["a-b"]


@pytest.mark.parametrize("list_type", [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_view(pa.int64())])
def test_explode_repeats_views(list_type: pa.DataType) -> None:
    lists = pa.array([[1, 2], [3]], list_type)
    rows = run(read({"v": lists, "text": pa.array(["a", "b"], pa.string_view())}).explode("v").select("v", "text"))
    assert [tuple(row.values()) for row in rows] == [(1, "a"), (2, "a"), (3, "b")]


@pytest.mark.parametrize("values", [pa.decimal128(9, 2), pa.date32(), pa.duration("s"), pa.string_view()])
def test_a_table_without_rows_may_have_dictionaries_of_any_type(values: pa.DataType) -> None:
    schema = pa.schema([("v", pa.dictionary(pa.int8(), values))])
    assert run(jf.Pipeline("empty").read(jf.memory(pa.Table.from_batches([], schema), partitions=2), name="rows")) == []


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()], ids=str)
def test_the_best_results_of_windows_may_have_keys_that_are_views(view: pa.DataType) -> None:
    keys = pa.array(["longer than twelve bytes", "b"]).cast(pa.binary() if view == pa.binary_view() else pa.string())
    grouped = read({"k": keys.cast(view), "v": pa.array([1, 2])}).group_by("k").window(jf.tumbling("10s"))
    rows = run(grouped.agg(total=jf.sum("v"), name="sums").top(1, by="total", name="best"))
    assert [(row["k"], row["rank"]) for row in rows] == [(keys[1].as_py(), 1)]
