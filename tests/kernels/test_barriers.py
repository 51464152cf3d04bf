"""The barrier aligner: equal to its slow twin, and the rules of SEMANTICS 3 by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.barriers import BarrierAligner
from tests.kernels.stream_reference import SlowAligner


def answer(aligner, call, *arguments):
    try:
        return getattr(aligner, call)(*arguments)
    except ValueError:
        return "error"


@settings(max_examples=120, deadline=None)
@given(st.integers(1, 4), st.booleans(), st.data())
def test_it_equals_its_slow_twin(queue_count, exactly_once, data):
    fast, slow = BarrierAligner(queue_count, exactly_once), SlowAligner(queue_count, exactly_once)
    terminal_often = data.draw(st.booleans())
    queue = st.integers(0, queue_count - 1)
    step = st.one_of(
        st.tuples(st.just("observe_barrier"), queue, st.integers(1, 3), st.just(terminal_often)),
        st.tuples(st.just("observe_barrier"), queue, st.integers(1, 3), st.booleans()),
        st.tuples(st.just("observe_done"), queue),
        st.tuples(st.just("release")),
    )
    for call, *arguments in data.draw(st.lists(step, max_size=30)):
        assert answer(fast, call, *arguments) == answer(slow, call, *arguments)
        assert fast.aligning == slow.aligning
        assert [fast.is_blocked(q) for q in range(queue_count)] == [slow.is_blocked(q) for q in range(queue_count)]


def test_exactly_once_blocks_a_queue_until_the_barrier_has_come_on_all():
    aligner = BarrierAligner(3, exactly_once=True)
    assert not aligner.observe_barrier(0, 7)
    assert aligner.is_blocked(0)
    assert not aligner.is_blocked(1)
    assert not aligner.observe_barrier(2, 7)
    assert aligner.observe_barrier(1, 7)
    assert aligner.aligning == 7
    aligner.release()
    assert aligner.aligning is None
    assert not any(aligner.is_blocked(queue) for queue in range(3))


def test_at_least_once_reads_on_except_at_a_terminal_barrier():
    aligner = BarrierAligner(2, exactly_once=False)
    aligner.observe_barrier(0, 1)
    assert not aligner.is_blocked(0)
    assert aligner.observe_barrier(1, 1)
    aligner.release()
    aligner.observe_barrier(0, 2, terminal=True)
    assert aligner.is_blocked(0)


def test_after_a_terminal_barrier_nothing_is_read():
    aligner = BarrierAligner(2, exactly_once=False)
    aligner.observe_barrier(0, 1, terminal=True)
    aligner.observe_barrier(1, 1, terminal=True)
    aligner.release()
    assert aligner.is_blocked(0)
    assert aligner.is_blocked(1)
    with pytest.raises(ValueError, match="queue 0: barrier 2"):
        aligner.observe_barrier(0, 2)


def test_a_queue_that_is_done_counts_as_aligned():
    aligner = BarrierAligner(2, exactly_once=True)
    aligner.observe_barrier(0, 1)
    assert aligner.observe_done(1)
    aligner.release()
    assert aligner.observe_barrier(0, 2)


def test_a_wrong_id_is_an_error_that_names_the_queue():
    aligner = BarrierAligner(2, exactly_once=True)
    aligner.observe_barrier(0, 4)
    with pytest.raises(ValueError, match="queue 1: barrier 5, expected 4"):
        aligner.observe_barrier(1, 5)
    aligner.observe_barrier(1, 4)
    aligner.release()
    with pytest.raises(ValueError, match="queue 1: barrier 4, expected 5"):
        aligner.observe_barrier(1, 4)


def test_a_second_barrier_or_end_of_one_queue_is_an_error():
    aligner = BarrierAligner(2, exactly_once=False)
    aligner.observe_barrier(0, 1)
    with pytest.raises(ValueError, match="queue 0: barrier 1 while"):
        aligner.observe_barrier(0, 1)
    aligner.observe_done(0)
    with pytest.raises(ValueError, match="queue 0: barrier 1 after it was done"):
        aligner.observe_barrier(0, 1)
    with pytest.raises(ValueError, match="queue 0: done a second time"):
        aligner.observe_done(0)


def test_terminal_on_some_queues_only_is_an_error():
    aligner = BarrierAligner(2, exactly_once=True)
    aligner.observe_barrier(0, 1, terminal=True)
    with pytest.raises(ValueError, match="terminal on some queues"):
        aligner.observe_barrier(1, 1)


def test_there_must_be_something_to_release():
    with pytest.raises(ValueError, match="no aligned barrier"):
        BarrierAligner(1, exactly_once=True).release()
    with pytest.raises(IndexError, match="only 0 to 0"):
        BarrierAligner(1, exactly_once=True).is_blocked(1)
