"""Durations and sizes: what is read, what is refused, and that formatting reads back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetfast.errors import DurationError, JobDefinitionError
from jetfast.types import bytes_of, duration_us, format_duration, non_negative_duration_us, positive_duration_us


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s", 10_000_000),
        ("1h 30m", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("250ms", 250_000),
        ("250 ms", 250_000),
        ("1.5 seconds", 1_500_000),
        ("2 Days", 172_800_000_000),
        ("0s", 0),
        ("-5s", -5_000_000),
        (timedelta(hours=2, microseconds=3), 7_200_000_003),
        (timedelta(microseconds=-1), -1),
    ],
)
def test_durations_are_read_as_microseconds(text, expected):
    assert duration_us(text) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "10", "ten seconds", "10 parsecs", "s", "1h -30m", "300000 years", "400000000w"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(DurationError):
        duration_us(text)


@pytest.mark.parametrize("text", ["1M", "1h 5M", "-1M"])
def test_a_capital_m_is_refused_since_it_may_be_a_month(text):
    with pytest.raises(DurationError, match=r'may mean months or minutes; write "\dm" for minutes'):
        duration_us(text)


@pytest.mark.parametrize("number", [10, 2.5])
def test_a_bare_number_is_a_type_error_that_proposes_a_unit(number):
    with pytest.raises(TypeError, match=f'did you mean "{number}s"'):
        duration_us(number, "lag")


@pytest.mark.parametrize("value", [None, True, b"10s"])
def test_other_types_are_a_type_error(value):
    with pytest.raises(TypeError, match="lag must be text"):
        duration_us(value, "lag")


def test_a_duration_error_is_a_value_error_and_a_definition_error():
    with pytest.raises(ValueError, match="lag must not be negative, got '-1s'"):
        non_negative_duration_us("-1s", "lag")
    with pytest.raises(JobDefinitionError, match="window size must be greater than zero"):
        positive_duration_us("0s", "window size")


@given(st.integers(-(2**62), 2**62))
def test_a_formatted_duration_reads_back(duration):
    assert duration_us(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "size"),
    [("1B", 1), ("2kB", 2000), ("512MB", 512 * 10**6), ("1.5 GiB", 3 * 2**29), ("1TB", 10**12), (" 1 mib ", 2**20)],
)
def test_sizes_are_read_in_powers_of_1000_and_of_1024(text: str, size: int) -> None:
    assert bytes_of(text, "memory_limit") == size
