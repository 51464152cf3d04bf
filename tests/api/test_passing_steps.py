"""Steps that pass rows on or make rows of rows: flat_map, explode, rebalance, sort, peek, services."""

import io
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jetfast as jf
from jetfast import col
from jetfast.core.batch import Batch
from jetfast.core.processor import Processor, ProcessorContext
from jetfast.core.routing import RoutingKind
from jetfast.core.sort_order import order_of
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.errors import JobDefinitionError, JobFailedError
from jetfast.processors.peek import Peek
from jetfast.processors.sort_rows import SortRows
from jetfast.testing import verify_processor

ROWS = pa.table(
    {
        "n": [3, 1, None, 2, 1],
        "x": [0.5, float("nan"), 1.5, None, -1.0],
        "tags": [["a", "b"], [], None, ["c"], ["d", None]],
        "at": pa.array([1, 2, 3, 4, 5], pa.timestamp("s")),
    }
)
EXPLODED = pa.schema([("n", pa.int64()), ("letter", pa.string())])


def rows_stage() -> Any:
    return jf.Pipeline("steps").read(jf.memory(ROWS, batch_rows=2), name="rows").with_event_time("at")


def run(stage: Any, **options: Any) -> list[dict[str, Any]]:
    stage.collect()
    found = jf.LocalCluster(workers=3, **options).submit(stage.pipeline, progress=False).to_arrow()
    assert found.schema.equals(stage.schema)
    return found.to_pylist()


def letters(row: dict[str, Any]) -> Any:
    return None if row["tags"] is None else ({"n": row["n"], "letter": tag} for tag in row["tags"])


def test_a_row_becomes_any_number_of_rows():
    found = run(rows_stage().flat_map(letters, schema=EXPLODED))
    assert sorted(map(str, found)) == sorted(
        str({"n": n, "letter": letter}) for n, letter in [(3, "a"), (3, "b"), (2, "c"), (1, "d"), (1, None)]
    )


def test_explode_gives_a_row_for_each_element_and_keeps_event_time():
    stage = rows_stage().explode("tags")
    assert stage.event_time == "at"
    found = run(stage)
    assert sorted((row["at"].second, str(row["tags"])) for row in found) == [
        (1, "a"), (1, "b"), (4, "c"), (5, "None"), (5, "d"),
    ]  # fmt: skip


def test_rows_are_sent_to_all_workers_in_turn_or_by_keys():
    for keys, kind in (((), RoutingKind.UNICAST), (("n",), RoutingKind.PARTITIONED)):
        stage = rows_stage().rebalance(*keys, name="spread")
        assert sorted(row["at"].second for row in run(stage)) == [1, 2, 3, 4, 5]
        (edge,) = stage.pipeline.plan(member_count=2).inbound("spread")
        assert (edge.routing.kind, edge.routing.keys, edge.distributed) == (kind, keys, True)


def test_sorted_rows_stay_sorted_behind_further_steps():
    stage = rows_stage().sort("n", "x", descending=[False, True])
    assert [(row["n"], str(row["x"])) for row in run(stage)] == [
        (1, "-1.0"), (1, "nan"), (2, "None"), (3, "0.5"), (None, "1.5"),
    ]  # fmt: skip
    many = pa.table({"v": [(n * 7919) % 10_007 for n in range(10_000)]})
    stage = jf.Pipeline("many").read(jf.memory(many, batch_rows=100)).sort("v").where(col("v") % 2 == 0)
    found = [row["v"] for row in run(stage.select((col("v") + 1).alias("v")))]
    assert found == sorted(found)
    assert len(found) > 4000


def test_sorting_is_verified_in_every_mode():
    batches = [ROWS.select(["n", "x"]).to_batches()[0].slice(start, 2) for start in (0, 2, 4)]
    schema = batches[0].schema
    verify_processor(lambda: SortRows(schema, [("n", "descending")]), batches)


def test_the_first_rows_of_each_worker_are_printed_and_all_pass():
    stream = io.StringIO()
    batches = [ROWS.select(["n", "at"]).to_batches()[0].slice(start, 2) for start in (0, 2, 4)]
    found = verify_processor(lambda: Peek(3, stream), batches)
    assert [row["n"] for row in found] == ROWS["n"].to_pylist()
    lines = stream.getvalue().splitlines()[:3]
    assert lines == [
        "verified-0: n=3, at=1970-01-01 00:00:01",
        "verified-0: n=1, at=1970-01-01 00:00:02",
        "verified-0: n=None, at=1970-01-01 00:00:03",
    ]


def test_peek_prints_where_it_runs(capsys):
    assert len(run(rows_stage().select("n").peek(1))) == 5
    assert re.search(r"peek-\d: n=", capsys.readouterr().out)


async def ask(service: Any, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["n", "at"]).append_column("answer", pa.array([service] * rows.num_rows))


ANSWER = pa.schema([("n", pa.int64()), ("at", pa.timestamp("s")), ("answer", pa.string())])


@pytest.mark.parametrize("in_flight", ["wait", "save"])
def test_a_service_is_asked_in_a_job_with_snapshots(in_flight):
    stage = rows_stage().map_using_service(
        lambda: "42", ask, schema=ANSWER, concurrency=2, batch_rows=1, ordered=False, in_flight=in_flight
    )
    assert stage.event_time == "at"
    found = run(stage, snapshot_store=MemorySnapshotStore())
    assert sorted((row["at"].second, row["answer"]) for row in found) == [(n, "42") for n in range(1, 6)]


class Counting(Processor):
    """Each row with how many rows its processor has taken in."""

    def open(self, context: ProcessorContext) -> None:
        self.count = 0

    def process(self, ordinal: int, batch: Batch) -> Any:
        first, self.count = self.count + 1, self.count + batch.row_count
        counts = pa.array(range(first, self.count + 1), pa.int64())
        yield batch.with_columns(Batch.from_arrow(pa.record_batch({"count": counts})))


def test_a_processor_of_the_user_gets_the_rows_of_its_keys():
    pipeline = jf.Pipeline("custom")
    stage = pipeline.read(jf.memory(partitions={"one": ROWS}, batch_rows=1), name="rows").with_event_time("at")
    schema = stage.schema.append(pa.field("count", pa.int64()))
    counted = stage.custom(Counting, schema=schema, keys="n", name="counted")
    assert counted.event_time == "at"
    found = run(counted)
    (edge,) = pipeline.plan(member_count=2).inbound("counted")
    assert (edge.routing.keys, edge.distributed) == (("n",), True)
    assert len(found) == 5
    first, second = sorted(row["count"] for row in found if row["n"] == 1)
    assert first < second


SERVICE: dict[str, Any] = {"create": dict, "function": ask, "schema": ANSWER}
WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "no function": (lambda s: s.flat_map("f", schema=EXPLODED), "flat_map needs a function, got 'f'"),
    "no list": (lambda s: s.explode("n"), "explode needs a column of lists, 'n' is int64"),
    "no column": (lambda s: s.rebalance("m"), "there is no column 'm' (as key)"),
    "no processor": (lambda s: s.custom(3, schema=EXPLODED), "custom needs a class or function, got 3"),
    "another class": (
        lambda s: s.custom(partial(dict, a=1), schema=EXPLODED),
        "custom needs a class derived from jetfast.core.processor.Processor, got dict",
    ),
    "rows without a schema": (lambda s: s.map_rows(letters, schema=None), "schema must be a pyarrow.Schema"),
    "an order that is none": (lambda s: s.sort("n", descending="yes"), "descending must be True or False, for each"),
    "no order of answers": (
        lambda s: s.map_using_service(**SERVICE, ordered="no"),
        "ordered must be True or False, got 'no'",
    ),
    "no schema of it": (lambda s: s.custom(Counting, schema=None), "schema must be a pyarrow.Schema, got NoneType"),
    "sort by nothing": (lambda s: s.sort(), "sort needs at least one column"),
    "sort by lists": (lambda s: s.sort("tags"), "rows cannot be put in order by tags"),
    "two orders": (lambda s: s.sort("n", descending=[True, True]), "descending= has 2 values for 1 columns"),
    "sort without end": (
        lambda s: jf.Pipeline().read(jf.generator({"n": pa.int64()}, rate=1), name="endless").sort("n"),
        "sort waits for the end of its input, and 'endless' has none",
    ),
    "peek at nothing": (lambda s: s.peek(0), "peek needs a number of rows of at least 1, got 0"),
    "no service": (lambda s: s.map_using_service(**(SERVICE | {"create": 3})), "create must be a function, got 3"),
    "no schema": (lambda s: s.map_using_service(**(SERVICE | {"schema": {}})), "schema must be a pyarrow.Schema"),
    "no calls": (lambda s: s.map_using_service(**SERVICE, concurrency=0), "concurrency must be a whole number of at"),
    "no such way": (
        lambda s: s.map_using_service(**SERVICE, in_flight="drop"),
        'in_flight must be "wait" or "save", got \'drop\'',
    ),
}


@pytest.mark.parametrize(("build", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_step_is_an_error_at_build(build: Callable[[Any], object], message: str) -> None:
    with pytest.raises(JobDefinitionError, match=re.escape(message)):
        build(rows_stage())


def run_sorted(data_type, values, **settings):
    rows = pa.table({"x": pa.array(values, data_type), "y": range(len(values))})
    stage = jf.Pipeline("sorted").read(jf.memory([rows.slice(0, 2), rows.slice(2)]))
    return [row["y"] for row in run(stage.sort("x", "y", **settings))]


@pytest.mark.parametrize(
    "data_type",
    [
        pa.string_view(),
        pa.binary_view(),
        pa.float16(),
        pa.bool_(),
        pa.decimal32(9, 1),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_rows_are_sorted_by_several_columns_of_every_type_that_has_an_order(data_type):
    low, high = {pa.bool_(): (False, True), pa.float16(): (1.5, 2.5), pa.binary_view(): (b"a", b"b")}.get(
        data_type, (Decimal("1.5"), Decimal("2.5")) if pa.types.is_decimal(data_type) else ("a", "b")
    )
    assert run_sorted(data_type, [high, None, low, high, low]) == [2, 4, 0, 3, 1]
    assert run_sorted(data_type, [high, None, low, high, low], descending=[True, True]) == [3, 0, 4, 2, 1]


SORTED_TYPES = st.sampled_from(
    [pa.decimal32(7, 2), pa.decimal64(15, 2), pa.decimal128(20, 2), pa.dictionary(pa.int8(), pa.decimal32(7, 2))]
)
SORTED_ROWS = st.lists(st.tuples(st.integers(0, 2), st.none() | st.decimals(-99999, 99999, places=2)), max_size=30)


@given(SORTED_TYPES, SORTED_ROWS, st.booleans())
def test_decimals_of_every_width_are_sorted_beside_other_columns(data_type, rows, descending):
    def place(row: int) -> Any:
        group, value = rows[row]
        return group, value is None, 0 if value is None else -value if descending else value, row

    plain = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    values = pa.array([value for _, value in rows], plain)
    if plain != data_type:
        values = pa.DictionaryArray.from_arrays(pa.array(range(len(rows)), pa.int8()), values)
    table = pa.table({"group": pa.array([group for group, _ in rows], pa.int64()), "value": values})
    order = order_of(table, [("group", "ascending"), ("value", "descending" if descending else "ascending")])
    assert order.to_pylist() == sorted(range(len(rows)), key=place)


def test_a_column_without_an_order_is_refused_by_name_and_one_beside_it_is_not():
    rows = pa.table({"x": [[1], [2]], "y": [2, 1]})
    stage = jf.Pipeline("sorted").read(jf.memory(rows))
    with pytest.raises(JobDefinitionError, match="column 'x' of type list<item: int64> has no order"):
        stage.sort("y", "x")
    assert [row["x"] for row in run(stage.sort("y"))] == [[2], [1]]


def test_the_error_of_a_function_of_rows_names_the_row():
    def half(row):
        return {"v": row["v"] // (row["v"] - 3)}

    rows = jf.memory(pa.table({"v": range(6)}))
    stage = jf.Pipeline("rows").read(rows).map_rows(half, schema=pa.schema([("v", pa.int64())]))
    with pytest.raises(JobFailedError, match=r"half failed on row 3, \{'v': 3\}: ZeroDivisionError"):
        run(stage)
    stage = (
        jf.Pipeline("rows")
        .read(rows)
        .map_rows(
            lambda row: None if row["v"] < 2 else {"v": "four" if row["v"] == 4 else 1},
            schema=pa.schema([("v", pa.int64())]),
        )
    )
    with pytest.raises(JobFailedError, match=r"failed on row 4, \{'v': 4\}: ArrowInvalid"):
        run(stage)
    stage = (
        jf.Pipeline("rows")
        .read(rows)
        .flat_map(lambda row: [{"v": 1}, {"v": [] if row["v"] == 2 else 2}], schema=pa.schema([("v", pa.int64())]))
    )
    with pytest.raises(JobFailedError, match=r"failed on row 2, \{'v': 2\}: ArrowInvalid"):
        run(stage)


def test_a_function_that_gives_a_column_without_a_type_is_refused():
    stage = jf.Pipeline("rows").read(jf.memory(pa.table({"v": range(6)})))
    with pytest.raises(JobDefinitionError, match=r"column 'w' without a type \(null\) .*give schema="):
        stage.map_batches(lambda rows: rows.append_column("w", pa.array([None] * rows.num_rows)))


def test_columns_of_one_name_are_refused_where_they_are_read():
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(JobDefinitionError, match="'memory': 2 columns are named 'a'; give each"):
        jf.Pipeline("twice").read(jf.memory(rows))
