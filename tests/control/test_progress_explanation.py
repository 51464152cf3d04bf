"""What a job says that it waits for, in each phase in which it may have to wait long."""

from jetfast.control.coordinator import Coordinator, JobShape, StoreAnswered
from jetfast.control.execution_state import MemberFailed, MemberLost, MemberPrepared, MemberRegistered
from jetfast.control.job_events import AwaitDelay, StartJob, SuspendAsked
from jetfast.control.job_terms import JobTerms
from jetfast.control.progress_explanation import LINES_MAX, explain_progress
from jetfast.control.store_commands import ReadRecord, RecordRead, ReplaceRecord, StoreWritten
from jetfast.errors import JobCancelledError, MemberLostError

LOST = MemberLostError("member 1 died")


class Driven:
    """A coordinator, its last commands, and what the job says."""

    def __init__(self) -> None:
        self.coordinator = Coordinator(JobTerms("job", "id", keeps_record=True), JobShape(2, 271, {}), lambda last: 7)
        self.delay: AwaitDelay | None = None

    def take(self, *events: object) -> "Driven":
        for event in events:
            for command in self.coordinator.handle(event):  # type: ignore[arg-type]
                if isinstance(command, AwaitDelay):
                    self.delay = command
                if isinstance(command, ReadRecord | ReplaceRecord):
                    self.asked = command
        return self

    def answered(self, answer: RecordRead | StoreWritten) -> "Driven":
        return self.take(StoreAnswered(self.asked, answer))

    def running(self) -> "Driven":
        self.take(StartJob()).answered(RecordRead(None)).answered(StoreWritten(1))
        for event in (MemberRegistered, MemberPrepared):
            self.take(event(0), event(1))
        return self

    def says(self, *reports: tuple[int, dict[str, object]]) -> list[str]:
        cause = None if self.delay is None else self.delay.error
        return explain_progress(self.coordinator, "directory x", 3.9, cause, reports)


def test_a_job_waits_for_the_store_and_then_for_its_members() -> None:
    job = Driven()
    assert job.says() == []
    assert job.take(StartJob()).says() == ["waits for the execution record to be read, by directory x"]
    assert job.answered(RecordRead(None)).says() == ["waits for the execution record to be written, by directory x"]
    assert job.answered(StoreWritten(1)).says() == ["waits for member(s) 0, 1 to come"]
    assert job.take(MemberRegistered(0)).says() == ["waits for member(s) 1 to come"]
    assert job.take(MemberRegistered(1)).says() == ["waits for member(s) 0, 1 to prepare"]
    assert job.take(MemberPrepared(0)).says() == ["waits for member(s) 1 to prepare"]
    assert job.take(MemberPrepared(1)).says() == []


def test_after_a_failure_it_waits_for_the_others_to_stop_and_for_the_time_of_the_next_attempt() -> None:
    job = Driven().running().take(MemberLost(1, LOST))
    assert job.says() == ["waits for member(s) 0 to stop"]
    job.take(MemberFailed(0, JobCancelledError("told to")))
    assert job.says() == ["waits for the time of the next attempt, in 4 s: member 1 died"]
    assert job.take(SuspendAsked(1)).coordinator.status.value in ("suspended", "not running")


def still(kind: str, step: str, waits_for: str) -> dict[str, object]:
    return {"step": step, "seconds": 6.7, "kind": kind, "for": waits_for}


def test_a_running_job_names_the_processors_that_hold_it_up_and_else_those_that_wait_for_input() -> None:
    job = Driven().running()
    waiting = still("source", "rows-0", "rows: its source has none to read")
    assert job.says((0, {}), (1, {"standstill": [waiting]})) == [
        "member 1: rows-0 has waited for 7 s for rows: its source has none to read"
    ]
    room = still("room", "rows-1", "room in the queues to slow-0")
    assert job.says((0, {"standstill": [waiting, room]}), (1, {"standstill": [waiting]})) == [
        "member 0: rows-1 has waited for 7 s for room in the queues to slow-0"
    ]
    many = [still("room", f"rows-{number}", "room") for number in range(LINES_MAX + 3)]
    lines = job.says((0, {"standstill": many}))
    assert (len(lines), lines[-1]) == (LINES_MAX + 1, "and 3 more")
