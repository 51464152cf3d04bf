"""Dates and timestamps from and to text, as Spark reads and writes them.

Text is yyyy, yyyy-m or yyyy-m-d; for timestamps a blank or T may follow, then h, h:m, h:m:s or h:m:s.fraction, then a
zone (Z, +1, +01:00, UTC, GMT+1, Europe/Berlin). What Arrow reads by itself does not get here.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_DAY = re.compile(r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_TIME = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?", re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)
BLANKS = "".join(map(chr, range(33))) + "\x7f"
"""Spark trims blanks and control characters."""

_DAY_US = 86_400_000_000
_FIRST_DAY = datetime.date(1, 1, 1).toordinal() - datetime.date(1970, 1, 1).toordinal()
_LAST_DAY = datetime.date(9999, 12, 31).toordinal() - datetime.date(1970, 1, 1).toordinal()
_ERA_YEARS, _ERA_DAYS = 400, 146_097
"""The Gregorian calendar repeats itself after these."""


def day_number(year: int, month: int, day: int) -> int | None:
    """Return days since 1970 in the proleptic Gregorian calendar, of any year; None for a day that does not exist."""
    eras, year_of_era = divmod(year - 1, _ERA_YEARS)
    try:
        ordinal = datetime.date(year_of_era + 1, month, day).toordinal()
    except ValueError:
        return None
    return ordinal - datetime.date(1970, 1, 1).toordinal() + eras * _ERA_DAYS


def day_text(day: int) -> str:
    """Return a day as Spark writes it: years beyond 9999 have a sign, so do negative ones."""
    eras, day_of_era = divmod(day - _FIRST_DAY, _ERA_DAYS)
    date = datetime.date.fromordinal(day_of_era + 1)
    year = date.year + eras * _ERA_YEARS
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{date.month:02}-{date.day:02}"


def read_day(text: str) -> tuple[int, str] | None:
    """Return the day that text begins with, and what follows it."""
    match = _DAY.match(text)
    if match is None:
        return None
    sign, year, month, day = match.groups()
    number = day_number(int(sign + year), int(month or 1), int(day or 1))
    rest = text[match.end() :]
    return None if number is None or (rest and day is None) else (number, rest)


def read_date(text: str) -> int | None:
    """Return days since 1970; what follows the day after a blank or T does not matter."""
    found = read_day(text.strip(BLANKS))
    if found is None or (found[1] and found[1][0] not in " T"):
        return None
    return found[0]


def read_timestamp(text: str, unit: str) -> tuple[int, str | None] | None:
    """Return local time since 1970 in a unit, and the zone if text has one. A finer fraction is cut off."""
    found = read_day(text.strip(BLANKS))
    if found is None:
        return None
    day, rest = found
    second_ns, zone = 0, None
    if rest and (rest[0] not in " T" or len(rest) == 1):
        return None
    rest = rest[1:]
    if rest:
        match = _TIME.match(rest)
        if match is None:
            return None
        hour, minute, second = (int(part or 0) for part in match.groups()[:3])
        if hour > 23 or minute > 59 or second > 59:
            return None
        fraction = (match[4] or "")[: 6 if unit != "ns" else 9]
        second_ns = (hour * 3600 + minute * 60 + second) * 10**9 + int(fraction.ljust(9, "0"))
        zone = rest[match.end() :].strip(BLANKS) or None
    return (day * _DAY_US * 1000 + second_ns) // _UNIT_NS[unit], zone


_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@lru_cache(maxsize=256)
def zone_name(zone: str) -> str | None:
    """Return a zone as Arrow names it: an offset ("+01:00") or a region; None if there is no such zone."""
    if zone in ("Z", "UTC", "GMT", "UT"):
        return "UTC"
    match = _OFFSET.fullmatch(zone)
    if match is not None:
        hours, minutes, seconds = int(match[2]), int(match[3] or 0), int(match[4] or 0)
        if hours > 23 or minutes > 59 or seconds:
            return None
        return f"{match[1]}{hours:02}:{minutes:02}"
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return None
    return zone


def write_dates(array: pa.Array) -> pa.Array:
    """Return dates as text."""
    days = array.cast(pa.date32())
    text = days.cast(pa.string())
    days = days.cast(pa.int32())
    if no_far_days(days):
        return text
    return pa.array(
        [
            shown if day is None or _FIRST_DAY < day <= _LAST_DAY else day_text(day)
            for shown, day in zip(text.to_pylist(), days.to_pylist(), strict=True)
        ],
        pa.string(),
    )


def write_timestamps(array: pa.Array) -> pa.Array:
    """Return naive timestamps as text, without zeros at the end of the fraction."""
    text = array.cast(pa.string())
    if array.type.unit != "s":
        text = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    per_day = _DAY_US * 1000 // _UNIT_NS[array.type.unit]
    numbers = array.cast(pa.int64())
    days = pc.divide(numbers, per_day)  # cut towards zero: before 1970 it is a day too late, so the first day is far
    if no_far_days(days):
        return text

    def write(number: int) -> str:
        day, rest = divmod(number, per_day)
        time_of_day = pa.array([rest], pa.int64()).cast(array.type)
        return f"{day_text(day)} {write_timestamps(time_of_day)[0].as_py()[11:]}"

    return pa.array(
        [
            shown if number is None or _FIRST_DAY < day <= _LAST_DAY else write(number)
            for shown, number, day in zip(text.to_pylist(), numbers.to_pylist(), days.to_pylist(), strict=True)
        ],
        pa.string(),
    )


def no_far_days(days: pa.Array) -> bool:
    """Return whether Arrow can write all these days: it leaves years beyond 9999 without their sign, or fails."""
    ends = pc.min_max(days).as_py()
    return ends["min"] is None or (ends["min"] > _FIRST_DAY and ends["max"] <= _LAST_DAY)
