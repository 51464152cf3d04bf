"""Says what a job waits for: the store, members, the time of the next attempt; or which processors stand still."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jetfast.control.coordinator import Coordinator
from jetfast.control.execution_state import ExecutionPhase, MemberPhase
from jetfast.control.job_state import JobPhase

LINES_MAX = 20
_OFTEN_NORMAL = ("source", "input")
"""Endless jobs wait for their sources now and then, and steps for sources: told if nothing else holds a job up."""


def explain_progress(
    coordinator: Coordinator,
    store: str,
    delay_left_s: float | None,
    delay_cause: Exception | None,
    reports: Sequence[tuple[int, Mapping[str, Any]]],
) -> list[str]:
    """Return lines about what the job waits for; none: it makes progress, or is over.

    Parameters
    ----------
    store : name of the store
    delay_left_s, delay_cause : until the next attempt, and why there is one
    reports : members, and what `Execution.metrics()` last told of each
    """
    phase = coordinator.job.phase
    if phase in (JobPhase.NEW, JobPhase.OVER):
        return []
    if phase is JobPhase.DELAYED:
        return [f"waits for {phase.value}, in {max(0.0, delay_left_s or 0.0):.0f} s: {delay_cause}"]
    if phase in (JobPhase.SUSPENDED, JobPhase.FENCING):
        return [f"waits for {phase.value}"]
    if phase is not JobPhase.EXECUTING:
        return [f"waits for {phase.value}, by {store}"]
    execution = coordinator.execution
    if execution.phase is ExecutionPhase.RUNNING:
        return _standing_still(reports)
    if execution.phase is ExecutionPhase.GATHERING:
        return [f"waits for member(s) {_in(execution.members, MemberPhase.ABSENT)} to come"]
    if execution.phase is ExecutionPhase.PREPARING:
        return [f"waits for member(s) {_in(execution.members, MemberPhase.PREPARING)} to prepare"]
    if execution.phase is ExecutionPhase.ENDING:
        return [f"waits for member(s) {', '.join(map(str, execution.waiting_for))} to stop"]
    return []


def _in(members: Iterable[MemberPhase], phase: MemberPhase) -> str:
    return ", ".join(str(member) for member, found in enumerate(members) if found is phase)


def _standing_still(reports: Sequence[tuple[int, Mapping[str, Any]]]) -> list[str]:
    told = [(member, still) for member, values in reports for still in values.get("standstill", ())]
    culprits = [(member, still) for member, still in told if still["kind"] not in _OFTEN_NORMAL]
    lines = [
        f"member {member}: {still['step']} has waited for {still['seconds']:.0f} s for {still['for']}"
        for member, still in culprits or told
    ]
    return lines[:LINES_MAX] + ([f"and {len(lines) - LINES_MAX} more"] if len(lines) > LINES_MAX else [])
