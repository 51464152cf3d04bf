"""The cluster in this process: members are threads, and talk through memory. The default; needs nothing."""

import os
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial

from jetfast.clusters.at_exit import stop_at_exit
from jetfast.clusters.submission import DEFAULT_MEMORY_LIMIT, Pipeline, accept_submission, at_least_one
from jetfast.control.job import Job
from jetfast.control.member_agent import MemberAgent, make_execution
from jetfast.control.messages import NO_EXECUTION, CoordinatorMessage, Registered, Shutdown
from jetfast.control.runner import Runner
from jetfast.control.versions import running_versions
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.engine.execution import wall_clock_us
from jetfast.engine.transport import MemoryNetwork
from jetfast.errors import MemberLostError
from jetfast.types import Duration


class LocalCluster:
    """Runs jobs in this process.

    Parameters
    ----------
    members : engine instances that exchange rows through memory, as processes do through sockets
    workers : threads of each member; default: the cores of this process, shared out among the members
    clock : what jobs take for the wall clock, microseconds since 1970; tests give a `jetfast.testing.VirtualClock`
    """

    def __init__(
        self, members: int = 1, workers: int | None = None, *, clock: Callable[[], int] = wall_clock_us
    ) -> None:
        if not callable(clock):
            raise TypeError(f"clock must be a function that returns microseconds since 1970, got {clock!r}")
        self.clock = clock
        self.members = at_least_one(members, "members")
        self.workers = max(1, cores() // self.members) if workers is None else at_least_one(workers, "workers")

    def submit(
        self,
        pipeline: Pipeline,
        *,
        name: str | None = None,
        guarantee: Guarantee | None = None,
        memory_limit: str = DEFAULT_MEMORY_LIMIT,
        progress: bool | None = None,
        two_stage: bool | None = None,
        max_watermark_retention: Duration | None = None,
    ) -> Job:
        """Start a job and return its handle at once.

        Parameters
        ----------
        pipeline : jetfast.Pipeline
        name : of the job; default: the pipeline's
        guarantee : default NONE; the others need snapshots, which do not run yet: JobDefinitionError
        memory_limit : bytes of rows that may wait in the queues of each member, such as "512MB", and as much again
            under way between members; each queue may take one batch more. State of windows is not in it
        progress : shown by `job.wait()`: a bar on a terminal, else log lines; False: nothing
        two_stage : aggregate near the source first (True), never (False), or as the planner chooses (None)
        max_watermark_retention : a watermark is kept back for other inputs that lag for at most so long, such as "10s",
            by the first step where several inputs come together; what comes later is late. Default: as long as they lag
        """
        submission = accept_submission(
            pipeline,
            member_count=self.members,
            workers=self.workers,
            name=name,
            guarantee=guarantee,
            memory_limit=memory_limit,
            progress=progress,
            two_stage=two_stage,
            max_watermark_retention=max_watermark_retention,
        )
        # Members of this process share the graph itself: tables in it are not copied.
        runner = Runner(submission.new_execution(pickled_dag=b""))
        network = MemoryNetwork(self.members, submission.memory_limit_bytes)
        members = [_LocalMember(index, runner, network, submission.dag, self.clock) for index in range(self.members)]
        runner.release = lambda: _close(members)
        runner.start()
        stop_at_exit(runner)
        for member in members:
            member.start()
        return Job(runner, submission.dag, progress=progress)

    def __repr__(self) -> str:
        return f"LocalCluster(members={self.members}, workers={self.workers})"


class _LocalMember:
    """One member: the agent, its thread, and the coordinator's link to it. Lives as long as its job."""

    def __init__(self, index: int, runner: Runner, network: MemoryNetwork, dag: Dag, clock: Callable[[], int]) -> None:
        self._index = index
        self._runner = runner
        self._agent = MemberAgent(
            lambda prepare: network.transport(prepare.member),
            lambda message: runner.receive(index, message),
            load_dag=lambda _: dag,
            execution_factory=partial(make_execution, now_us=clock),
        )
        self._thread = threading.Thread(target=self._run, name=f"jetfast-member-{index}", daemon=True)

    def start(self) -> None:
        registered = Registered(
            execution_id=NO_EXECUTION,
            member=self._index,
            incarnation=0,
            pid=os.getpid(),
            host=socket.gethostname(),
            address="",
            versions=running_versions(),
        )
        self._thread.start()
        self._runner.register(self._index, self, registered)

    def send(self, message: CoordinatorMessage) -> None:
        self._agent.receive(message)

    def close(self) -> None:
        self._agent.receive(Shutdown(execution_id=NO_EXECUTION))
        self._thread.join()

    def _run(self) -> None:
        try:
            self._agent.run()
        except BaseException as error:
            lost = MemberLostError(f"member {self._index} broke: {type(error).__name__}: {error}")
            lost.__cause__ = error
            self._runner.lost(self._index, lost)


def _close(members: Sequence[_LocalMember]) -> None:
    """End those, too, that the job ended without having met."""
    for member in members:
        member.close()


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1
