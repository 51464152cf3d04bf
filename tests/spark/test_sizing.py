"""A job goes on with fewer members when slots are gone for a while, and with more when they have come for a while.

Here members are threads, and slots are counted by hand; on executors: `test_leaving_executors`.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.clusters.running_jobs import start_job
from jetfast.clusters.snapshot_settings import SnapshotWishes
from jetfast.clusters.submission import accept_submission
from jetfast.control.job import Job
from jetfast.control.member_links import MemberLinks, OnEnd
from jetfast.control.messages import Registered
from jetfast.control.remote_member import MemberTask
from jetfast.control.runner import Runner
from jetfast.errors import JobCancelledError
from jetfast.spark.jobs import SparkJobs
from jetfast.spark.members import run_spark_member
from jetfast.spark.sizing import Seen, SizeWatch, Sizing
from jetfast.spark.slots import Slots

PATIENCE_S = 300.0


def sizing() -> Sizing:
    return Sizing(members_max=4, leave_delay_s=3.0, join_delay_s=10.0)


def waiting(stranded: int, members: int = 4) -> Seen:
    return Seen(members, stranded, runs=False, free=0)


def running(members: int, free: int) -> Seen:
    return Seen(members, 0, runs=True, free=free)


def test_members_that_have_had_no_slot_for_the_delay_are_given_up() -> None:
    machine = sizing()
    assert machine.decide(waiting(2), 100.0) is None
    assert machine.decide(waiting(1), 102.9) is None
    assert machine.decide(waiting(1), 103.0) == 3
    assert machine.decide(waiting(1, members=3), 103.5) is None, "the next ones have their time, too"
    assert machine.decide(waiting(1, members=3), 106.5) == 2


def test_a_member_that_gets_its_slot_in_time_stays() -> None:
    machine = sizing()
    machine.decide(waiting(1), 100.0)
    assert machine.decide(waiting(0), 102.0) is None
    assert machine.decide(waiting(1), 104.0) is None
    assert machine.decide(waiting(1), 106.9) is None


def test_without_any_slot_the_job_waits() -> None:
    machine = sizing()
    assert [machine.decide(waiting(4), float(now)) for now in range(100)] == [None] * 100


def test_free_slots_are_used_once_they_stay_and_no_more_than_the_job_was_submitted_with() -> None:
    machine = sizing()
    assert machine.decide(running(2, free=1), 0.0) is None
    assert machine.decide(running(2, free=0), 5.0) is None, "somebody else took it"
    assert machine.decide(running(2, free=3), 6.0) is None
    assert machine.decide(running(2, free=3), 15.9) is None
    assert machine.decide(running(2, free=3), 16.0) == 4
    assert [machine.decide(running(4, free=3), float(now)) for now in range(17, 60)] == [None] * 43


def test_a_job_that_shrinks_does_not_grow_by_the_time_it_waited() -> None:
    machine = sizing()
    machine.decide(waiting(1), 0.0)
    assert machine.decide(running(3, free=1), 2.0) is None
    assert machine.decide(running(3, free=1), 11.9) is None
    assert machine.decide(running(3, free=1), 12.0) == 4


def test_a_job_could_use_what_it_was_submitted_with_while_it_runs() -> None:
    assert [sizing().could_use(running(members, free=0)) for members in (1, 3, 4)] == [3, 1, 0]
    assert sizing().could_use(waiting(1, members=3)) == 0


class CountedSlots(SparkJobs):
    """Members as threads, each of which waits for a slot first."""

    def __init__(self, slots: int) -> None:
        super().__init__(spark=None)
        self.total = slots
        self.tasks: dict[str, list[bool]] = {}
        """By group: does it run?"""
        self._changed = threading.Condition()

    def change(self, total: int) -> None:
        with self._changed:
            self.total = total
            self._changed.notify_all()

    @property
    def busy(self) -> int:
        return sum(sum(runs) for runs in self.tasks.values())

    def count(self) -> Slots:
        return Slots(1, self.total, self.busy, 1)

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        received: MemberTask = cloudpickle.loads(cloudpickle.dumps(task))
        runs = self.tasks[group] = [False]

        def run() -> None:
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self.busy < self.total or self.tasks[group] is not runs)
                    if self.tasks[group] is not runs:
                        raise RuntimeError("it was cancelled before it began")
                    runs[0] = True
                run_spark_member(received)
            except Exception as error:
                self._end(runs)
                on_end(error)
            else:
                self._end(runs)
                on_end(None)

        thread = threading.Thread(target=run, name=f"jetfast-slot-{group}", daemon=True)
        thread.start()
        return thread

    def _end(self, runs: list[bool]) -> None:
        with self._changed:
            runs[0] = False
            self._changed.notify_all()

    def cancel(self, group: str) -> None:
        with self._changed:
            if not self.tasks[group][0]:
                self.tasks[group] = [False]
                self._changed.notify_all()

    def has_task(self, group: str) -> bool:
        return self.tasks[group][0]

    def has_ended(self, registered: Registered) -> bool:
        return True  # its thread has


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up
        threading.Event().wait(0.01)


def test_a_job_runs_on_the_slots_that_are_left_and_on_those_that_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetfast.spark.members.EXIT_GRACE_S", PATIENCE_S)
    monkeypatch.setattr("jetfast.spark.sizing.LOOK_S", 0.01)
    pipeline = jf.Pipeline("numbers")
    pipeline.read(jf.generator({"row": pa.int64()}, rate=1000, partitions=6)).write(
        jf.files(str(tmp_path / "out"), format="parquet")
    )
    wishes = SnapshotWishes(store=jf.snapshots.directory(tmp_path / "snapshots"), interval="200ms")
    submission = accept_submission(
        pipeline,
        cluster="spark",
        member_count=3,
        workers=1,
        name=None,
        memory_limit="100MB",
        progress=False,
        two_stage=None,
        snapshots=wishes,
    )
    jobs = CountedSlots(3)
    runner = Runner(submission.settings(submission.pickled_dag(), submission.pickled_store(), lease_us=600 * 10**6))
    links = MemberLinks(jobs, runner)
    runner.summon, runner.stand_down = links.summon, links.stand_down
    watch = SizeWatch(runner, links, jobs, jobs.count, submission.shape_of, Sizing(3, 0.05, 0.05))
    runner.release = watch.stop_and(links.close)
    watch.start()
    job = start_job(runner, submission.dag, progress=False)

    def runs_on(members: int) -> bool:
        return job.status is jf.JobStatus.RUNNING and len(job.metrics["members"]) == members and rows(job) > 0

    until(lambda: runs_on(3))
    jobs.change(1)
    for lost in (0, 1):
        incarnation = links._members[lost].incarnation
        assert incarnation is not None
        incarnation.connection.close()
    until(lambda: runs_on(1))
    assert jobs.busy == 1
    jobs.change(8)
    until(lambda: runs_on(3))
    assert jobs.busy == 3, "no more than it was submitted with"
    assert "terminal" in {snapshot["kind"] for snapshot in job.metrics["snapshots"]}, "not as after a failure"
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE_S)


def rows(job: Job) -> int:
    return int(job.metrics["rows_written"])
