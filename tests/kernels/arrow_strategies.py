"""Hypothesis strategies: Arrow arrays of every type, with nulls, extremes, bit offsets and chunks."""

import decimal
import struct

import pyarrow as pa
from hypothesis import strategies as st

_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_UNITS = ["s", "ms", "us", "ns"]
_TEMPORAL = [
    pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    *[pa.timestamp(unit) for unit in _UNITS], pa.timestamp("us", "UTC"), *[pa.duration(unit) for unit in _UNITS],
]  # fmt: skip
_DECIMALS = [
    pa.decimal32(5, 2), pa.decimal64(16, 0), pa.decimal128(5, 2), pa.decimal128(18, 4), pa.decimal128(19, 3),
    pa.decimal128(38, 10), pa.decimal256(50, 3),
]  # fmt: skip
_BYTES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
    pa.binary(0), pa.binary(3), pa.binary(16),
]  # fmt: skip
_DICTIONARIES = [
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.uint16(), pa.int64()), pa.dictionary(pa.int64(), pa.float64()),
    pa.dictionary(pa.uint8(), pa.binary()), pa.dictionary(pa.uint32(), pa.bool_()),
    pa.dictionary(pa.uint64(), pa.large_string()), pa.dictionary(pa.int16(), pa.decimal128(20, 2)),
]  # fmt: skip
_NESTED = [
    pa.list_(pa.int32()), pa.struct({"p": pa.string(), "q": pa.list_(pa.int8())}), pa.list_(pa.int16(), 2),
    pa.map_(pa.string(), pa.int64()),
]  # fmt: skip

COLUMN_TYPES: list[pa.DataType] = [
    pa.null(), pa.bool_(), *_INTEGERS, pa.float16(), pa.float32(), pa.float64(), *_DECIMALS, *_TEMPORAL, *_BYTES,
    *_DICTIONARIES, *_NESTED,
]  # fmt: skip
"""Every type a batch carries."""

UNHASHABLE_TYPES = [
    data_type
    for data_type in COLUMN_TYPES
    if pa.types.is_nested(data_type) or data_type in (pa.uint64(), pa.float16()) or pa.types.is_decimal256(data_type)
]
KEY_TYPES = [data_type for data_type in COLUMN_TYPES if data_type not in UNHASHABLE_TYPES]
"""Those that Spark can hash, after the casts of csrc/jetfast/hash.hpp."""

NaN_PATTERNS = (0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000123)


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.sampled_from([low, high, 0, 1]), st.integers(low, high), st.integers(0, 5))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    largest = 10**precision - 1
    unscaled = st.one_of(
        st.sampled_from([0, 1, -1, 127, 128, -128, -129, 255, 256, largest, -largest]),
        st.integers(-largest, largest),
    )
    return unscaled.map(lambda value: decimal.Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale)))


def raw_storage(data_type: pa.DataType) -> pa.DataType | None:
    """The integer type with which to build arrays of temporal types bit by bit; None for others."""
    if not pa.types.is_temporal(data_type):
        return None
    return pa.int32() if data_type.bit_width == 32 else pa.int64()


def values(data_type: pa.DataType) -> st.SearchStrategy[object]:
    """Values of a type without nulls, as pa.array takes them; temporal types as integers (see raw_storage)."""
    if pa.types.is_boolean(data_type):
        return st.booleans()
    if pa.types.is_integer(data_type):
        return _integers(data_type.bit_width, not str(data_type).startswith("u"))
    if data_type == pa.float16():
        return st.floats(width=16, allow_nan=False)
    if pa.types.is_floating(data_type):
        return st.one_of(
            st.sampled_from([0.0, -0.0, 1.0, float("inf"), float("-inf")]),
            st.floats(width=data_type.bit_width, allow_nan=False),
        )
    if pa.types.is_decimal(data_type):
        return _decimals(data_type.precision, data_type.scale)
    if pa.types.is_date64(data_type):
        return st.integers(-100_000, 100_000).map(lambda day: day * 86_400_000)
    if pa.types.is_date32(data_type):
        return st.integers(-700_000, 2_900_000)
    if pa.types.is_time(data_type):
        per_day = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[data_type.unit] * 86_400
        return st.integers(0, per_day - 1)
    if pa.types.is_temporal(data_type):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[data_type.unit]
        return st.one_of(
            st.integers(-5 * per_second, 5 * per_second), st.integers(-(2**31) * per_second, 2**31 * per_second)
        )
    if pa.types.is_fixed_size_binary(data_type):
        return st.binary(min_size=data_type.byte_width, max_size=data_type.byte_width)
    if data_type in (pa.string(), pa.large_string(), pa.string_view()):
        return st.one_of(st.text(max_size=6), st.text(alphabet="abñ€😀", min_size=10, max_size=40))
    if data_type in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return st.one_of(st.binary(max_size=9), st.binary(min_size=10, max_size=40))
    if pa.types.is_map(data_type):
        return st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2).map(lambda d: list(d.items()))
    if pa.types.is_fixed_size_list(data_type):
        return st.lists(st.integers(-5, 5), min_size=data_type.list_size, max_size=data_type.list_size)
    if pa.types.is_list(data_type):
        return st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=3)
    if pa.types.is_struct(data_type):
        return st.fixed_dictionaries(
            {"p": st.one_of(st.none(), st.text(max_size=3)), "q": st.lists(st.integers(0, 9), max_size=2)}
        )
    raise NotImplementedError(data_type)


def _build(items: list[object], data_type: pa.DataType) -> pa.Array:
    storage = raw_storage(data_type)
    if storage is not None:
        return pa.array(items, storage).view(data_type)
    if data_type == pa.float16():
        import numpy as np

        return pa.array([None if item is None else np.float16(item) for item in items], pa.float16())
    return pa.array(items, data_type)


@st.composite
def arrays(draw: st.DrawFn, data_type: pa.DataType, row_count: int | None = None) -> pa.Array:
    """An array of a type, often a slice of a longer one, so that bit offsets occur."""
    length = draw(st.integers(0, 24)) if row_count is None else row_count
    before = draw(st.sampled_from([0, 0, 1, 3, 9]))
    after = draw(st.sampled_from([0, 2]))
    total = before + length + after
    if pa.types.is_null(data_type):
        return pa.nulls(total).slice(before, length)
    nullable = draw(st.booleans())
    if pa.types.is_dictionary(data_type):
        entries = draw(arrays(data_type.value_type, draw(st.integers(1, 6))))
        code = st.integers(0, len(entries) - 1)
        codes = draw(st.lists(st.one_of(st.none(), code) if nullable else code, min_size=total, max_size=total))
        array = pa.DictionaryArray.from_arrays(pa.array(codes, data_type.index_type), entries)
        return array.slice(before, length)
    value = values(data_type)
    items = draw(st.lists(st.one_of(st.none(), value) if nullable else value, min_size=total, max_size=total))
    return _build(items, data_type).slice(before, length)


@st.composite
def columns_of(draw: st.DrawFn, types: list[pa.DataType] = COLUMN_TYPES, column_count: int = 3) -> pa.RecordBatch:
    """A record batch of up to `column_count` columns of random types, sometimes a slice."""
    row_count = draw(st.integers(0, 24))
    chosen = [draw(st.sampled_from(types)) for _ in range(draw(st.integers(1, column_count)))]
    columns = [draw(arrays(data_type, row_count)) for data_type in chosen]
    rows = pa.RecordBatch.from_arrays(columns, [f"c{index}" for index in range(len(columns))])
    start = draw(st.integers(0, row_count))
    return rows.slice(start) if draw(st.booleans()) else rows


def floats_with_nan(width: int) -> st.SearchStrategy[float]:
    """Floats of all kinds, several NaN patterns and both zeros included."""
    patterns = st.sampled_from(NaN_PATTERNS).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
    return st.one_of(patterns, st.sampled_from([0.0, -0.0]), st.floats(width=width))
