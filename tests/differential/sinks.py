"""Reads files that sinks wrote, with pyarrow and Python alone, as exact values of the types that were written."""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.differential.expressions import MICROSECONDS_A_DAY
from tests.differential.flows import FailsError, Flow
from tests.differential.values import is_list, microseconds, plain, to_exact

Types = Mapping[str, pa.DataType | None]
TIME = re.compile(r"(?:(-?\d{4,})-(\d\d)-(\d\d))?(?:[T ]?(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?(Z|[+-]\d\d:?\d\d)?$")
FIRST_DAY, LAST_DAY = -719_528, 2_932_896
"""0000-01-01 and 9999-12-31."""
FIRST_NS = -9_223_372_036 * 10**9
"""The first whole second of timestamps in nanoseconds."""
PYTHON_FIRST_S, PYTHON_END_S = -62_135_500_000, 253_402_200_000
"""In the first and the last days of the years 1 to 9999."""
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def require_expressible(file_format: str, flow: Flow) -> None:
    """Raise FailsError for times that the file of a sink cannot express.

    Text: years beyond 0000 to 9999, local times beyond nanoseconds, and local times with offsets of seconds.
    Parquet: seconds beyond what milliseconds hold.
    """
    expresses = {"csv": is_expressible, "json": is_expressible, "parquet": fits_milliseconds}.get(file_format)
    if expresses is None:
        return
    for name, data_type in flow.types.items():
        for value in flow.column(name):
            if data_type is not None and not expresses(value, data_type):
                raise FailsError(name)


def fits_milliseconds(value: Any, data_type: pa.DataType) -> bool:
    """Can Parquet, which has no seconds, hold a value?"""
    if value is None:
        return True
    if is_list(data_type):
        return all(fits_milliseconds(each, data_type.value_type) for each in value)
    if pa.types.is_struct(data_type):
        return all(fits_milliseconds(each, field.type) for each, field in zip(value, data_type, strict=True))
    if not pa.types.is_timestamp(data_type) and not pa.types.is_time(data_type):
        return True
    return data_type.unit != "s" or abs(value) * 1000 < 2 ** (data_type.bit_width - 1)


def is_expressible(value: Any, data_type: pa.DataType) -> bool:
    if value is None:
        return True
    if is_list(data_type):
        return all(is_expressible(each, data_type.value_type) for each in value)
    if pa.types.is_struct(data_type):
        return all(is_expressible(each, field.type) for each, field in zip(value, data_type, strict=True))
    if not pa.types.is_timestamp(data_type) and not pa.types.is_date(data_type):
        return True
    zoned = pa.types.is_timestamp(data_type) and data_type.tz is not None
    offset = zone_offset(microseconds(value, data_type) // 10**6, data_type.tz) if zoned else 0
    if offset % 60:
        return False
    if getattr(data_type, "unit", None) == "ns":
        return value >= FIRST_NS and FIRST_NS <= value + offset * 10**9 <= 2**63 - 1
    return FIRST_DAY <= (microseconds(value, data_type) + offset * 10**6) // MICROSECONDS_A_DAY <= LAST_DAY


def zone_offset(second: int, zone: str) -> int:
    """Seconds from UTC to local time, as Python has them; years that it lacks have those of its ends."""
    if zone[0] in "+-":
        return (-1 if zone[0] == "-" else 1) * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60)
    near = min(max(second, PYTHON_FIRST_S), PYTHON_END_S)
    offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=near)).astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def read_files(directory: Path, file_format: str, types: Types) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names of columns and all rows; a directory without files has no rows."""
    paths = sorted(path for path in directory.glob("*") if not path.name.startswith((".", "_")))
    rows: list[tuple[Any, ...]] = []
    names = list(types)
    for path in paths:
        if file_format == "csv":
            names, found = read_csv(path, types)
        elif file_format == "json":
            found = [tuple(json_row(line, types)) for line in path.read_text().splitlines()]
        else:
            table = pq.read_table(path) if file_format == "parquet" else pa.ipc.open_file(str(path)).read_all()
            names = table.column_names
            found = arrow_rows(table, types)
        rows += found
    return names, rows


def arrow_rows(table: pa.Table, types: Types) -> list[tuple[Any, ...]]:
    columns = []
    for column in table.columns:
        columns.append(to_exact(column))
    for place, field in enumerate(table.schema):
        wanted = types.get(field.name)
        if wanted is not None:
            columns[place] = [in_unit(value, plain(field.type), wanted) for value in columns[place]]
    return list(zip(*columns, strict=True))


def in_unit(value: Any, found: pa.DataType, wanted: pa.DataType) -> Any:
    """A value of a file in the unit that was written: files hold some units in others."""
    if value is None or found == wanted:
        return value
    if is_list(found) and is_list(wanted):
        return tuple(in_unit(each, found.value_type, wanted.value_type) for each in value)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        fields = zip(value, found, wanted, strict=True)
        return tuple(in_unit(each, one.type, other.type) for each, one, other in fields)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return tuple((key, in_unit(each, found.item_type, wanted.item_type)) for key, each in value)
    if pa.types.is_date64(wanted) and pa.types.is_date32(found):
        return value * 86_400_000
    units = getattr(found, "unit", None), getattr(wanted, "unit", None)
    if units[0] in NANOSECONDS and units[1] in NANOSECONDS:
        exact = value * NANOSECONDS[units[0]]
        return exact // NANOSECONDS[units[1]] if exact % NANOSECONDS[units[1]] == 0 else ("not in unit", value)
    return value


def read_csv(path: Path, types: Types) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names and rows of a CSV file."""
    options = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(types, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
        quoted_strings_can_be_null=False,
    )
    parsing = pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    table = pa.csv.read_csv(path, convert_options=options, parse_options=parsing)
    columns = [
        [from_text(text, types[name]) for text in table[name].to_pylist()] if name in types else []
        for name in table.column_names
    ]
    return table.column_names, list(zip(*columns, strict=True))


def json_row(line: str, types: Types) -> list[Any]:
    """The values of a record; a key that is missing is null."""
    record = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
    surplus = set(record) - set(types)
    if surplus:
        raise ValueError(f"a record has {surplus}")
    return [from_json(record.get(name), data_type) for name, data_type in types.items()]


def from_json(value: Any, data_type: pa.DataType | None) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, list):
        inner = data_type.value_type if data_type is not None else None
        return tuple(from_json(each, inner) for each in value)
    if isinstance(value, dict):
        fields = {field.name: field.type for field in data_type or ()}
        return tuple(from_json(value.get(name), each) for name, each in fields.items())
    return from_text(value, data_type)


def from_text(text: str | None, data_type: pa.DataType | None) -> Any:
    """An exact value from its text."""
    if text is None:
        return None
    if data_type is None:
        return float(text)
    if pa.types.is_string(data_type):
        return text
    if pa.types.is_boolean(data_type):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(data_type) or pa.types.is_duration(data_type):
        return int(text)
    if pa.types.is_floating(data_type):
        made = float(text)
        return float(np.float32(made)) if pa.types.is_float32(data_type) and math.isfinite(made) else made
    if pa.types.is_decimal(data_type):
        return Decimal(text)
    return ticks_of_text(text, data_type)


def ticks_of_text(text: str, data_type: pa.DataType) -> int:
    """Ticks of a date or time as ISO 8601 writes it."""
    found = TIME.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no {data_type}")
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    days = int(np.datetime64(f"{year}-{month}-{day}", "D").astype(int)) if year else 0
    if pa.types.is_date32(data_type):
        return days
    seconds = days * 86_400 + int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
    if offset and offset != "Z":
        sign = -1 if offset[0] == "-" else 1
        seconds -= sign * (int(offset[1:3]) * 3600 + int(offset[-2:]) * 60)
    nanoseconds = seconds * 10**9 + int((fraction or "0").ljust(9, "0"))
    unit = "ms" if pa.types.is_date64(data_type) else data_type.unit
    return nanoseconds // NANOSECONDS[unit]
