"""Keys to slots: equal keys, and only they, share a slot; keys come out as they went in."""

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.columns import Batch
from jetfast.kernels.joins import NO_SLOT
from jetfast.kernels.keys import KeyIndex
from tests.kernels.reference_windows import canonical

VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 0, 127],
    pa.int16(): [-(2**15), -1, 5],
    pa.int32(): [-(2**31), 0, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 2**63 - 1],
    pa.uint8(): [0, 255],
    pa.uint16(): [0, 2**16 - 1],
    pa.uint32(): [0, 2**32 - 1],
    pa.float32(): [0.0, -0.0, 1.5, math.nan, math.inf],
    pa.float64(): [0.0, -0.0, -1.5, math.nan, -math.inf],
    pa.decimal32(7, 2): [Decimal("1.25"), Decimal("-1.25")],
    pa.decimal64(12, 3): [Decimal("1.250"), Decimal("-99999999.125")],
    pa.decimal128(38, 2): [Decimal("1.25"), Decimal(10) ** 35, -(Decimal(10) ** 35)],
    pa.string(): ["", "a", "aa", *("x" * length for length in (13, 14, 15, 16, 40)), "x" * 39 + "y"],
    pa.large_string(): ["", "a", "x" * 40],
    pa.string_view(): ["", "a", "twelve bytes", "thirteen byte", "x" * 40],
    pa.binary(): [*(b"\x00" * length for length in (0, 1, 2, 14, 15, 16)), b"z" * 30],
    pa.large_binary(): [b"", b"\x00"],
    pa.binary_view(): [b"", b"\x00", b"z" * 30],
    pa.binary(3): [b"abc", b"abd"],
    pa.date32(): [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
    pa.date64(): [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
    pa.time32("s"): [datetime.time(1, 2, 3), datetime.time(0)],
    pa.time64("us"): [datetime.time(1, 2, 3, 4), datetime.time(0)],
    pa.timestamp("ns"): [datetime.datetime(1960, 1, 1), datetime.datetime(2020, 1, 1)],
    pa.timestamp("s", "UTC"): [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)],
    pa.duration("ms"): [datetime.timedelta(milliseconds=-5), datetime.timedelta(days=3)],
    pa.null(): [],
    pa.dictionary(pa.int8(), pa.string()): ["a", "b", "x" * 40],
    pa.dictionary(pa.uint16(), pa.int64()): [1, 2, 3],
    pa.dictionary(pa.int64(), pa.float64()): [0.0, -0.0, math.nan],
}

# Columns that may fit together into the two words of a packed key, or not, depending on their values.
SMALL = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float64(),
    pa.string(),
    pa.string_view(),
    pa.binary(),
]


def to_array(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(data_type):
        return pa.array(values, data_type.value_type).dictionary_encode().cast(data_type)
    return pa.array(values, data_type)


def to_batch(rows: Sequence[tuple[Any, ...]], types: Sequence[pa.DataType], padding: int = 0) -> Batch:
    padded = [*rows[:1] * padding, *rows, *rows[:1] * padding]
    names = [f"key{number}" for number in range(len(types))]
    columns = [to_array([row[number] for row in padded], data_type) for number, data_type in enumerate(types)]
    schema = pa.schema(zip(names, types, strict=True))
    return Batch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=schema).slice(padding, len(rows)))


def plain(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_equal_keys_share_a_slot_and_come_out_with_their_type(data: st.DataObject) -> None:
    types = data.draw(
        st.lists(st.sampled_from(data.draw(st.sampled_from([list(VALUES), SMALL]))), min_size=1, max_size=4)
    )
    names = [f"key{number}" for number in range(len(types))]
    cells = [st.sampled_from([*VALUES[data_type], None]) for data_type in types]
    index = KeyIndex(pa.schema(zip(names, types, strict=True)), names)
    assert index.key_schema.types == [plain(data_type) for data_type in types]
    slot_of: dict[tuple[Any, ...], int] = {}
    for rows in data.draw(st.lists(st.lists(st.tuples(*cells), min_size=1, max_size=20), min_size=1, max_size=4)):
        batch = to_batch(rows, types, padding=data.draw(st.integers(0, 9)))
        known = [slot_of.get(tuple(canonical(value) for value in row), NO_SLOT) for row in rows]
        assert index.find_slots(batch).tolist() == known
        assert len(index) == len(slot_of)
        slots = index.assign_slots(batch)
        for row, slot in zip(rows, slots.tolist(), strict=True):
            assert slot_of.setdefault(tuple(canonical(value) for value in row), slot) == slot
        if data.draw(st.booleans()):  # some keys go; what stays keeps its slot
            gone = data.draw(st.sets(st.sampled_from(sorted(slot_of, key=repr))))
            index.release(np.array([slot_of.pop(key) for key in gone], dtype=np.uint32))
    assert len(index) == len(slot_of) == len(set(slot_of.values()))
    batch = index.keys_of(np.array(list(slot_of.values()), dtype=np.uint32)).to_arrow()
    batch.validate(full=True)
    assert batch.schema == index.key_schema
    found = [tuple(canonical(value) for value in row.values()) for row in batch.to_pylist()]
    assert [tuple(map(repr, key)) for key in found] == [tuple(map(repr, expected(key, types))) for key in slot_of]


def expected(key: tuple[Any, ...], types: Sequence[pa.DataType]) -> tuple[Any, ...]:
    """The key as Arrow gives it back (a timestamp in nanoseconds becomes another Python type)."""
    arrays = [
        pa.array([math.nan if value == "NaN" else value], plain(kind)) for value, kind in zip(key, types, strict=True)
    ]
    return tuple(canonical(array.to_pylist()[0]) for array in arrays)


@pytest.mark.parametrize("types", [[pa.int64()], [pa.int64(), pa.int64()], [pa.string()]], ids=["word", "two", "text"])
def test_many_keys_grow_the_table_and_slots_stay_dense(types: list[pa.DataType]) -> None:
    keys = np.random.default_rng(5).permutation(np.arange(-30_000, 30_000, dtype=np.int64) * 2**33)
    names = ["key", "more"][: len(types)]
    batch = pa.record_batch([pa.array(keys).cast(data_type) for data_type in types], names=names)
    index = KeyIndex(batch.schema, names)
    slots = np.concatenate(
        [index.assign_slots(Batch.from_arrow(batch.slice(start, 997))) for start in range(0, len(keys), 997)]
    )
    assert sorted(slots.tolist()) == list(range(60_000))
    assert index.keys_of(slots).to_arrow().equals(batch)
    assert np.array_equal(index.assign_slots(Batch.from_arrow(batch)), slots)
    assert np.array_equal(index.find_slots(Batch.from_arrow(batch)), slots)
    index.clear()
    assert len(index) == 0
    assert set(index.find_slots(Batch.from_arrow(batch)).tolist()) == {NO_SLOT}
    assert index.assign_slots(Batch.from_arrow(batch.slice(7, 2))).tolist() == [0, 1]


@pytest.mark.parametrize("data_type", [pa.int64(), pa.string()])
def test_memory_is_bounded_by_live_keys(data_type: pa.DataType) -> None:
    """Keys that come and go for ever: slots and cells are used again."""
    index = KeyIndex(pa.schema([("key", data_type)]), ["key"])
    sizes = []
    for start in range(0, 200_000, 1000):
        keys = pa.array(np.arange(start, start + 1000)).cast(data_type)
        slots = index.assign_slots(Batch.from_arrow(pa.record_batch([keys], names=["key"])))
        assert len(index) == 1000
        index.release(slots)
        sizes.append(index.nbytes)
    assert index.slot_limit == 1000
    assert sizes[-1] <= 2 * sizes[10]


def test_words_that_mark_cells_are_keys_like_others() -> None:
    marks = np.array([0x9D3A5C1BE7F2604B, 0x9D3A5C1BE7F2604C], dtype=np.uint64).view(np.int64)
    index = KeyIndex(pa.schema([("key", pa.int64())]), ["key"])
    batch = Batch.from_arrow(pa.record_batch([pa.array([*marks.tolist(), 1, None, *marks.tolist()])], names=["key"]))
    slots = index.assign_slots(batch)
    assert len(set(slots[:4].tolist())) == 4
    assert slots[4:].tolist() == slots[:2].tolist()
    assert index.keys_of(slots).to_arrow().column(0).to_pylist() == batch.to_arrow().column(0).to_pylist()
    index.release(slots[[0, 3]])
    assert len(index) == 2
    assert len(set(index.assign_slots(batch).tolist())) == 4


def test_no_key_columns_are_one_global_key() -> None:
    index = KeyIndex(pa.schema([("value", pa.int64())]), [])
    batch = Batch.from_arrow(pa.record_batch([pa.array([1, 2, 3])], names=["value"]))
    assert index.assign_slots(batch).tolist() == [0, 0, 0]
    assert len(index) == 1
    index.release(np.array([0], dtype=np.uint32))
    assert len(index) == 0


def test_a_dictionary_much_larger_than_its_batch_is_read_by_value() -> None:
    index = KeyIndex(pa.schema([("key", pa.dictionary(pa.int32(), pa.string()))]), ["key"])
    words = pa.array([str(number) for number in range(5000)])
    codes = pa.array([4000, None, 17, 4000], pa.int32())
    batch = pa.record_batch([pa.DictionaryArray.from_arrays(codes, words)], names=["key"])
    slots = index.assign_slots(Batch.from_arrow(batch))
    assert slots[0] == slots[3]
    assert index.keys_of(slots).to_arrow().column(0).to_pylist() == ["4000", None, "17", "4000"]


@pytest.mark.parametrize("data_type", [pa.uint64(), pa.float16(), pa.decimal256(50, 2), pa.list_(pa.int64())])
def test_a_type_that_cannot_be_a_key_is_named(data_type: pa.DataType) -> None:
    with pytest.raises(TypeError, match="'key'"):
        KeyIndex(pa.schema([("key", data_type)]), ["key"])


def test_a_batch_of_another_schema_is_refused() -> None:
    index = KeyIndex(pa.schema([("key", pa.int64())]), ["key"])
    with pytest.raises(ValueError, match="column 'key' of a batch of keys must be int64, got int32"):
        index.assign_slots(Batch.from_arrow(pa.record_batch([pa.array([1], pa.int32())], names=["key"])))
    with pytest.raises(ValueError, match="no column 'other'"):
        KeyIndex(pa.schema([("key", pa.int64())]), ["other"])
