"""The form in which batches carry Arrow types: each comes in, moves, is sent, and leaves as it should."""

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jetfast.kernels.carried import carried_array, carried_schema, carried_type, restored_schema
from jetfast.kernels.columns import Batch, batches_from_arrow, concatenate, put_beside
from tests.arrow_types.samples import SAMPLES, Celsius, Sample


def stored(value: Any) -> Any:
    """A value without the Python types of extension types."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, list):
        return [stored(each) for each in value]
    return {key: stored(each) for key, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_column_of_every_type_is_carried_with_its_values(sample: Sample) -> None:
    rows = pa.record_batch({"x": sample.column, "n": range(6)})
    schema = carried_schema(rows.schema)
    for part in (rows, rows.slice(1, 4), rows.slice(5), rows.slice(2, 0)):
        batch = Batch.from_arrow(part)
        expected = [stored(value) for value in part.column("x").to_pylist()]
        for made in (batch, next(batches_from_arrow(pa.Table.from_batches([part])), batch)):
            assert made.schema.equals(schema)
            carried = made.to_arrow()
            carried.validate(full=True)
            assert carried.column("x").to_pylist() == expected
        message = b"".join(batch.encode())
        decoded = Batch.decode(batch.schema, message).to_arrow()
        assert decoded.schema.equals(schema)
        assert decoded.column("x").to_pylist() == expected
        twice = concatenate([batch, Batch.from_arrow(rows)])
        order = np.arange(twice.row_count, dtype=np.int32)[::-1]
        reversed_values = [stored(value) for value in [*sample.values[::-1], *expected[::-1]]]
        assert twice.take(order).to_arrow().column("x").to_pylist() == reversed_values


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_schema_that_is_carried_is_carried_as_it_is(sample: Sample) -> None:
    carried = carried_schema(pa.schema([("x", sample.column.type)]))
    assert carried_schema(carried) is carried


@pytest.mark.parametrize("sample", [s for s in SAMPLES if "extension" in s.name], ids=lambda sample: sample.name)
def test_an_extension_type_is_restored_where_nothing_else_was_converted(sample: Sample) -> None:
    rows = pa.record_batch([sample.column], schema=pa.schema([pa.field("x", sample.column.type, metadata={"a": "b"})]))
    restored = restored_schema(carried_schema(rows.schema).set(0, carried_schema(rows.schema).field(0).with_name("y")))
    if "run-end" in sample.name or "dictionary" in sample.name:
        assert restored.types == carried_schema(rows.schema).types
        return
    assert restored.equals(rows.rename_columns(["y"]).schema, check_metadata=True)
    assert put_beside(restored, [Batch.from_arrow(rows)]).to_arrow().column(0).equals(sample.column)


def test_a_column_that_took_another_type_on_the_way_keeps_it() -> None:
    field = carried_schema(pa.schema([("x", pa.uuid())])).field(0)
    assert restored_schema(pa.schema([field.with_type(pa.string())])).field(0).type == pa.string()


def test_an_extension_type_that_is_not_registered_keeps_its_name() -> None:
    carried = carried_schema(pa.schema([("x", Celsius())]))
    pa.unregister_extension_type("jetfast.tests.celsius")
    try:
        restored = restored_schema(carried).field(0)
    finally:
        pa.register_extension_type(Celsius())
    assert restored.type == pa.float64()
    assert restored.metadata == {
        b"ARROW:extension:name": b"jetfast.tests.celsius",
        b"ARROW:extension:metadata": b"",
    }


def test_a_union_of_views_is_refused_by_name() -> None:
    union = pa.dense_union([pa.field("s", pa.string_view()), pa.field("n", pa.int64())])
    with pytest.raises(TypeError, match=r"column 'x' of type .* cannot be carried: a union holds views"):
        carried_schema(pa.schema([("x", union)]))
    ids = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([b"a" * 16, None], pa.uuid())])
    assert carried_array(ids, carried_type(ids.type)).to_pylist() == [b"a" * 16, None]


def test_large_lists_of_views_are_cut_before_they_are_converted() -> None:
    lists = pa.array([[str(row)] * 3 for row in range(1000)], pa.large_list(pa.string_view()))
    part = carried_array(lists.slice(990, 5), carried_type(lists.type))
    assert len(part.values) == 15
    assert part.to_pylist() == [[str(row)] * 3 for row in range(990, 995)]
