"""A column of every Arrow type, six rows each: two values, a null, and one of the values again."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

Make = Callable[[list[Any]], pa.Array]

ORDER = (0, 1, None, 1, 0, None)
"""Which of its two values each row has."""


@dataclass(frozen=True)
class Sample:
    """A type by the name that the page gives it, and its column."""

    name: str
    column: pa.Array

    @property
    def values(self) -> list[Any]:
        return self.column.to_pylist()


def sample(name: str, data_type: pa.DataType, low: Any, high: Any) -> Sample:
    values = [None if which is None else (low, high)[which] for which in ORDER]
    return Sample(name, pa.array(values, data_type))


def made(name: str, of: Sample, make: Callable[[pa.Array], pa.Array]) -> Sample:
    return Sample(name, make(of.column))


def extension(data_type: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda array: pa.ExtensionArray.from_storage(data_type, array.cast(data_type.storage_type))


def dictionary_of(array: pa.Array) -> pa.Array:
    """Codes by hand: Arrow has no dictionary_encode of some types. One value of the dictionary is null."""
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, 0, None], pa.int8()), array.slice(0, 3))


def run_ends(array: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(array) + 1), pa.int32()), array)


def unions(array: pa.Array, dense: bool) -> pa.Array:
    """Without nulls, which unions do not have: a member may be null."""
    kinds = pa.array([0, 1, 0, 1, 0, 1], pa.int8())
    words = pa.array(["p", "q", "r", "s", "t", "u"])
    if dense:
        return pa.UnionArray.from_dense(kinds, pa.array([0, 0, 1, 1, 2, 2], pa.int32()), [array, words])
    return pa.UnionArray.from_sparse(kinds, [array, words])


class Celsius(pa.ExtensionType):
    """An extension type of a user."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "jetfast.tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "Celsius":
        return cls()


pa.register_extension_type(Celsius())

UTF8 = sample("string", pa.string(), "a", "é")
BYTES = sample("binary", pa.binary(), b"a", b"\xff")
INT64 = sample("int64", pa.int64(), -1, 2**53 + 1)
FLOAT64 = sample("float64", pa.float64(), -1.5, 2.5)
DATE32 = sample("date32", pa.date32(), date(1969, 12, 31), date(2024, 2, 29))
MOMENTS = datetime(1969, 12, 31, 23, 59, 58), datetime(2024, 2, 29, 12, 0, 1)
SECONDS = sample("timestamp[s]", pa.timestamp("s"), *MOMENTS)
MICROS = sample("timestamp[us]", pa.timestamp("us"), *MOMENTS)
DECIMAL = sample("decimal128", pa.decimal128(10, 2), Decimal("-1.50"), Decimal("99999999.99"))
SIXTEEN = sample("fixed_size_binary[16]", pa.binary(16), b"a" * 16, b"b" * 16)
STRUCT_OF_VIEWS = pa.struct([("s", pa.string_view()), ("n", pa.int32())])
LISTS = [["a", None], ["b"]]

SAMPLES = [
    Sample("null", pa.nulls(6)),
    sample("bool", pa.bool_(), False, True),
    sample("int8", pa.int8(), -128, 127),
    sample("int16", pa.int16(), -(2**15), 2**15 - 1),
    sample("int32", pa.int32(), -(2**31), 2**31 - 1),
    INT64,
    sample("uint8", pa.uint8(), 0, 255),
    sample("uint16", pa.uint16(), 0, 2**16 - 1),
    sample("uint32", pa.uint32(), 0, 2**32 - 1),
    sample("uint64", pa.uint64(), 0, 2**64 - 1),
    sample("float16", pa.float16(), -1.5, 2.5),
    sample("float32", pa.float32(), -1.5, 2.5),
    FLOAT64,
    sample("decimal32", pa.decimal32(9, 2), Decimal("-1.50"), Decimal("9999999.99")),
    sample("decimal64", pa.decimal64(18, 2), Decimal("-1.50"), Decimal("99999999.99")),
    DECIMAL,
    sample("decimal256", pa.decimal256(40, 2), Decimal("-1.50"), Decimal("99999999.99")),
    DATE32,
    sample("date64", pa.date64(), date(1969, 12, 31), date(2024, 2, 29)),
    sample("time32[s]", pa.time32("s"), time(0, 0, 1), time(23, 59, 59)),
    sample("time32[ms]", pa.time32("ms"), time(0, 0, 1), time(23, 59, 59, 999000)),
    sample("time64[us]", pa.time64("us"), time(0, 0, 1), time(23, 59, 59, 999999)),
    sample("time64[ns]", pa.time64("ns"), time(0, 0, 1), time(23, 59, 59, 999999)),
    SECONDS,
    sample("timestamp[ms]", pa.timestamp("ms"), *MOMENTS),
    MICROS,
    sample("timestamp[ns]", pa.timestamp("ns"), *MOMENTS),
    sample("timestamp[us, tz]", pa.timestamp("us", "Europe/Berlin"), *MOMENTS),
    sample("duration[s]", pa.duration("s"), timedelta(seconds=-1), timedelta(days=3)),
    sample("duration[ns]", pa.duration("ns"), timedelta(seconds=-1), timedelta(days=3)),
    sample("month_day_nano_interval", pa.month_day_nano_interval(), (-1, 2, 3), (4, 5, 6)),
    UTF8,
    sample("large_string", pa.large_string(), "a", "é"),
    sample("string_view", pa.string_view(), "a", "é, longer than twelve bytes"),
    BYTES,
    sample("large_binary", pa.large_binary(), b"a", b"\xff"),
    sample("binary_view", pa.binary_view(), b"a", b"\xff, longer than twelve bytes"),
    SIXTEEN,
    sample("list<string>", pa.list_(pa.string()), *LISTS),
    sample("large_list<string>", pa.large_list(pa.string()), *LISTS),
    sample("fixed_size_list<int32>[2]", pa.list_(pa.int32(), 2), [1, None], [2, 3]),
    sample("list_view<string>", pa.list_view(pa.string()), *LISTS),
    sample("large_list_view<string>", pa.large_list_view(pa.string()), *LISTS),
    sample("struct", pa.struct([("s", pa.string()), ("n", pa.int32())]), {"s": "a", "n": 1}, {"s": None, "n": 2}),
    sample("map<string, int32>", pa.map_(pa.string(), pa.int32()), [("a", 1)], [("b", None), ("c", 2)]),
    sample("list<string_view>", pa.list_(pa.string_view()), *LISTS),
    sample("struct<string_view, ...>", STRUCT_OF_VIEWS, {"s": "a", "n": 1}, {"s": None, "n": 2}),
    sample("map<string_view, binary_view>", pa.map_(pa.string_view(), pa.binary_view()), [("a", b"1")], [("b", None)]),
    sample(
        "list<struct<string_view>>",
        pa.list_(pa.struct([("s", pa.string_view())])),
        [{"s": "a"}, None],
        [{"s": "longer than twelve bytes"}],
    ),
    sample("fixed_size_list<string_view>[1]", pa.list_(pa.string_view(), 1), ["a"], ["b"]),
    Sample("sparse_union", unions(pa.array(range(6)), dense=False)),
    Sample("dense_union", unions(pa.array(range(6)), dense=True)),
    made("dictionary<string>", UTF8, dictionary_of),
    made("dictionary<large_string>", sample("", pa.large_string(), "a", "é"), dictionary_of),
    made("dictionary<string_view>", sample("", pa.string_view(), "a", "é"), dictionary_of),
    made("dictionary<binary>", BYTES, dictionary_of),
    made("dictionary<fixed_size_binary>", SIXTEEN, dictionary_of),
    made("dictionary<bool>", sample("", pa.bool_(), False, True), dictionary_of),
    made("dictionary<int64>", INT64, dictionary_of),
    made("dictionary<float64>", FLOAT64, dictionary_of),
    made("dictionary<date32>", DATE32, dictionary_of),
    made("dictionary<timestamp>", MICROS, dictionary_of),
    made("dictionary<decimal128>", DECIMAL, dictionary_of),
    made("dictionary<duration>", sample("", pa.duration("us"), timedelta(0), timedelta(days=3)), dictionary_of),
    made("dictionary<list<string>>", sample("", pa.list_(pa.string()), *LISTS), dictionary_of),
    made("dictionary<dictionary<string>>", made("", UTF8, dictionary_of), dictionary_of),
    made("list<dictionary<string>>", UTF8, lambda array: pa.ListArray.from_arrays(
        pa.array([0, 1, None, 2, 4, 4, 6], pa.int32()), dictionary_of(array))),
    made("run_end_encoded<string>", UTF8, run_ends),
    made("run_end_encoded<int64>", INT64, run_ends),
    made("run_end_encoded<decimal128>", DECIMAL, run_ends),
    made("run_end_encoded<list<string>>", sample("", pa.list_(pa.string()), *LISTS), run_ends),
    made("run_end_encoded<dictionary>", made("", UTF8, dictionary_of), run_ends),
    made("list<run_end_encoded<string>>", UTF8, lambda array: pa.ListArray.from_arrays(
        pa.array([0, 1, None, 2, 4, 4, 6], pa.int32()), run_ends(array))),
    made("extension uuid", SIXTEEN, extension(pa.uuid())),
    made("extension json", UTF8, extension(pa.json_())),
    made("extension json (string_view)", UTF8, extension(pa.json_(pa.string_view()))),
    made("extension bool8", sample("", pa.int8(), 0, 1), extension(pa.bool8())),
    made("extension opaque", UTF8, extension(pa.opaque(pa.string(), "geometry", "elsewhere"))),
    made("extension fixed_shape_tensor", sample("", pa.list_(pa.int32(), 2), [1, 2], [2, 3]),
         extension(pa.fixed_shape_tensor(pa.int32(), [2]))),
    made("extension of a user", FLOAT64, extension(Celsius())),
    made("list<extension uuid>", SIXTEEN, lambda array: pa.ListArray.from_arrays(
        pa.array([0, 1, None, 2, 4, 4, 6], pa.int32()), extension(pa.uuid())(array))),
    made("struct<extension uuid>", SIXTEEN, lambda array: pa.StructArray.from_arrays(
        [extension(pa.uuid())(array)], names=["id"])),
    made("dictionary<extension uuid>", made("", SIXTEEN, extension(pa.uuid())), dictionary_of),
    made("extension uuid, run-end encoded", made("", SIXTEEN, extension(pa.uuid())), run_ends),
]  # fmt: skip
