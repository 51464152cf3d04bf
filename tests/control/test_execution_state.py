"""The machine of one execution: its table, random orders with invariants after each event, causes of failure."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.control.execution_state import (
    ENDED,
    CancelMember,
    EndExecution,
    ExecutionCommand,
    ExecutionEvent,
    ExecutionPhase,
    ExecutionState,
    MemberFailed,
    MemberFinished,
    MemberLost,
    MemberPhase,
    MemberPrepared,
    MemberRegistered,
    PrepareMember,
    ReleaseMember,
    StartMember,
    StopExecution,
)
from jetfast.errors import (
    InvalidTransition,
    JobCancelledError,
    JobFailedError,
    MemberLostError,
    PeerUnreachableError,
    TransportError,
)

BOOM = JobFailedError("boom")
LOST = MemberLostError("gone")
CANCELLED = JobCancelledError("the job was cancelled")
EVENTS: dict[str, Callable[[int], ExecutionEvent]] = {
    "registered": MemberRegistered,
    "prepared": MemberPrepared,
    "finished": MemberFinished,
    "failed": lambda member: MemberFailed(member, BOOM),
    "lost": lambda member: MemberLost(member, LOST),
    "stop": lambda member: StopExecution(CANCELLED),
}


def run(state: ExecutionState, *events: ExecutionEvent) -> list[ExecutionCommand]:
    return [command for event in events for command in state.handle(event)]


def at(phase: ExecutionPhase) -> ExecutionState:
    """A machine of one member in a phase; in ENDING the member still runs."""
    state = ExecutionState(1)
    paths: dict[ExecutionPhase, list[ExecutionEvent]] = {
        ExecutionPhase.GATHERING: [],
        ExecutionPhase.PREPARING: [MemberRegistered(0)],
        ExecutionPhase.RUNNING: [MemberRegistered(0), MemberPrepared(0)],
        ExecutionPhase.ENDING: [MemberRegistered(0), MemberPrepared(0), StopExecution(CANCELLED)],
        ExecutionPhase.COMPLETED: [MemberRegistered(0), MemberPrepared(0), MemberFinished(0)],
        ExecutionPhase.FAILED: [MemberRegistered(0), MemberPrepared(0), MemberFailed(0, BOOM)],
    }
    run(state, *paths[phase])
    assert state.phase is phase
    return state


INVALID = None
TABLE: dict[ExecutionPhase, dict[str, ExecutionPhase | None]] = {
    ExecutionPhase.GATHERING: {
        "registered": ExecutionPhase.PREPARING,
        "prepared": INVALID,
        "finished": INVALID,
        "failed": INVALID,
        "lost": INVALID,  # it was not there
        "stop": ExecutionPhase.FAILED,
    },
    ExecutionPhase.PREPARING: {
        "registered": INVALID,
        "prepared": ExecutionPhase.RUNNING,
        "finished": INVALID,
        "failed": ExecutionPhase.FAILED,
        "lost": ExecutionPhase.FAILED,
        "stop": ExecutionPhase.ENDING,
    },
    ExecutionPhase.RUNNING: {
        "registered": INVALID,
        "prepared": INVALID,
        "finished": ExecutionPhase.COMPLETED,
        "failed": ExecutionPhase.FAILED,
        "lost": ExecutionPhase.FAILED,
        "stop": ExecutionPhase.ENDING,
    },
    ExecutionPhase.ENDING: {
        "registered": INVALID,
        "prepared": INVALID,  # it was prepared before
        "finished": ExecutionPhase.FAILED,
        "failed": ExecutionPhase.FAILED,
        "lost": ExecutionPhase.FAILED,
        "stop": ExecutionPhase.ENDING,
    },
    **{
        phase: {
            "registered": INVALID,
            "prepared": INVALID,
            "finished": INVALID,
            "failed": INVALID,
            "lost": phase,
            "stop": phase,
        }
        for phase in (ExecutionPhase.COMPLETED, ExecutionPhase.FAILED)
    },
}


@pytest.mark.parametrize("phase", list(ExecutionPhase), ids=lambda phase: phase.value)
@pytest.mark.parametrize("event", list(EVENTS))
def test_every_pair_of_phase_and_event_does_what_the_table_says(phase: ExecutionPhase, event: str) -> None:
    state = at(phase)
    expected = TABLE[phase][event]
    before = dict(vars(state), members=list(state.members))
    if expected is INVALID:
        with pytest.raises(InvalidTransition):
            state.handle(EVENTS[event](0))
        assert dict(vars(state), members=list(state.members)) == before
    else:
        state.handle(EVENTS[event](0))
        assert state.phase is expected


def test_an_execution_prepares_all_members_before_it_starts_any() -> None:
    state = ExecutionState(2)
    assert run(state, MemberRegistered(1)) == []
    assert run(state, MemberRegistered(0)) == [PrepareMember(0), PrepareMember(1)]
    assert run(state, MemberPrepared(0)) == []
    assert run(state, MemberPrepared(1)) == [StartMember(0), StartMember(1)]
    assert run(state, MemberFinished(1)) == []
    assert run(state, MemberFinished(0)) == [ReleaseMember(0), ReleaseMember(1), EndExecution(None)]


def test_the_first_failure_cancels_the_others_and_is_published_when_all_have_ended() -> None:
    state = ExecutionState(3)
    run(state, *map(MemberRegistered, range(3)), *map(MemberPrepared, range(3)), MemberFinished(0))
    assert run(state, MemberFailed(1, BOOM)) == [CancelMember(2)]
    assert state.phase is ExecutionPhase.ENDING
    later = MemberFailed(2, JobFailedError("another"))
    assert run(state, later) == [ReleaseMember(0), ReleaseMember(1), ReleaseMember(2), EndExecution(BOOM)]


def test_a_stopped_execution_fails_with_what_it_was_stopped_for() -> None:
    state = at(ExecutionPhase.ENDING)
    *_, end = run(state, MemberFailed(0, JobCancelledError("stopped")))
    assert isinstance(end, EndExecution)
    assert isinstance(end.error, JobCancelledError)
    assert state.phase is ExecutionPhase.FAILED


@pytest.mark.parametrize(
    "symptom", [TransportError("peer 1 is gone"), PeerUnreachableError("cannot reach 1")], ids=["broken", "not made"]
)
def test_a_broken_connection_gives_way_to_its_reason_but_to_nothing_else(symptom: Exception) -> None:
    for later, cause in ((LOST, LOST), (JobCancelledError("stopped"), symptom), (TransportError("x"), symptom)):
        state = ExecutionState(2)
        run(state, *map(MemberRegistered, range(2)), *map(MemberPrepared, range(2)), MemberFailed(0, symptom))
        run(state, MemberLost(1, LOST) if later is LOST else MemberFailed(1, later))
        assert state.error is cause


def test_a_member_that_is_lost_before_the_start_is_waited_for_again() -> None:
    state = ExecutionState(2)
    run(state, MemberRegistered(0), MemberLost(0, LOST))
    assert run(state, MemberRegistered(1)) == []
    assert run(state, MemberRegistered(0)) == [PrepareMember(0), PrepareMember(1)]


def test_a_member_outside_the_execution_is_an_invalid_transition() -> None:
    for member in (-1, 2):
        with pytest.raises(InvalidTransition, match="not in"):
            ExecutionState(2).handle(MemberRegistered(member))


def snapshot(state: ExecutionState) -> tuple[object, ...]:
    return state.phase, tuple(state.members), state.error


def check_invariants(state: ExecutionState) -> None:
    alive = [phase for phase in state.members if phase not in (MemberPhase.ENDED, MemberPhase.LOST)]
    if state.phase is ExecutionPhase.COMPLETED:
        assert state.error is None
        assert set(state.members) == {MemberPhase.ENDED}
    elif state.phase is ExecutionPhase.FAILED:
        assert state.error is not None
        assert not alive or set(state.members) <= {MemberPhase.ABSENT, MemberPhase.REGISTERED}  # it never started
    elif state.phase is ExecutionPhase.ENDING:
        assert state.error is not None
        assert alive
    else:
        assert state.error is None
        assert alive
        allowed = {
            ExecutionPhase.GATHERING: {MemberPhase.ABSENT, MemberPhase.REGISTERED},
            ExecutionPhase.PREPARING: {MemberPhase.PREPARING, MemberPhase.PREPARED},
            ExecutionPhase.RUNNING: {MemberPhase.STARTED, MemberPhase.ENDED},
        }
        assert set(state.members) <= allowed[state.phase]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(
                st.tuples(st.sampled_from([*EVENTS, "registered", "prepared", "finished"]), st.integers(0, n - 1)),
                max_size=40,
            ),
        )
    )
)
def test_invariants_hold_after_each_event_in_any_order(script: tuple[int, list[tuple[str, int]]]) -> None:
    member_count, events = script
    state = ExecutionState(member_count)
    told: dict[type, list[int]] = {kind: [] for kind in (PrepareMember, StartMember, CancelMember, ReleaseMember)}
    ends: list[EndExecution] = []
    # Every member registers and prepares first in half of the runs, so that later phases are reached often.
    if len(events) % 2:
        run(state, *map(MemberRegistered, range(member_count)), *map(MemberPrepared, range(member_count)))
    for name, member in events:
        before, phase_before = snapshot(state), state.phase
        try:
            commands = state.handle(EVENTS[name](member))
        except InvalidTransition:
            assert snapshot(state) == before
            continue
        check_invariants(state)
        for command in commands:
            assert not ends, "nothing follows the end"
            if isinstance(command, EndExecution):
                ends.append(command)
            else:
                assert command.member not in told[type(command)], "each member is told once"
                told[type(command)].append(command.member)
        if phase_before in ENDED:
            assert state.phase is phase_before
            assert not commands
        assert bool(ends) == (state.phase in ENDED)
    if ends:
        assert ends[0].error is state.error
        assert set(told[ReleaseMember]).isdisjoint(
            member for member, phase in enumerate(state.members) if phase is MemberPhase.LOST
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.randoms(use_true_random=False), st.integers(0, 12))
def test_an_execution_always_ends_once_its_members_answer(member_count: int, random, fault_at: int) -> None:
    """A model of members that obey: whatever the order, and with one fault at any moment, there is an end."""
    state = ExecutionState(member_count)
    pending: list[ExecutionEvent] = [MemberRegistered(member) for member in range(member_count)]
    step = 0
    while state.phase not in ENDED:
        if step == fault_at:
            event: ExecutionEvent = StopExecution(CANCELLED)
        else:
            event = pending.pop(random.randrange(len(pending)))
        step += 1
        for command in state.handle(event):
            if isinstance(command, PrepareMember):
                pending.append(MemberPrepared(command.member))
            elif isinstance(command, StartMember):
                pending.append(random.choice([MemberFinished(command.member), MemberFailed(command.member, BOOM)]))
            elif isinstance(command, CancelMember):
                answer = MemberFailed(command.member, JobCancelledError("stopped"))
                own = [e for e in pending if getattr(e, "member", None) == command.member]
                if not any(isinstance(e, MemberFailed | MemberFinished) for e in own):
                    pending.append(answer)
                    pending = [e for e in pending if not isinstance(e, MemberPrepared) or e.member != command.member]
    assert all(not isinstance(event, MemberFinished | MemberFailed) for event in pending)
