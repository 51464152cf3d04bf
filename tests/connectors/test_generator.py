"""Rows from a seed: the same in every run, batch and restart; a rate kept by the clock."""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.connectors import generator as module
from jetfast.connectors.generator import generator
from jetfast.errors import JobDefinitionError, JobFailedError
from tests.connectors.reading import check_resuming, context, read_all, read_partition

COLUMNS = {"id": pa.int64(), "price": pa.float64(), "word": pa.string(), "time": pa.timestamp("us"), "flag": pa.bool_()}


def numbered(rows: Any, random: np.random.Generator) -> dict[str, Any]:
    return {"row": rows, "random": random.integers(0, 1 << 40, len(rows))}


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    first = read_all(generator(COLUMNS, rows=100, seed=1))
    assert read_all(pickle.loads(pickle.dumps(generator(COLUMNS, rows=100, seed=1)))) == first
    assert read_all(generator(COLUMNS, rows=100, seed=2)) != first
    assert len(first) == 100


def test_rows_do_not_depend_on_how_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = read_all(generator(numbered, rows=20_000))
    slow = generator(numbered, rows=20_000, rate=1_000_000)
    now = iter(range(0, 1 << 40, 2_777))
    assert read_partition(slow, "0", now_us=lambda: next(now)).rows == fast


def test_partitions_hold_every_row_number_once() -> None:
    source = generator(numbered, rows=20_001, partitions=3)
    assert sorted(row["row"] for row in read_all(source)) == list(range(20_001))
    assert [source.partition_rows(p) for p in range(3)] == [6667] * 3


def test_times_advance_with_the_row_number() -> None:
    times = [row["time"] for row in read_all(generator(COLUMNS, rows=10, rate=None))]
    assert times == sorted(times)
    assert (times[1] - times[0]).total_seconds() == 0.001


def test_a_rate_gives_rows_when_they_are_due_and_empty_answers_before() -> None:
    clock = {"now": 5_000_000}
    reader = generator(numbered, rate=1000).open_reader("0", None, context(now_us=lambda: clock["now"]))
    counts = []
    for step_us in (0, 0, 10_000, 0, 100, 90_000, 100_000):
        clock["now"] += step_us
        rows = reader.read()
        assert rows is not None
        counts.append(rows.batch.row_count)
    assert counts == [1, 0, 10, 0, 0, 90, 100]


def test_a_rate_is_shared_by_the_partitions() -> None:
    clock = {"now": 0}
    source = generator(numbered, rate=1000, partitions=4)
    readers = [source.open_reader(p, None, context(now_us=lambda: clock["now"])) for p in source.partitions()]
    total = 0
    for _ in range(11):
        for reader in readers:
            rows = reader.read()
            assert rows is not None
            total += rows.batch.row_count
        clock["now"] += 100_000
    assert total == 1000 + 4


def test_without_a_number_of_rows_it_is_unbounded() -> None:
    assert not generator(COLUMNS).bounded
    assert generator(COLUMNS, rows=0).bounded
    assert read_all(generator(COLUMNS, rows=0)) == []


def test_fewer_columns_are_the_same_values() -> None:
    whole = read_all(generator(COLUMNS, rows=50))
    assert read_all(generator(COLUMNS, rows=50).with_columns(["word", "id"])) == [
        {"word": row["word"], "id": row["id"]} for row in whole
    ]


@given(st.integers(0, 40), st.integers(1, 3), st.integers(1, 16))
@settings(max_examples=30)
def test_reading_resumes_at_any_position(rows: int, partitions: int, block_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_ROWS", block_rows)
        source = generator(numbered, rows=rows, partitions=partitions)
        for partition in source.partitions():
            check_resuming(source, partition)


def test_a_position_of_another_number_of_partitions_is_refused_for_they_hold_other_rows() -> None:
    position = read_partition(generator(numbered, rows=20, partitions=2), "1").positions[-1]
    with pytest.raises(JobFailedError, match="was taken with 2 partitions, now there are 3.*partitions=2"):
        read_partition(generator(numbered, rows=20, partitions=3), "1", position)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": -1}, "rows must not be negative"),
        ({"rate": 0}, "rate must be greater than zero"),
        ({"partitions": 0}, "partitions must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(JobDefinitionError, match=message):
        generator(COLUMNS, **options)


def test_a_type_that_cannot_be_made_up_asks_for_a_function() -> None:
    with pytest.raises(JobDefinitionError, match=r"column 'x' of type list<item: int64> needs a function"):
        generator({"x": pa.list_(pa.int64())})


def test_a_function_that_fails_or_gives_other_rows_is_refused() -> None:
    with pytest.raises(JobDefinitionError, match="the function failed on row 0: ZeroDivisionError"):
        generator(lambda rows, random: 1 // 0)
    with pytest.raises(JobDefinitionError, match="was to give 1 rows and gave 2"):
        generator(lambda rows, random: {"x": [1, 2]})
