"""Units and bounds that every layer shares: durations, sizes, event-time limits, the partition count.

Event time is int64 microseconds since 1970-01-01 UTC; MIN_TIME and MAX_TIME are the ends of int64.
"""

import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Self

from jetfast.errors import DurationError, JobDefinitionError

MIN_TIME = -(2**63)
MAX_TIME = 2**63 - 1
PARTITION_COUNT = 271
BATCH_ROWS_MAX = 65536

Duration = str | timedelta
Timeout = Duration | float | None
"""How long a call waits: a duration, or seconds; None: without limit."""


class SpelledEnum(Enum):
    """An enum whose members are also found by text: name or value in any case, words joined by "-", "_", " " or not.

    `Guarantee("EXACTLY_ONCE")`, `Guarantee("exactly once")` and `Guarantee("exactly-once")` are one member.
    """

    @classmethod
    def _missing_(cls, value: object) -> "SpelledEnum | None":
        if not isinstance(value, str):
            return None
        wanted = cls._spell(value)
        return next((each for each in cls if wanted in (cls._spell(each.name), cls._spell(str(each.value)))), None)

    @classmethod
    def _spell(cls, text: str) -> str:
        return re.sub(r"[-_\s]+", "", text).lower()

    @classmethod
    def of(cls, value: object, what: str) -> Self:
        """Return a member for itself or its text. JobDefinitionError: no member is spelled so; TypeError: no text."""
        if not isinstance(value, cls | str):
            raise TypeError(f"{what} must be one of {cls._choices()}, got {value!r}")
        try:
            return cls(value)
        except ValueError:
            raise JobDefinitionError(f"{what} must be one of {cls._choices()}, got {value!r}") from None

    @classmethod
    def _choices(cls) -> str:
        return ", ".join(f"{cls.__name__}.{each.name} ({each.value!r})" for each in cls)


class Signal(Enum):
    """Control items without content: see `jetfast.core.items`."""

    IDLE = "idle"
    ACTIVE = "active"
    DONE = "done"


_UNIT_US = {
    "us": 1, "microsecond": 1, "microseconds": 1,
    "ms": 1_000, "millisecond": 1_000, "milliseconds": 1_000,
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "seconds": 1_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000, "minutes": 60_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000, "days": 86_400_000_000,
    "w": 604_800_000_000, "week": 604_800_000_000, "weeks": 604_800_000_000,
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


def duration_us(value: Duration, what: str = "duration") -> int:
    """Return a duration in microseconds.

    `value` is text such as "10s", "1h 30m", "250 ms" or a `timedelta`; "-5s" and negative timedeltas are read as
    negative, and it is for the caller to refuse them. `what` names the setting in the error.

    Raises TypeError for a bare number (its unit would be a guess) and DurationError for text that cannot be read.
    """
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise TypeError(f'{what} must have a unit, got the bare number {value!r}; did you mean "{value}s"?')
    if not isinstance(value, str):
        raise TypeError(f'{what} must be text such as "10s" or a timedelta, got {type(value).__name__}')
    text = value.strip()
    sign = -1 if text.startswith("-") else 1
    rest = text.removeprefix("-")
    total_us = 0.0
    whole_us = 0
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is not None and part[2] == "M":
            raise DurationError(
                f'{what} {value!r} may mean months or minutes; write "{part[1]}m" for minutes, or the months in days'
            )
        if part is None or part[2].lower() not in _UNIT_US:
            raise DurationError(f'{what} {value!r} cannot be read; write it like "10s", "1h 30m" or "250ms"')
        unit_us = _UNIT_US[part[2].lower()]
        if "." in part[1]:
            total_us += float(part[1]) * unit_us
        else:
            whole_us += int(part[1]) * unit_us
        position = part.end()
    if not rest:
        raise DurationError(f'{what} is empty; write it like "10s", "1h 30m" or "250ms"')
    result = sign * (whole_us + round(total_us))
    if not MIN_TIME < result < MAX_TIME:
        raise DurationError(f"{what} {value!r} does not fit 64 bits of microseconds")
    return result


def positive_duration_us(value: Duration, what: str) -> int:
    """As `duration_us`, and the duration must be greater than zero."""
    result = duration_us(value, what)
    if result <= 0:
        raise DurationError(f"{what} must be greater than zero, got {value!r}")
    return result


def non_negative_duration_us(value: Duration, what: str) -> int:
    """As `duration_us`, and the duration must not be negative."""
    result = duration_us(value, what)
    if result < 0:
        raise DurationError(f"{what} must not be negative, got {value!r}")
    return result


def timeout_s(value: Timeout, what: str = "timeout") -> float | None:
    """Return a time limit in seconds; None: there is none. A bare number counts seconds, as everywhere in Python.

    Raises TypeError and DurationError as `duration_us`, DurationError for a negative one.
    """
    if value is None:
        return None
    if isinstance(value, int | float):
        if isinstance(value, bool):
            raise TypeError(f"{what} must be a duration or a number of seconds, got {value!r}")
        if not value >= 0:
            raise DurationError(f"{what} must not be negative, got {value!r}")
        return float(value)
    return non_negative_duration_us(value, what) / 1e6


def format_duration(duration: int) -> str:
    """Return microseconds as text that `duration_us` reads back: 5400000000 -> "1h 30m"."""
    if duration == 0:
        return "0s"
    sign = "-" if duration < 0 else ""
    rest = abs(duration)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNIT_US[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + " ".join(parts)


def format_time(time: int) -> str:
    """Return event time (microseconds) as ISO text in UTC; what no calendar reaches as a number."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).isoformat()
    except OverflowError:
        return f"{time} us"


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)", re.IGNORECASE)
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def bytes_of(size: str, what: str) -> int:
    """Return "512MB" (powers of 1000) or "1.5 GiB" (powers of 1024) in bytes.

    Raises TypeError for a bare number and JobDefinitionError for text that cannot be read or is zero.
    """
    if isinstance(size, int | float) and not isinstance(size, bool):
        raise TypeError(f'{what} must have a unit, got the bare number {size!r}; did you mean "{size}MB"?')
    if not isinstance(size, str):
        raise TypeError(f'{what} must be text such as "512MB", got {type(size).__name__}')
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise JobDefinitionError(f'{what} {size!r} cannot be read; write it like "512MB" or "1.5GiB"')
    unit = match[2].lower()
    result = int(float(match[1]) * (1024 if "i" in unit else 1000) ** _POWERS[unit[0]])
    if result < 1:
        raise JobDefinitionError(f"{what} must be greater than zero, got {size!r}")
    return result


def printable(text: str) -> str:
    """Return text for a terminal: what is not printable stands there as an escape, such as "\\x1b", and is not sent.

    A terminal obeys control characters and shows text in another order after some others. Rows may come from anywhere.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class Secret(str):
    """Text that may hold secrets: a connection string, or a URL with keys. It is whole where it is used as text, and
    hidden wherever it is shown: `repr`, `str`, `format`.

    Libraries that take its bytes get all of it. What keeps it as text, such as a name, takes `redact` of it.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        return super().__new__(cls, "".join(text))  # `str(text)` of a Secret hides it

    def __repr__(self) -> str:
        return repr(redact(self))

    def __str__(self) -> str:
        return redact(self)

    def __format__(self, spec: str) -> str:
        return format(redact(self), spec)


_USER_OF_URL = re.compile(r"(?<=://)[^/?#]*@")
_SECRET_OF_URL = re.compile(
    r"([?&][^=&#]*(?:key|secret|token|password|passphrase|credential|sig)[^=&#]*=)[^&#\s'\"]+", re.I
)
_PLACE = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


def redact(text: str) -> str:
    """Return text without its secrets: of a URL the user with the password, and the keys among its parameters; of any
    other `Secret` nothing is left.
    """
    raw = "".join(text)  # plain text, of a `Secret` too
    if isinstance(text, Secret) and _PLACE.match(raw) is None:
        return "***" if raw else ""
    return _SECRET_OF_URL.sub(r"\1***", _USER_OF_URL.sub("***@", raw))
