"""Depth and columns of JSON lines: equal to slow twins, and agreed with a parser up to the first mistake."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.json_bounds import count_columns, count_open, find_too_deep

NAMES = st.sampled_from(["a", "b", '"', "\\", "}\n{", "[[[", "]]", "é", ""])
LEAVES = st.one_of(st.none(), st.integers(), NAMES)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=30
)
RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=12)
ENDS = st.sampled_from(["\n", "\r\n", "\n\n", " \n", "\n  "])


def slow_too_deep(text: bytes, depth_max: int) -> int:
    """Return the first bracket that is too deep, character by character."""
    depth, in_string, escaped = 0, False, False
    for position, byte in enumerate(text):
        if not in_string and byte in b"{[":
            depth += 1
            if depth > depth_max:
                return position
        elif not in_string and byte in b"}]":
            depth = max(depth - 1, 0)
        if byte == ord('"') and not escaped:
            in_string = not in_string
        escaped = byte == ord("\\") and not escaped
    return -1


def slow_columns(value: Any, path: tuple[str, ...], found: set[tuple[str, ...]]) -> None:
    for name, inner in value.items() if isinstance(value, dict) else ():
        found.add((*path, name))
        slow_columns(inner, (*path, name), found)
    for item in value if isinstance(value, list) else ():
        slow_columns(item, path, found)


def lines_of(records: list[Any], ends: list[str], repeat: int) -> bytes:
    texts = [json.dumps(record) + ends[index % len(ends)] for index, record in enumerate(records * repeat)]
    return "".join(texts).encode()


@given(RECORDS, st.lists(ENDS, min_size=1, max_size=3), st.integers(1, 40), st.integers(1, 80))
@settings(deadline=None)
def test_depth_equals_that_of_a_slow_twin(records: list[Any], ends: list[str], repeat: int, depth_max: int) -> None:
    text = lines_of(records, ends, repeat)
    assert find_too_deep(text, depth_max) == slow_too_deep(text, depth_max)


@given(RECORDS, st.integers(60, 200), st.integers(1, 4), st.sampled_from(["[", '{"a":', '[{"a":']))
@settings(deadline=None)
def test_deep_values_are_found_wherever_they_are(records: list[Any], depth: int, repeat: int, opening: str) -> None:
    text = lines_of(records, ["\n"], 10) + b'{"x":' + opening.encode() * depth
    for limit in (59, depth, depth + 1, 2 * depth + 1):
        assert find_too_deep(text, limit) == slow_too_deep(text, limit)
        assert find_too_deep(text + b"\n" + text, limit) in (slow_too_deep(text + b"\n" + text, limit), -1)


@given(st.lists(st.sampled_from(list('{}[]":,\\a\n\r ')), max_size=400), st.integers(1, 8))
@settings(deadline=None, max_examples=300)
def test_what_a_parser_takes_is_never_too_deep(characters: list[str], depth_max: int) -> None:
    """Of any text: values before the first that a parser refuses are shallow, and a bracket that is found is one."""
    text = "".join(characters)
    found, exact = find_too_deep(text.encode(), depth_max), slow_too_deep(text.encode(), depth_max)
    assert found in (exact, -1)
    if found == exact:
        return
    assert refused_at(text) <= exact


def refused_at(text: str) -> int:
    """Return where a parser of one value behind the other stops."""
    position, decoder = 0, json.JSONDecoder()
    while position < len(text):
        position = len(text) - len(text[position:].lstrip())
        try:
            _, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            return error.pos
    return position


@given(RECORDS, st.integers(1, 30))
@settings(deadline=None)
def test_columns_equal_those_of_a_slow_twin(records: list[Any], columns_max: int) -> None:
    found: set[tuple[str, ...]] = set()
    for record in records:
        slow_columns(record, (), found)
    assert count_columns(lines_of(records, ["\n"], 2), columns_max) == min(len(found), columns_max + 1)


@given(st.binary(max_size=1000))
def test_any_bytes_are_counted(data: bytes) -> None:
    assert count_open(data) == data.count(b"{") + data.count(b"[")
    assert 0 <= count_columns(data, 100) <= 101
    assert find_too_deep(data, 3) in (slow_too_deep(data, 3), -1)


def test_brackets_on_lines_that_are_no_objects_add_up() -> None:
    text = b'{"a":1}\n{"a":\n' + (b"[" * 50 + b"\n") * 10
    assert find_too_deep(text, 64) == slow_too_deep(text, 64) == 14 + 51 + 13
    assert (
        find_too_deep(b'{"a":1}\n{"a":' + b"[" * 50 + b'"}\n{' + b"[" * 50, 64) == -1
    )  # no parser goes behind the newline


def test_limits_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ValueError, match="depth_max must be at least 1, got 0"):
        find_too_deep(b"{}", 0)
    with pytest.raises(ValueError, match="columns_max must be at least 1, got 0"):
        count_columns(b"{}", 0)


def test_without_vector_instructions_it_is_the_same() -> None:
    code = (
        "from jetfast.kernels.json_bounds import find_too_deep;"
        'text = b\'{"a":"[[\\\\\\"[[","b":[[1]]}\\n\' * 99 + b\'{"a":\' + b\'[\' * 99;'
        "print(find_too_deep(text, 64), find_too_deep(text, 100), find_too_deep(text[:-99], 3))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "JETFAST_SIMD": level}, capture_output=True, check=True
        ).stdout
        for level in ("plain", "avx2")
    ]
    assert found[0] == found[1]
