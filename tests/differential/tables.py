"""Random tables: all Arrow types, their extremes, and every layout that a batch may have.

A table is drawn as data. `rows` gives its exact values, `batches` the record batches that a source reads: slices of
larger ones, several chunks, empty ones among them.
"""

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from tests.differential.values import plain, ticks_of, to_arrow

TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "B",
    " ",
    "ä",
    "ß",
    "日本",
    "\U0001f600",
    "7",
    "-12",
    "null",
    "q\"u,o'te",
    "a much longer text than a view holds",
]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    1.5,
    -2.75,
    3.0,
    1e6,
    1e-300,
    1e20,
    16777217.0,
    9007199254740993.0,
    5e-324,
    1.7976931348623157e308,
    float("nan"),
    float("inf"),
    float("-inf"),
]
SAFE_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.75, 3.0, 100.25, 1e6]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "+05:30"]
UNITS = ["s", "ms", "us", "ns"]
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
BASES_S = [0, -1, -86_400 * 365, -2_208_988_800, 951_782_400, 1_711_846_800, 1_729_990_800, 4_102_444_800]
"""Event times begin near one of these: 1970, before it, 1900, a leap day, changes of summer time, 2100."""


class Meters(pa.ExtensionType):
    """An extension type of a user."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "tests.differential.meters")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "Meters":
        return cls()


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, type, and share of nulls. Values come from its own seed."""

    name: str
    data_type: pa.DataType
    seed: int
    nulls: float
    few: int
    """Values are drawn from so few different ones; 0: from all."""
    values: str = "any"
    """"any", "small" (sums of them fit), or "times" (near each other, so that windows hold several)."""

    def __repr__(self) -> str:
        return f"{self.name}: {self.data_type} ({self.values}, nulls={self.nulls}, few={self.few}, seed={self.seed})"

    def draw(self, row_count: int) -> list[Any]:
        """Exact values."""
        random = Random(self.seed)
        base = random.choice(BASES_S)
        spread_us = random.choice([2_000, 1_000_000, 60_000_000, 7_200_000_000])

        def one() -> Any:
            if self.values == "times":
                return time_near(random, self.data_type, base, spread_us)
            return draw_value(random, self.data_type, small=self.values == "small")

        pool = [one() for _ in range(self.few)]
        return [
            None if random.random() < self.nulls else random.choice(pool) if pool else one() for _ in range(row_count)
        ]


@dataclass(frozen=True)
class Table:
    """Columns, rows and how they are cut."""

    columns: tuple[Column, ...]
    row_count: int
    cuts: tuple[int, ...]
    """Rows of the batches, over and over; 0 is an empty batch."""
    sliced: bool
    """Are batches slices of larger ones?"""
    time: str | None = None
    sorted_times: bool = False

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns' types without their layout."""
        return {column.name: plain(column.data_type) for column in self.columns}

    def rows(self) -> list[tuple[Any, ...]]:
        """Exact values of all rows."""
        values = [column.draw(self.row_count) for column in self.columns]
        if self.time is not None and self.sorted_times:
            place = [column.name for column in self.columns].index(self.time)
            values[place].sort(key=lambda value: (value is None, value or 0))
        return list(zip(*values, strict=True)) if self.row_count else []

    def schema(self) -> pa.Schema:
        """As a source has it."""
        return pa.schema([(column.name, column.data_type) for column in self.columns])

    def batches(self) -> list[pa.RecordBatch]:
        """Record batches of all rows."""
        rows = self.rows()
        found = []
        start = 0
        for cut in itertools.cycle(self.cuts):
            end = min(start + cut, len(rows))
            found.append(self.batch(rows, start, end))
            start = end
            if start == len(rows):
                return found
        raise AssertionError("no cut has rows")

    def batch(self, rows: Sequence[tuple[Any, ...]], start: int, end: int) -> pa.RecordBatch:
        """One batch: rows before and behind it are in its buffers if it is a slice."""
        first, last = (max(0, start - 3), min(len(rows), end + 2)) if self.sliced else (start, end)
        columns = [
            to_arrow([row[place] for row in rows[first:last]], column.data_type)
            for place, column in enumerate(self.columns)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema()).slice(start - first, end - start)

    def smaller(self) -> list["Table"]:
        """Tables with fewer rows or a simpler layout."""
        found = [replace(self, row_count=rows) for rows in (self.row_count // 2, self.row_count - 1) if rows > 0]
        found += [replace(self, sliced=False)] if self.sliced else []
        found += [replace(self, cuts=(64,))] if self.cuts != (64,) else []
        for number, column in enumerate(self.columns):
            others = self.columns[:number] + self.columns[number + 1 :]
            found += [replace(self, columns=others)] if others and column.name != self.time else []
            if column.nulls:
                without = replace(column, nulls=0.0)
                found.append(replace(self, columns=(*self.columns[:number], without, *self.columns[number + 1 :])))
        return found


def draw_table(random: Random, *, prefix: str, timed: bool) -> Table:
    """A table; with a time column named `t`, perhaps."""
    row_count = random.choice([0, 1, 2, 5, 12, 30, 30, 60])
    columns = [draw_column(random, f"{prefix}{number}") for number in range(random.randint(2, 5))]
    columns.append(Column("k", draw_key_type(random), random.getrandbits(32), random.choice([0.0, 0.2]), 4, "small"))
    if timed:
        columns.append(
            Column("t", draw_time_type(random), random.getrandbits(32), random.choice([0, 0, 0.1]), 0, "times")
        )
    random.shuffle(columns)
    cuts = tuple(random.choice([0, 1, 2, 7, 16, 64]) for _ in range(random.randint(1, 4)))
    return Table(
        tuple(columns),
        row_count,
        cuts if any(cuts) else (*cuts, 5),
        sliced=random.random() < 0.5,
        time="t" if timed else None,
        sorted_times=random.random() < 0.3,
    )


def draw_column(random: Random, name: str) -> Column:
    """A column of any type, mostly of those that people use."""
    data_type = draw_layout(random, draw_type(random))
    values = "small" if random.random() < 0.6 else "any"
    return Column(
        name, data_type, random.getrandbits(32), random.choice([0.0, 0.0, 0.2, 0.9]), random.choice([0, 0, 3]), values
    )


def draw_time_type(random: Random) -> pa.DataType:
    """A type that event time may have."""
    if random.random() < 0.1:
        return random.choice([pa.date32(), pa.date64()])
    return pa.timestamp(random.choice(UNITS), random.choice([None, None, None, *ZONES]))


def draw_key_type(random: Random) -> pa.DataType:
    """A type that keys often have."""
    kinds = [
        pa.string(),
        pa.int64(),
        pa.int32(),
        pa.string(),
        pa.bool_(),
        pa.float64(),
        pa.date32(),
        pa.int8(),
        pa.decimal128(9, 2),
    ]
    return draw_layout(random, random.choice(kinds))


NUMBERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.float64(),
]
RARE = [
    pa.null(),
    pa.float16(),
    pa.binary(5),
    pa.month_day_nano_interval(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.date64(),
    pa.large_binary(),
    pa.decimal256(50, 7),
    pa.decimal256(20, 3),
]
RARE += [pa.decimal32(7, 2), pa.decimal64(15, 4)]


def draw_type(random: Random, depth: int = 0) -> pa.DataType:
    """Any type but dictionaries, run ends and extensions."""
    kind = random.random()
    if kind < 0.5:
        return random.choice(NUMBERS)
    if kind < 0.62:
        return random.choice([pa.string(), pa.string(), pa.large_string(), pa.string_view()])
    if kind < 0.68:
        return pa.bool_()
    if kind < 0.74:
        return random.choice([pa.decimal128(9, 2), pa.decimal128(18, 6), pa.decimal128(38, 10), pa.decimal128(5, 0)])
    if kind < 0.78:
        return pa.date32()
    if kind < 0.85:
        return pa.timestamp(random.choice(UNITS), random.choice([None, *ZONES]))
    if kind < 0.88:
        return pa.duration(random.choice(UNITS))
    if kind < 0.91:
        return random.choice([pa.binary(), pa.binary_view(), pa.binary()])
    if kind < 0.95 or depth > 1:
        return random.choice(RARE)
    inner = draw_type(random, depth + 1)
    if random.random() < 0.1:
        inner = pa.dictionary(pa.int8(), pa.string())
    return random.choice(
        [
            pa.list_(inner),
            pa.list_(inner),
            pa.large_list(inner),
            pa.list_(inner, 2),
            pa.list_view(inner),
            pa.large_list_view(inner),
            pa.struct([("x", inner), ("y", pa.int32())]),
            pa.struct([("x", inner), ("y", pa.list_(pa.string()))]),
            pa.map_(pa.string(), inner),
        ]
    )


def draw_layout(random: Random, data_type: pa.DataType) -> pa.DataType:
    """The type as a dictionary, in runs, or as an extension, seldom."""
    kind = random.random()
    nests = pa.types.is_nested(data_type) or pa.types.is_null(data_type)
    if kind < 0.08 and not nests and not pa.types.is_interval(data_type) and not pa.types.is_float16(data_type):
        return pa.dictionary(random.choice([pa.int8(), pa.int32(), pa.uint16(), pa.int64()]), data_type)
    if kind < 0.09 and not nests and not pa.types.is_boolean(data_type):
        return pa.run_end_encoded(random.choice([pa.int16(), pa.int32(), pa.int64()]), data_type)
    if kind < 0.095:
        return random.choice([pa.uuid(), pa.json_(), pa.bool8(), Meters(), pa.opaque(pa.int64(), "thing", "maker")])
    return data_type


def time_near(random: Random, data_type: pa.DataType, base_s: int, spread_us: int) -> int:
    """An event time; one in a hundred is at the end of its type."""
    if pa.types.is_date32(data_type):
        return base_s // 86_400 + random.randint(-3, 3)
    if pa.types.is_date64(data_type):
        return (base_s // 86_400 + random.randint(-3, 3)) * 86_400_000
    per_second = PER_SECOND[data_type.unit]
    return base_s * per_second + random.randint(0, max(3, spread_us * per_second // 1_000_000))


def draw_value(random: Random, data_type: pa.DataType, *, small: bool) -> Any:
    """One exact value that is not null."""
    if isinstance(data_type, pa.BaseExtensionType):
        if data_type.extension_name == "arrow.json":
            return random.choice(['{"a": 1}', "[]", "null"])
        return (
            uuid.UUID(int=random.getrandbits(128)).bytes
            if data_type.extension_name == "arrow.uuid"
            else draw_value(random, data_type.storage_type, small=small)
        )
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return draw_value(random, data_type.value_type, small=small)
    if pa.types.is_map(data_type):
        keys = random.sample(TEXTS, random.randint(0, 3))
        return tuple((key, draw_or_null(random, data_type.item_type, small)) for key in keys)
    if pa.types.is_struct(data_type):
        return tuple(draw_or_null(random, field.type, small) for field in data_type)
    if pa.types.is_fixed_size_list(data_type):
        return tuple(draw_or_null(random, data_type.value_type, small) for _ in range(data_type.list_size))
    if pa.types.is_nested(data_type):
        return tuple(draw_or_null(random, data_type.value_type, small) for _ in range(random.choice([0, 1, 2, 3])))
    return draw_scalar(random, data_type, small)


def draw_or_null(random: Random, data_type: pa.DataType, small: bool) -> Any:
    """An element of something nested."""
    return None if random.random() < 0.2 else draw_value(random, data_type, small=small)


def draw_scalar(random: Random, data_type: pa.DataType, small: bool) -> Any:
    """A value of a type that is not nested."""
    if pa.types.is_null(data_type):
        return None
    if pa.types.is_boolean(data_type):
        return random.random() < 0.5
    ticks = ticks_of(data_type)
    if ticks is not None:
        return draw_ticks(random, data_type, small)
    if pa.types.is_integer(data_type):
        return draw_integer(random, data_type, small)
    if pa.types.is_float16(data_type):
        return random.choice([0.0, -0.0, 0.5, 1.0, -2.25, 65504.0, float("nan"), float("inf")])
    if pa.types.is_float32(data_type):
        value = random.choice(SAFE_FLOATS if small else FLOATS)
        return float(pa.array([value], pa.float64()).cast(pa.float32(), safe=False)[0].as_py())
    if pa.types.is_floating(data_type):
        return random.choice(SAFE_FLOATS if small else FLOATS) if random.random() < 0.7 else random.uniform(-100, 100)
    if pa.types.is_decimal(data_type):
        digits = min(3, data_type.precision) if small else random.randint(1, data_type.precision)
        return Decimal(random.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-data_type.scale)
    if pa.types.is_fixed_size_binary(data_type):
        return bytes(random.choice([0, 1, 97, 255]) for _ in range(data_type.byte_width))
    if pa.types.is_interval(data_type):
        return random.randint(-20, 20), random.randint(-99, 99), random.randint(-(10**12), 10**12)
    text = random.choice(TEXTS)
    return text if pa.types.is_string(plain(data_type)) else text.encode()


def draw_integer(random: Random, data_type: pa.DataType, small: bool) -> int:
    """Small ones, those around the precision of floats, and the ends of the type."""
    is_signed = pa.types.is_signed_integer(data_type)
    low = -(2 ** (data_type.bit_width - 1)) if is_signed else 0
    high = low + 2**data_type.bit_width - 1
    if small or random.random() < 0.4:
        return random.randint(max(low, -9), 9)
    return min(max(random.choice([low, low + 1, high, high - 1, 2**24 + 1, 2**53 + 1, -(2**53) - 1, 0, -1]), low), high)


def draw_ticks(random: Random, data_type: pa.DataType, small: bool) -> int:
    """Of a time, a date or a duration."""
    if pa.types.is_time(data_type):
        return random.randrange(86_400 * PER_SECOND[data_type.unit])
    if pa.types.is_date32(data_type):
        return random.choice([0, 1, -1, 11_016, 19_782, -25_567]) + random.randint(0, 3)
    if pa.types.is_date64(data_type):
        return random.choice([0, -1, 11_016, 19_782]) * 86_400_000
    per_second = PER_SECOND[data_type.unit]
    if not small and random.random() < 0.05 and not pa.types.is_duration(data_type):
        return random.choice([-(2**63) + 1, 2**63 - 1])
    return random.choice(BASES_S) * per_second + random.randint(-3, 3 * per_second)
