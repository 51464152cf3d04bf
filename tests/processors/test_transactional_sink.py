"""A transactional sink: rows are visible once, with the snapshot they belong to, whatever fails."""

import re
from functools import partial
from random import Random
from typing import Any

import pytest

from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import BROADCAST, StateBatch
from jetfast.core.transaction import TRANSACTIONS, TransactionId, TransactionOwner
from jetfast.errors import DataLostError, JobFailedError, ProtocolError, RestartableError, SnapshotDamaged
from jetfast.processors.sink import WriteSink
from jetfast.processors.transactional_sink import SWEEP_US, TransactionalSinkProcessor
from jetfast.testing import Faults, StoredRows, TransactionalMemory, VirtualClock, verify_sink
from jetfast.testing.outside_system import Fault
from jetfast.testing.transactional_memory import TransactionalMemoryWriter
from tests.processors.transactional_runs import names, opened, phase_2, restored, rows_of, saved, saved_whole

OWNER = TransactionOwner("job", "", "sink")


def free(execution: int, processor: int, sequence: int) -> str:
    return OWNER.text(TransactionId(execution, processor, sequence))


def pool(place: int, processor: int = 0) -> str:
    return OWNER.text(TransactionId(None, processor, place))


def ids(outside: TransactionalMemory) -> list[int]:
    return [row["id"] for row in outside.rows()]


def write(processor: TransactionalSinkProcessor, *rows: int) -> None:
    processor.process(0, rows_of(*rows))


def phase_1(processor: TransactionalSinkProcessor, snapshot_id: int = 1) -> list[StateBatch]:
    states = saved(processor)
    while not processor.prepare(snapshot_id):
        pass
    return states


def saved_row() -> StateBatch:
    processor = restored(TransactionalMemory.named(), [])
    write(processor, 1)
    (state,) = saved(processor)
    return state


def run_round(processor: TransactionalSinkProcessor, success: bool = True) -> list[StateBatch]:
    states = phase_1(processor)
    assert phase_2(processor, success=success)
    return states


def fail(outside: TransactionalMemory, call: str) -> None:
    """From now on a call does what it is asked for, and says that it failed."""
    outside.faults = Faults(Random(3), {call: 1.0})
    outside.faults.random.random = lambda: 0.9  # type: ignore[method-assign]


KINDS: dict[str, Any] = {
    "named": TransactionalMemory.named,
    "named, overlapping": lambda **options: TransactionalMemory.named(overlaps=True, **options),
    "staged": TransactionalMemory.staged,
    "staged, overlapping": lambda **options: TransactionalMemory.staged(overlaps=True, **options),
    "pool of two": lambda **options: TransactionalMemory.pooled(2, **options),
    "pool of two, revocable": lambda **options: TransactionalMemory.pooled(2, revocable=True, **options),
    "pool of three": lambda **options: TransactionalMemory.pooled(3, **options),
    "pool of three, overlapping": lambda **options: TransactionalMemory.pooled(3, overlaps=True, **options),
    "pool of three, revocable": lambda **options: TransactionalMemory.pooled(
        3, overlaps=True, revocable=True, **options
    ),
}
RATES = {"begin": 0.02, "write": 0.02, "prepare": 0.05, "commit": 0.1, "rollback": 0.1, "list": 0.05, "slow": 0.3}


def run_courses(kind: str, seeds: range) -> set[str]:
    crashed = set()
    for seed in seeds:
        random = Random(f"{kind} {seed}")
        outside = KINDS[kind](faults=Faults(random, RATES if seed % 2 else {}))
        crashed |= verify_sink(
            outside.sink(), partial(ids, outside), seed=f"{kind} {seed}", faults=outside.faults
        ).keys()
        if outside.rules.pool_size is None:
            assert outside.in_doubt() == [], f"seed {seed}"
    return crashed


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_lost_and_none_comes_twice_whatever_crashes(kind):
    assert run_courses(kind, range(6))


@pytest.mark.simulation
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_lost_and_none_comes_twice_in_many_courses(kind):
    crashed = run_courses(kind, range(6, 200))
    assert crashed >= {"between_two_commits", "restore_before_commit", "restore_between_commit_and_rollback"}


# A round


@pytest.mark.parametrize("kind", KINDS)
def test_rows_become_visible_with_phase_2_of_their_snapshot(kind):
    outside = KINDS[kind]()
    processor = restored(outside, [])
    write(processor, 1)
    write(processor, 2)
    assert names(phase_1(processor)) == outside.in_doubt()
    assert ids(outside) == []
    assert phase_2(processor)
    assert ids(outside) == [1, 2]
    assert processor.context.counters == {"rows_written": 2}


def test_only_transactions_in_the_snapshot_are_committed_by_its_phase_2():
    outside = TransactionalMemory.named(overlaps=True)
    processor = restored(outside, [])
    write(processor, 1)
    states = saved(processor)
    write(processor, 2)  # after the barrier, before the first transaction is prepared
    assert processor.prepare(1)
    assert phase_2(processor)
    assert ids(outside) == [1]
    assert names(states) == [free(1, 0, 0)]
    assert outside.in_doubt() == [free(1, 0, 1)]


def test_ids_are_in_the_state_before_anything_is_prepared():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    (state,) = saved(processor)
    assert (state.partition, state.kind, names([state])) == (BROADCAST, TRANSACTIONS, [free(1, 0, 0)])
    assert not outside.transactions[free(1, 0, 0)].prepared


def test_no_rows_no_transaction():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    assert run_round(processor) == []
    assert outside.in_doubt() == []


def test_prepare_is_asked_again_until_it_is_done():
    outside = TransactionalMemory.named(faults=Faults(Random(1), {"slow": 1.0}))
    processor = restored(outside, [])
    write(processor, 1)
    saved(processor)
    assert not processor.prepare(1)
    assert not processor.prepare(1)
    assert not processor.takes_input
    outside.faults.active = False
    assert processor.prepare(1)
    assert processor.takes_input


def test_a_failed_round_keeps_what_was_prepared_and_stores_it_again_in_order():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    run_round(processor, success=False)
    write(processor, 2)
    run_round(processor, success=False)
    write(processor, 3)
    assert names(run_round(processor)) == [free(1, 0, 0), free(1, 0, 1), free(1, 0, 2)]
    assert ids(outside) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["staged", "pool of two, revocable"])
def test_where_prepare_can_be_taken_back_the_transaction_of_a_failed_round_is_continued(kind):
    outside = KINDS[kind]()
    processor = restored(outside, [])
    write(processor, 1)
    for row in (2, 3, 4):
        run_round(processor, success=False)
        write(processor, row)
    assert len(names(run_round(processor))) == 1
    assert ids(outside) == [1, 2, 3, 4]


def test_a_transaction_whose_state_was_not_stored_is_continued():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    saved(processor)
    assert not processor.takes_input
    assert phase_2(processor, success=False)  # without prepare
    assert processor.takes_input
    write(processor, 2)
    assert names(run_round(processor)) == [free(1, 0, 0)]
    assert ids(outside) == [1, 2]


def test_a_transaction_that_is_half_prepared_is_not_continued():
    outside = TransactionalMemory.named(overlaps=True, faults=Faults(Random(1), {"slow": 1.0}))
    processor = restored(outside, [])
    write(processor, 1)
    saved(processor)
    assert not processor.prepare(1)
    assert phase_2(processor, success=False)
    write(processor, 2)
    outside.faults.active = False
    assert names(run_round(processor)) == [free(1, 0, 0), free(1, 0, 1)]


def test_a_prepare_whose_outcome_is_unknown_fails_the_round_and_then_asks_for_a_restart():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    states = saved(processor)
    fail(outside, "prepare")
    with pytest.raises(RestartableError, match=r"sink.*could not be prepared: .*the connection broke during prepare"):
        processor.prepare(1)
    with pytest.raises(RestartableError, match="could not be prepared"):
        phase_2(processor, success=False)
    outside.faults.active = False
    assert names(states) == outside.in_doubt()
    restored(outside, [], execution=2)
    assert outside.in_doubt() == []


def test_a_commit_whose_outcome_is_unknown_asks_for_a_restart_which_commits_again():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)
    fail(outside, "commit")
    with pytest.raises(RestartableError, match="could not be committed"):
        phase_2(processor)
    outside.faults.active = False
    restored(outside, states, execution=2)
    assert ids(outside) == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_system_refuses_in_either_phase_is_no_reason_to_restart(kind, monkeypatch):
    """A constraint may be looked at only when a transaction is prepared, or when staged rows are moved."""
    outside = KINDS[kind]()
    processor = restored(outside, [])

    def refuse(writer, transaction, token=b""):
        raise JobFailedError("row 7 violates a constraint")

    write(processor, 7)
    saved(processor)
    monkeypatch.setattr(TransactionalMemoryWriter, "prepare", refuse)
    with pytest.raises(JobFailedError, match=r"sink.*could not be prepared: row 7 violates"):
        processor.prepare(1)
    with pytest.raises(JobFailedError, match="could not be prepared"):
        phase_2(processor, success=False)
    processor.close(JobFailedError("the job has failed"))
    monkeypatch.undo()
    processor = restored(outside, [], execution=2)
    write(processor, 7)
    states = phase_1(processor)
    monkeypatch.setattr(TransactionalMemoryWriter, "commit", refuse)
    with pytest.raises(JobFailedError, match=r"sink.*could not be committed: row 7 violates"):
        phase_2(processor)
    monkeypatch.undo()
    restored(outside, states, execution=3)  # when the constraint is gone
    assert ids(outside) == [7]


def test_a_mark_that_cannot_be_removed_asks_for_a_restart():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    run_round(processor)
    write(processor, 2)
    phase_1(processor)
    fail(outside, "forget")
    with pytest.raises(RestartableError, match="what tells of commits could not be removed"):
        phase_2(processor, 2)


def test_a_success_without_prepare_is_refused():
    processor = restored(TransactionalMemory.named(), [])
    write(processor, 1)
    saved(processor)
    with pytest.raises(ProtocolError, match="a snapshot succeeded though it was not prepared"):
        phase_2(processor)


def test_what_is_open_at_the_end_of_the_input_goes_with_the_final_snapshot():
    outside = TransactionalMemory.pooled(2)
    processor = restored(outside, [])
    write(processor, 1)
    assert processor.complete() == ()
    run_round(processor, success=False)  # no id is left, and none is needed
    run_round(processor, success=False)
    assert ids(outside) == []
    run_round(processor)
    assert run_round(processor) == []
    assert ids(outside) == [1]


# Pools


@pytest.mark.parametrize("size", [2, 3])
def test_with_two_ids_no_rows_are_taken_between_the_phases_and_with_three_they_are(size):
    processor = restored(TransactionalMemory.pooled(size, overlaps=True), [])
    for _ in range(4):
        write(processor, 1)
        saved(processor)
        assert processor.takes_input == (size == 3)
        processor.prepare(1)
        assert processor.takes_input == (size == 3)
        phase_2(processor)
        assert processor.takes_input


@pytest.mark.parametrize("kind", ["named", "pool of three"])
def test_without_overlap_no_rows_are_taken_until_the_transaction_is_prepared(kind):
    processor = restored(KINDS[kind](), [])
    write(processor, 1)
    saved(processor)
    assert not processor.takes_input
    with pytest.raises(ProtocolError, match="rows came while its transactions took none"):
        write(processor, 2)
    processor.prepare(1)
    assert processor.takes_input


def test_ids_of_a_pool_are_used_in_turn():
    outside = TransactionalMemory.pooled(3)
    processor = restored(outside, [])
    used = []
    for row in range(4):
        write(processor, row)
        used += names(run_round(processor))
    assert used == [pool(0), pool(1), pool(2), pool(0)]
    assert ids(outside) == [0, 1, 2, 3]


@pytest.mark.parametrize(("size", "rounds"), [(2, 1), (3, 2)])
def test_a_sink_without_a_free_id_after_a_round_asks_for_a_restart(size, rounds):
    outside = TransactionalMemory.pooled(size)
    processor = restored(outside, [])
    for _ in range(rounds - 1):
        write(processor, 1)
        run_round(processor, success=False)
    write(processor, 2)
    with pytest.raises(RestartableError, match=f"no transaction id is left after {rounds} failed rounds"):
        run_round(processor, success=False)


def test_an_id_of_the_decided_snapshot_is_not_begun_again_after_a_restore():
    outside = TransactionalMemory.pooled(2)
    first = restored(outside, [])
    write(first, 1)
    states = phase_1(first)
    assert names(states) == [pool(0)]
    second = restored(outside, states, execution=2)
    write(second, 2)
    assert outside.in_doubt() == [pool(1)]
    third = restored(outside, states, execution=3, parallelism_max=1)  # nothing has been decided since
    write(third, 2)
    run_round(third)
    assert ids(outside) == [1, 2]


def test_ids_that_another_processor_has_committed_are_not_begun_again_either():
    outside = TransactionalMemory.pooled(2)
    first = [restored(outside, [], index=index, parallelism=2) for index in range(2)]
    write(first[1], 1)
    states = phase_1(first[1])
    restored(outside, states, execution=2, parallelism_max=2)  # its only processor commits it
    third = restored(outside, states, execution=3, index=1, parallelism=2, parallelism_max=2)
    write(third, 2)
    assert outside.in_doubt() == [pool(1, processor=1)]


def test_a_restart_probes_ids_up_to_the_largest_parallelism_that_the_job_ever_had():
    outside = TransactionalMemory.pooled(3)
    for index in range(5):
        processor = restored(outside, [], index=index, parallelism=5)
        write(processor, index)
        phase_1(processor)
    assert len(outside.in_doubt()) == 5
    for index in range(2):
        restored(outside, [], execution=2, index=index, parallelism=2, parallelism_max=5)
    assert outside.in_doubt() == []


# Restore


def test_a_restore_commits_what_the_snapshot_names_and_rolls_back_the_rest():
    outside = TransactionalMemory.named()
    first = restored(outside, [])
    write(first, 1)
    states = phase_1(first)
    write(first, 2)
    restored(outside, states, execution=2)
    assert ids(outside) == [1]
    assert outside.in_doubt() == []


def test_each_transaction_is_settled_by_one_processor_of_the_next_execution():
    outside = TransactionalMemory.named()
    states = []
    for index in range(5):
        processor = restored(outside, [], index=index, parallelism=5)
        write(processor, index)
        states += phase_1(processor)
        write(processor, 10 + index)
    for index in range(2):
        restored(outside, states, execution=2, index=index, parallelism=2)
        assert ids(outside) == ([0, 2, 4] if index == 0 else [0, 2, 4, 1, 3])
        assert len(outside.in_doubt()) == (4 if index == 0 else 0)


def test_transactions_of_other_jobs_and_steps_and_of_later_executions_are_left_alone():
    outside = TransactionalMemory.named()
    others = [TransactionOwner("other", "", "sink"), TransactionOwner("job", "7", "sink")]
    texts = [owner.text(TransactionId(1, 0, 0)) for owner in others] + [free(3, 0, 0), "foreign"]
    somebody = outside.sink().open_transactions(rows_of(1).to_arrow().schema, opened(outside).context)
    for text in texts:
        somebody.begin(text)
        assert somebody.prepare(text)
    before = outside.in_doubt()
    restored(outside, [], execution=2).close(None)
    assert outside.in_doubt() == before


@pytest.mark.parametrize("kind", ["named", "pool of two"])
def test_a_transaction_in_the_snapshot_that_was_aborted_is_an_error_that_says_data_is_lost(kind):
    outside = KINDS[kind]()
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)
    outside.transactions.clear()  # an operator has rolled it back
    with pytest.raises(DataLostError, match=r"transaction .* is unknown: its rows are lost"):
        restored(outside, states, execution=2)
    with pytest.raises(DataLostError):
        phase_2(processor)


def test_transactions_that_turn_up_late_are_rolled_back_now_and_then_and_at_the_end():
    clock = VirtualClock()
    outside = TransactionalMemory.named()
    thought_dead = opened(outside)
    processor = restored(outside, [], execution=2, now_us=clock)
    write(thought_dead, 1)
    phase_1(thought_dead)
    run_round(processor)
    assert outside.in_doubt() == [free(1, 0, 0)]
    clock.advance_us(SWEEP_US)
    run_round(processor)
    assert outside.in_doubt() == []
    write(thought_dead, 1)
    processor.close(None)
    assert outside.in_doubt() == []


def test_a_list_that_fails_stops_a_restore_but_not_a_running_job(caplog):
    clock = VirtualClock()
    outside = TransactionalMemory.named()
    processor = restored(outside, [], now_us=clock)
    fail(outside, "list")
    clock.advance_us(SWEEP_US)
    run_round(processor)
    assert "late transactions could not be rolled back: transactions: the connection broke during list" in caplog.text
    with pytest.raises(RestartableError, match="transactions of earlier executions could not be rolled back"):
        restored(outside, [], execution=2)


def test_late_transactions_are_rolled_back_one_by_one_and_again_if_that_fails_at_first():
    outside = TransactionalMemory.named()
    dead = restored(outside, [], execution=1)
    processor = restored(outside, [], execution=2)
    write(dead, 1)
    phase_1(dead)
    write(dead, 2)
    assert len(outside.in_doubt()) == 2
    refusals = iter([True, False, True, True, False])
    outside.faults.choose = lambda call: Fault.REFUSED if call == "rollback" and next(refusals, False) else None
    processor.close(None)
    assert outside.in_doubt() == []
    assert next(refusals, None) is None


def test_what_tells_that_a_transaction_was_committed_is_kept_until_a_newer_snapshot_is_decided():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    states = run_round(processor)
    restored(outside, states, execution=1)  # it is committed again
    write(processor, 2)
    phase_1(processor)
    assert outside.outcomes[free(1, 0, 0)] == "committed"
    phase_2(processor, 2)
    assert list(outside.outcomes) == [free(1, 0, 1)]
    run_round(processor)
    assert list(outside.outcomes) == [free(1, 0, 1)], "it tells a store that was put back"
    last = restored(outside, [], execution=2)
    assert list(outside.outcomes) == [free(1, 0, 1)]
    write(last, 3)
    run_round(last)
    assert list(outside.outcomes) == [free(2, 0, 0)]


# A store that was put back


def test_a_snapshot_that_is_older_than_what_was_committed_is_refused_and_nothing_is_changed():
    outside = TransactionalMemory.named()
    processors = [restored(outside, [], index=index, parallelism=2) for index in range(2)]
    write(processors[0], 1)
    backup = [state for processor in processors for state in saved_whole(processor)]
    for processor in processors:
        assert processor.prepare(1)
        assert phase_2(processor, 1)
    restored(outside, backup, execution=2)  # it is the newest
    write(processors[1], 2)
    newer = [state for processor in processors for state in saved_whole(processor)]
    for processor in processors:
        assert processor.prepare(2)
        assert phase_2(processor, 2)
    write(processors[0], 3)
    phase_1(processors[0])
    before = ids(outside), outside.in_doubt()
    for parallelism in (1, 2, 3):
        for index in range(parallelism):  # each of them, whoever would have to settle it
            slow = opened(outside, index=index, parallelism=parallelism, execution=3)
            for state in backup:
                slow.restore_snapshot(state)
            with pytest.raises(SnapshotDamaged, match=r"only transactions before .*, but .* shows rows of .*1\.1\.0"):
                slow.finish_restore()
    assert (ids(outside), outside.in_doubt()) == before
    restored(outside, newer, execution=4)


def test_a_snapshot_of_an_execution_before_the_one_that_committed_last_is_refused():
    outside = TransactionalMemory.staged()
    first = restored(outside, [])
    write(first, 1)
    backup = saved_whole(first)
    assert first.prepare(1)
    assert phase_2(first, 1)
    second = restored(outside, backup, execution=5)
    run_round(second)
    write(second, 2)
    run_round(second)
    slow = opened(outside, execution=6)
    for state in backup:
        slow.restore_snapshot(state)
    with pytest.raises(SnapshotDamaged, match="older copy"):
        slow.finish_restore()


def test_an_older_snapshot_of_an_earlier_version_is_found_out_by_what_it_names():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    old = saved(processor)  # without the next transaction
    assert processor.prepare(1)
    assert phase_2(processor, 1)
    restored(outside, old, execution=2)
    write(processor, 2)
    run_round(processor)
    with pytest.raises(DataLostError, match="its rows are lost"):
        restored(outside, old, execution=3)


def test_marks_of_later_executions_are_left_alone():
    outside = TransactionalMemory.named()
    slow = opened(outside)
    later = restored(outside, [], execution=2)
    write(later, 1)
    states = run_round(later)
    slow.finish_restore()  # it has been cut off meanwhile
    restored(outside, states, execution=3)
    assert ids(outside) == [1]


def test_state_of_another_step_is_refused():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    states = saved(processor)
    other = opened(outside)
    other.owner = TransactionOwner("job", "", "another")
    for state in states:
        other.restore_snapshot(state)
    with pytest.raises(ProtocolError, match="no transaction of this step"):
        other.finish_restore()


@pytest.mark.parametrize("kind", ["named", "pool of three"])
def test_a_job_whose_guarantee_was_lowered_settles_the_transactions_of_its_snapshot(kind: str) -> None:
    outside = KINDS[kind]()
    first = restored(outside, [])
    write(first, 1)
    states = phase_1(first)
    write(first, 2)
    second = restored(outside, states, execution=2, guarantee=Guarantee.AT_LEAST_ONCE)
    assert ids(outside) == [1]
    assert outside.in_doubt() == []
    write(second, 2)
    assert saved(second) == []
    assert ids(outside) == [1, 2]


def test_state_of_another_kind_of_sink_is_refused():
    outside = TransactionalMemory.named()
    state = StateBatch(0, "unpublished", saved_row().rows)
    for processor in (opened(outside), WriteSink(StoredRows().sink(), rows_of(1).to_arrow().schema)()):
        with pytest.raises(JobFailedError, match="the snapshot holds 'unpublished' of another kind of sink"):
            processor.restore_snapshot(state)


# Time


def test_a_transaction_that_would_time_out_before_the_next_round_asks_for_a_restart():
    clock = VirtualClock()
    outside = TransactionalMemory.named(timeout_us=60_000_000, now_us=clock)
    processor = restored(outside, [], now_us=clock)
    write(processor, 1)
    clock.advance("20s")
    run_round(processor, success=False)
    clock.advance("20s")
    with pytest.raises(RestartableError, match=r"has been open for 40.0 s and would be aborted after 60.0 s"):
        run_round(processor, success=False)


# The end


def test_what_is_not_decided_is_rolled_back_when_the_job_is_cancelled():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    run_round(processor, success=False)
    write(processor, 2)
    processor.close(RestartableError("cancelled"))
    assert outside.in_doubt() == []
    assert ids(outside) == []


def test_what_may_be_decided_is_not_rolled_back():
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)
    write(processor, 2)
    processor.close(RestartableError("the coordinator is silent"))
    assert names(states) == outside.in_doubt()


# Weaker guarantees


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.NONE])
def test_without_exactly_once_rows_are_written_without_transactions(guarantee):
    outside = TransactionalMemory.pooled(2)
    processor = opened(outside, guarantee=guarantee)
    processor.finish_restore()
    write(processor, 1)
    assert saved(processor) == []
    assert ids(outside) == [1]  # flushed before the state is saved
    assert processor.prepare(1)
    assert phase_2(processor)
    write(processor, 2)
    processor.complete()
    processor.close(None)
    assert ids(outside) == [1, 2]
    assert outside.in_doubt() == []


def test_a_writer_for_commits_that_cannot_be_opened_asks_for_a_restart(monkeypatch):
    outside = TransactionalMemory.named()
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)

    def refuse(sink, schema, context):
        raise JobFailedError("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(outside.sink()), "open_transactions", refuse)
        with pytest.raises(RestartableError, match="cannot begin to commit: the disk is away"):
            phase_2(processor)
    restored(outside, states, execution=2)
    assert ids(outside) == [1]


def test_what_no_snapshot_names_is_rolled_back_though_a_named_transaction_cannot_be_committed():
    outside = TransactionalMemory.named()
    first = restored(outside, [])
    write(first, 1)
    states = phase_1(first)
    write(first, 2)
    outside.faults = Faults(Random(1), {"commit": 1.0})
    outside.faults.random.random = lambda: 0.0  # type: ignore[method-assign]
    with pytest.raises(RestartableError, match="could not be committed"):
        restored(outside, states, execution=2)
    assert outside.in_doubt() == names(states)


def lost(outside: TransactionalMemory, count: int) -> tuple[list[StateBatch], list[str]]:
    """A snapshot whose transactions the system has lost, but for the last."""
    processor = restored(outside, [])
    for row in range(count):
        write(processor, row)
        states = run_round(processor, success=False)
    gone = names(states)
    for text in gone[:-1]:
        del outside.transactions[text]
    return states, gone


def test_all_lost_transactions_are_named_and_the_rest_is_committed():
    outside = TransactionalMemory.named()
    states, gone = lost(outside, 3)
    with pytest.raises(DataLostError, match=re.escape(f"accept_loss={gone[:-1]}")):
        restored(outside, states, execution=2)
    assert ids(outside) == [2]


def test_a_named_loss_is_accepted_said_in_the_log_and_no_other(caplog):
    outside = TransactionalMemory.named()
    states, gone = lost(outside, 3)
    with pytest.raises(DataLostError, match=re.escape(f"accept_loss={[gone[1]]}")):
        restored(outside, states, execution=2, accepted_losses=frozenset({gone[0]}))
    processor = restored(outside, states, execution=3, accepted_losses=frozenset(gone))
    assert [record.getMessage() for record in caplog.records if f"transaction {gone[1]} is lost" in record.getMessage()]
    assert not [record for record in caplog.records if f"transaction {gone[2]} is lost" in record.getMessage()]
    write(processor, 7)
    run_round(processor)
    assert ids(outside) == [2, 7]
