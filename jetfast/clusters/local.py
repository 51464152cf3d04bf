"""The cluster in this process: members are threads, and talk through memory. The default; needs nothing."""

import os
import socket
import threading
from collections.abc import Callable
from functools import partial

from jetfast.clusters.cluster import Cluster
from jetfast.clusters.submission import Submission, at_least_one
from jetfast.control.lifeline import end_members, hold_lifeline
from jetfast.control.member_agent import MemberAgent, make_execution
from jetfast.control.messages import NO_EXECUTION, CoordinatorMessage, Prepare, Registered, Shutdown
from jetfast.control.runner import Runner
from jetfast.control.versions import running_versions
from jetfast.engine.execution import wall_clock_us
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.transport import MemoryNetwork, Transport
from jetfast.errors import MemberLostError
from jetfast.types import PARTITION_COUNT


class LocalCluster(Cluster):
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
        members = at_least_one(members, "members")
        workers = max(1, cores() // members) if workers is None else workers
        super().__init__(members, workers, snapshot_store=snapshot_store, partition_count=partition_count)
        self.clock = clock
        self._default_store = MemorySnapshotStore()

    def _coordinate(self, submission: Submission) -> Runner:
        lifeline = hold_lifeline() if submission.may_be_taken_over else None
        runner = Runner(submission.settings(lifeline=lifeline))
        members = _LocalMembers(runner, submission, self.clock)
        runner.summon = members.summon
        runner.release = end_members(members.close, lifeline)
        return runner


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

    def dismiss(self) -> None:
        self._agent.receive(Shutdown(execution_id=NO_EXECUTION))

    def close(self) -> None:
        self.dismiss()
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
