"""Windows over batches as jobs have them: hundreds of rows in few frames, with and without nulls."""

import math
import random
from fractions import Fraction

import pytest

from tests.kernels.window_tables import (
    AGGREGATES,
    Row,
    check_counters,
    check_results,
    drain,
    make_table,
    reference,
    to_batch,
)

WINDOW = (30, 10, 0)
BATCHES = 8


def random_row(random_state: random.Random, now: int, null_share: float) -> Row:
    def or_null(value: object) -> object:
        return None if random_state.random() < null_share else value

    number = random_state.choice([*(random_state.randrange(-640, 640) / 64 for _ in range(8)), math.nan, math.inf])
    return {
        "k": or_null(random_state.randrange(9)),
        "s": or_null(random_state.choice(["a", "b"])),
        "t": now + random_state.randrange(25),
        "f": or_null(number),
        "i": or_null(random_state.randrange(-(2**31), 2**31)),
        "d": or_null(Fraction(random_state.randrange(-1000, 1000), 100)),
    }


@pytest.mark.parametrize("null_share", [0, 0.12, 1])
@pytest.mark.parametrize("keys", [["k"], ["k", "s"]], ids="-".join)
def test_batches_of_many_rows_equal_the_slow_twin(keys: list[str], null_share: float) -> None:
    random_state = random.Random(7)
    table, slow = make_table(WINDOW, keys), reference(WINDOW, keys)
    for number in range(BATCHES):
        batch = [random_row(random_state, number * 12, null_share if number % 2 else 0) for _ in range(120)]
        table.accumulate(to_batch(batch, padding=3))
        slow.accumulate(batch)
        watermark = number * 12 - 5
        table.advance(watermark)
        check_results(drain(table, keys), slow.advance(watermark), AGGREGATES)
    table.advance(1000)
    check_results(drain(table, keys), slow.advance(1000), AGGREGATES)
    check_counters(table, slow)
