"""Numbers for places and orders within groups, against numpy's unique and lexsort."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.grouping import number_places, order_by_group


def places(limit: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, limit), max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(places(3), places(200), places(2**40)), min_size=1, max_size=4))
def test_places_are_numbered_ascending_span_by_span(spans):
    starts = np.cumsum([0, *map(len, spans)])
    groups, group_places, bounds = number_places(np.array([*chain.from_iterable(spans)], np.int64), starts)
    assert len(bounds) == len(spans) + 1
    assert bounds[-1] == len(group_places)
    for number, span in enumerate(spans):
        own = group_places[bounds[number] : bounds[number + 1]]
        assert own.tolist() == sorted(set(span))
        own_groups = groups[starts[number] : starts[number + 1]]
        assert group_places[own_groups].tolist() == span
        assert all(bounds[number] <= group < bounds[number + 1] for group in own_groups)


KEYS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), KEYS, st.integers(-2, 2))))
def test_order_is_by_group_and_keys_and_then_as_rows_come(rows):
    groups, keys, second_keys = (np.array([row[column] for row in rows], np.int64) for column in range(3))
    assert order_by_group(groups, 5).tolist() == np.lexsort((groups,)).tolist()
    assert order_by_group(groups, 5, keys).tolist() == np.lexsort((keys, groups)).tolist()
    assert order_by_group(groups, 5, keys, second_keys).tolist() == np.lexsort((second_keys, keys, groups)).tolist()


def test_two_ascending_runs_are_merged_in_the_order_in_which_they_came():
    keys = np.array([1, 3, 5, 5, 9, 2, 3, 5, 10], np.int64)
    order = order_by_group(np.zeros(9, np.int64), 1, keys)
    assert order.tolist() == [0, 5, 1, 6, 2, 3, 7, 4, 8]


def test_no_rows_give_no_groups():
    none = np.empty(0, np.int64)
    groups, group_places, bounds = number_places(none)
    assert (groups.tolist(), group_places.tolist(), bounds.tolist()) == ([], [], [0, 0])
    assert order_by_group(none, 0).tolist() == []


def test_what_does_not_fit_is_refused():
    rows = np.array([0, 1, 2], np.int64)
    with pytest.raises(ValueError, match=r"groups must be in \[0, 2\)"):
        order_by_group(rows, 2)
    with pytest.raises(ValueError, match=r"groups must be in \[0, 3\)"):
        order_by_group(-rows, 3)
    with pytest.raises(ValueError, match="there are 2 keys for 3 rows"):
        order_by_group(rows, 3, rows[:2])
    with pytest.raises(ValueError, match="there are 2 second keys for 3 rows"):
        order_by_group(rows, 3, rows, rows[:2])
    with pytest.raises(ValueError, match="second_keys need keys"):
        order_by_group(rows, 3, None, rows)
    with pytest.raises(ValueError, match="places must not be negative"):
        number_places(-rows)
    for starts in ([0, 2], [1, 3], [0, 2, 1, 3], [3]):
        with pytest.raises(ValueError, match="spans must follow one another from 0 to 3"):
            number_places(rows, np.array(starts, np.int64))
