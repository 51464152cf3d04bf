"""The cluster in this process: members are threads, and talk through memory. The default; needs nothing."""

import os
import socket
import threading
from collections.abc import Callable
from functools import partial

from jetfast.clusters.running_jobs import start_job
from jetfast.clusters.snapshot_settings import DEFAULT_SNAPSHOT_INTERVAL, SnapshotWishes, check_store
from jetfast.clusters.submission import DEFAULT_MEMORY_LIMIT, Pipeline, Submission, accept_submission, at_least_one
from jetfast.control.job import Job
from jetfast.control.lifeline import end_members, hold_lifeline
from jetfast.control.member_agent import MemberAgent, make_execution
from jetfast.control.messages import NO_EXECUTION, CoordinatorMessage, Prepare, Registered, Shutdown
from jetfast.control.runner import Runner
from jetfast.control.versions import running_versions
from jetfast.core.guarantee import Guarantee
from jetfast.engine.execution import wall_clock_us
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.transport import MemoryNetwork, Transport
from jetfast.errors import MemberLostError
from jetfast.types import PARTITION_COUNT, Duration


class LocalCluster:
    """Runs jobs in this process.

    Parameters
    ----------
    members : engine instances that exchange rows through memory, as processes do through sockets
    workers : threads of each member; default: the cores of this process, shared out among the members
    snapshot_store : where jobs keep their snapshots unless `submit` says otherwise, of `jetfast.snapshots`
    partition_count : partitions of the keys, of which each processor owns a share: more than there will ever be
        processors of a step. A job may go on with another number than it had
    clock : what jobs take for the wall clock, microseconds since 1970; tests give a `jetfast.testing.VirtualClock`
    """

    kind = "local"
    """As `SubmissionRecord.cluster`."""

    def __init__(
        self,
        members: int = 1,
        workers: int | None = None,
        *,
        snapshot_store: SnapshotStore | None = None,
        partition_count: int = PARTITION_COUNT,
        clock: Callable[[], int] = wall_clock_us,
    ) -> None:
        if not callable(clock):
            raise TypeError(f"clock must be a function that returns microseconds since 1970, got {clock!r}")
        check_store(snapshot_store)
        self.clock = clock
        self.members = at_least_one(members, "members")
        self.workers = max(1, cores() // self.members) if workers is None else at_least_one(workers, "workers")
        self.partition_count = at_least_one(partition_count, "partition_count")
        self.snapshot_store = snapshot_store
        self._memory_store: SnapshotStore = MemorySnapshotStore()

    def submit(
        self,
        pipeline: Pipeline,
        *,
        name: str | None = None,
        guarantee: Guarantee | None = None,
        snapshot_store: SnapshotStore | None = None,
        snapshot_interval: Duration = DEFAULT_SNAPSHOT_INTERVAL,
        max_restarts: int | None = None,
        fresh: bool = False,
        initial_snapshot: str | None = None,
        suspend_on_failure: bool = False,
        memory_limit: str = DEFAULT_MEMORY_LIMIT,
        progress: bool | None = None,
        two_stage: bool | None = None,
        max_watermark_retention: Duration | None = None,
    ) -> Job:
        """Start a job and return its handle at once.

        Parameters
        ----------
        pipeline : jetfast.Pipeline
        name : of the job; default: the pipeline's. A job whose name the snapshot store knows goes on from its last
            snapshot; one that is completed is refused
        guarantee : default EXACTLY_ONCE if there is a snapshot store, else NONE. A job gets the weakest of this and of
            what its sources and sinks can keep; `job.weakened_by` names those that keep less
        snapshot_store : of `jetfast.snapshots`; default: that of the cluster. With a guarantee and no store at all
            snapshots are kept in memory: they survive the loss of members, and not of this process
        snapshot_interval : time between the end of a snapshot and the start of the next
        max_restarts : how often the job is started again after a member or a connection was lost; default: for ever.
            With guarantee NONE it is not
        fresh : begin anew, whatever the snapshot store knows of a job of this name
        initial_snapshot : name of a snapshot that a job has exported to this store: to start from it, whatever is known
            of a job of this name. State is matched by the names of steps: those that it does not know start empty
        suspend_on_failure : suspend the job, instead of failing it, when a row or a function of the user has failed, or
            `max_restarts` are used up
        memory_limit : bytes of rows that may wait in the queues of each member, such as "512MB", and as much again
            under way between members; each queue may take one batch more. State of windows is not in it
        progress : shown by `job.wait()`: a bar on a terminal, else log lines; False: nothing
        two_stage : aggregate near the source first (True), never (False), or where it pays (None)
        max_watermark_retention : a watermark is kept back for other inputs that lag for at most so long, such as "10s",
            by the first step where several inputs come together; what comes later is late. Default: as long as they lag
        """
        store = self.snapshot_store if snapshot_store is None else snapshot_store
        submission = accept_submission(
            pipeline,
            cluster=self.kind,
            member_count=self.members,
            workers=self.workers,
            partition_count=self.partition_count,
            name=name,
            memory_limit=memory_limit,
            progress=progress,
            two_stage=two_stage,
            max_watermark_retention=max_watermark_retention,
            snapshots=SnapshotWishes(
                guarantee,
                store,
                snapshot_interval,
                max_restarts,
                fresh,
                suspend_on_failure,
                initial_snapshot,
            ),
            default_store=lambda: self._memory_store,
        )
        lifeline = hold_lifeline() if submission.may_be_taken_over else None
        runner = Runner(submission.settings(lifeline=lifeline))
        members = _LocalMembers(runner, submission, self.clock)
        runner.summon = members.summon
        runner.release = end_members(members.close, lifeline)
        return start_job(runner, submission.dag, progress=progress)

    def __repr__(self) -> str:
        return f"LocalCluster(members={self.members}, workers={self.workers})"


class _LocalMembers:
    """The members of one job. Each execution has its own network; a member that was lost is followed by another."""

    def __init__(self, runner: Runner, submission: Submission, clock: Callable[[], int]) -> None:
        self.runner = runner
        self.submission = submission
        self.clock = clock
        self._members: list[_LocalMember] = []
        self._lock = threading.Lock()
        self._network_id = NO_EXECUTION
        self._network = MemoryNetwork(0)

    def summon(self, index: int) -> None:
        """Start a member."""
        member = _LocalMember(self, index, incarnation=sum(earlier.index == index for earlier in self._members))
        self._members.append(member)
        member.start()

    def transport(self, prepare: Prepare) -> Transport:
        """The end of a member in the network of an execution, which whoever comes first makes."""
        with self._lock:
            if prepare.execution_id != self._network_id:
                self._network_id = prepare.execution_id
                self._network = MemoryNetwork(prepare.member_count, prepare.memory_limit_bytes)
            return self._network.transport(prepare.member)

    def close(self) -> None:
        """End those, too, that the job ended without having met."""
        for member in self._members:
            member.close()


class _LocalMember:
    """One member: the agent, its thread, and the coordinator's link to it. Lives as long as its job."""

    def __init__(self, members: _LocalMembers, index: int, incarnation: int) -> None:
        self.index = index
        self._incarnation = incarnation
        self._runner = members.runner
        submission = members.submission
        # Members of this process share graph and store themselves: tables in it are not copied.
        self._agent = MemberAgent(
            members.transport,
            lambda message: members.runner.receive(index, message),
            load_dag=lambda _: submission.dag,
            execution_factory=partial(
                make_execution, now_us=members.clock, load_store=lambda _: submission.snapshots.store
            ),
        )
        self._thread = threading.Thread(target=self._run, name=f"jetfast-member-{index}", daemon=True)

    def start(self) -> None:
        registered = Registered(
            execution_id=NO_EXECUTION,
            member=self.index,
            incarnation=self._incarnation,
            pid=os.getpid(),
            host=socket.gethostname(),
            address="",
            versions=running_versions(),
        )
        self._thread.start()
        self._runner.register(self.index, self, registered)

    def send(self, message: CoordinatorMessage) -> None:
        self._agent.receive(message)

    def close(self) -> None:
        self._agent.receive(Shutdown(execution_id=NO_EXECUTION))
        self._thread.join()

    def kill(self) -> None:
        """End it as a crash would: its threads stop where they are, nothing is told or closed. Any thread, its own
        included; returns at once.
        """
        self._agent.kill()

    def _run(self) -> None:
        try:
            self._agent.run()
            if self._agent.killed:
                self._runner.lost(self.index, MemberLostError(f"member {self.index} was killed"))
        except BaseException as error:
            lost = MemberLostError(f"member {self.index} broke: {type(error).__name__}: {error}")
            lost.__cause__ = error
            self._runner.lost(self.index, lost)


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1
