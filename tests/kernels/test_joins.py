"""Pairs by slot, and by slot and time, against comparing all rows with all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.joins import NO_SLOT, SlotMatches, TimeChains

SLOTS = st.lists(st.sampled_from([0, 1, 2, 7, NO_SLOT]), max_size=12).map(lambda slots: np.array(slots, np.uint32))


@settings(max_examples=60, deadline=None)
@given(SLOTS, SLOTS, st.integers(1, 5), st.booleans())
def test_pairs_are_those_of_equal_slots_in_portions(left, right, portion, keep_left):
    matches = SlotMatches(right, 8)
    matches.probe(left)
    found = []
    while (pairs := matches.next(portion, keep_left)) is not None:
        assert len(pairs[0]) <= portion
        found += zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)
    expected = []
    for row, slot in enumerate(left):
        others = [(row, other) for other in np.flatnonzero(right == slot).tolist() if slot != NO_SLOT]
        expected += others or ([(row, len(right))] if keep_left else [])
    assert found == expected
    met = {other for _, other in found}
    assert matches.unmatched().tolist() == [row for row in range(matches.right_count) if row not in met]


ENDS = st.integers(-(2**63), -(2**63) + 3) | st.integers(2**63 - 4, 2**63 - 1)
TIMES = st.lists(st.integers(0, 9) | ENDS, min_size=12, max_size=12).map(lambda times: np.array(times, np.int64))


@settings(max_examples=60, deadline=None)
@given(SLOTS, SLOTS, TIMES, TIMES, st.integers(-5, 0), st.integers(0, 5), st.integers(1, 5))
def test_rows_meet_those_whose_times_are_within_bounds_at_the_ends_of_time_too(
    kept, probed, kept_times, probed_times, lower, upper, portion
):
    chains = TimeChains()
    for row in range(len(kept)):
        chains.append(kept[row : row + 1], kept_times[row : row + 1], 8)
    flags = chains.probe(probed, probed_times[: len(probed)], lower, upper)
    found = []
    while (pairs := chains.next(portion)) is not None:
        found += zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)
    expected = [
        (row, other)
        for row, slot in enumerate(probed.tolist())
        for other, time in enumerate(kept_times[: len(kept)].tolist())
        if slot != NO_SLOT and slot == kept[other] and lower <= time - int(probed_times[row]) <= upper
    ]
    assert sorted(found) == sorted(expected)
    assert np.flatnonzero(flags).tolist() == sorted({row for row, _ in expected})
    assert np.flatnonzero(chains.matched()).tolist() == sorted({row for _, row in expected})
    assert chains.times().tolist() == kept_times[: len(kept)].tolist()


def test_what_has_met_nobody_expires_once():
    chains = TimeChains()
    chains.append(np.array([1, 1, NO_SLOT], np.uint32), np.array([5, 6, 7]), 2, np.array([1, 0, 0], np.uint8))
    assert [chains.expire(bound).tolist() for bound in (6, 7, 7, 8)] == [[], [1], [], [2]]
    chains.append(np.array([0], np.uint32), np.array([3]), 2)
    assert chains.expire(7).tolist() == [3]


def test_arguments_that_do_not_fit_are_refused():
    chains = TimeChains()
    slots = np.array([1, 2], np.uint32)
    with pytest.raises(ValueError, match="slots must be below 2"):
        chains.append(slots, np.array([1, 2]), 2)
    with pytest.raises(ValueError, match="2 slots and 1 times"):
        chains.append(slots, np.array([1]), 3)
    with pytest.raises(ValueError, match="2 slots and 1 times"):
        chains.probe(slots, np.array([1]), 0, 1)
    with pytest.raises(ValueError, match="2 slots and 1 times"):
        chains.find_latest(slots, np.array([1]), 1)
    with pytest.raises(ValueError, match="rows_max must be at least 1"):
        chains.next(0)
    with pytest.raises(ValueError, match="rows_max must be at least 1"):
        SlotMatches(slots, 3).next(0)
    with pytest.raises(ValueError, match=r"row 0 is not in \[0, 0\)"):
        chains.times_of(np.array([0], np.int32))
