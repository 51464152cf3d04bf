"""State by slot, row by row, against plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.keyed_state import (
    NEVER_SEEN,
    keep_first,
    note_times,
    number_states,
    run_counts,
    run_extremes,
    run_sums,
)

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), st.booleans()), max_size=15)


def columns(rows):
    slots, times, valid = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return np.array(slots, np.uint32), np.array(times, np.int64), np.array(valid, np.uint8)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([0, 2, 2**63 - 1]))
def test_states_are_numbered_anew_when_a_row_comes_after_the_time_to_live(rows, ttl):
    slots, times, _ = columns(rows)
    seen, scratch = np.full(4, NEVER_SEEN), np.full(4, -1, np.int32)
    seen[0] = 0
    groups, group_slots, before, ended = number_states(slots, times, ttl, seen, scratch)
    last, number, expected = {0: 0}, {}, []
    for slot, time, _ in rows:
        over = slot in last and time > last[slot] + ttl
        if slot not in number or over:
            expected.append((slot, number.get(slot, -1) if over else -1, last[slot] + ttl if over else NEVER_SEEN))
            number[slot] = len(expected) - 1
        last[slot] = max(time, last.get(slot, time))
    assert list(zip(group_slots.tolist(), before.tolist(), ended.tolist(), strict=True)) == expected
    assert [group_slots[group] for group in groups] == slots.tolist()
    assert {slot: int(time) for slot, time in enumerate(seen) if time != NEVER_SEEN} == last
    assert (scratch == -1).all()


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([0, 2, 2**63 - 1]))
def test_first_rows_are_kept_and_again_beyond_the_horizon(rows, horizon):
    slots, times, _ = columns(rows)
    seen = np.full(4, NEVER_SEEN)
    kept, last = [], {}
    for row, (slot, time, _) in enumerate(rows):
        if slot not in last or time > last[slot] + horizon:
            kept.append(row)
            last[slot] = time
    assert keep_first(slots, times, horizon, seen).tolist() == kept
    note_times(slots, times, seen)
    assert [time for time in seen.tolist() if time != NEVER_SEEN] == [
        max(time for slot, time, _ in rows if slot == wanted) for wanted in range(4) if wanted in last
    ]


@settings(max_examples=60, deadline=None)
@given(ROWS, st.booleans(), st.sampled_from([np.int64, np.float64]))
def test_running_results_are_those_of_the_rows_so_far(rows, greatest, kind):
    slots, values, valid = columns(rows)
    values = values.astype(kind)
    counts = run_counts(slots, valid, np.zeros(4, np.int64))
    sums = run_sums(slots, values, valid, np.zeros(4, kind))
    extremes = run_extremes(slots, values, valid, greatest, np.zeros(4, np.int64), np.zeros(4, kind))
    for row, slot in enumerate(slots):
        met = [value for other, value, there in rows[: row + 1] if other == slot and there]
        assert counts[row] == len(met)
        assert sums[row] == sum(met)
        if met:
            assert extremes[row] == (max(met) if greatest else min(met))


def test_nan_is_greater_than_any_number_and_a_sum_that_does_not_fit_is_refused():
    slots = np.zeros(4, np.uint32)
    values = np.array([np.nan, 1.0, np.nan, -1.0])
    least = run_extremes(slots, values, None, False, np.zeros(1, np.int64), np.zeros(1))
    assert least[1:].tolist() == [1.0, 1.0, -1.0]
    assert np.isnan(run_extremes(slots, values, None, True, np.zeros(1, np.int64), np.zeros(1))).all()
    with pytest.raises(OverflowError, match="row 1: the sum does not fit 64 bits"):
        run_sums(slots[:2], np.array([2**63 - 1, 1]), None, np.zeros(1, np.int64))


def test_slots_out_of_range_and_arrays_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="slot 3 is not below 2"):
        run_counts(np.array([3], np.uint32), None, np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="1 slots for 2 rows"):
        note_times(np.array([0], np.uint32), np.zeros(2, np.int64), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="1 slots for 0 rows"):
        run_sums(np.array([0], np.uint32), np.zeros(1), np.zeros(0, np.uint8), np.zeros(1))
