"""The cluster of processes on this host: members talk through shared memory; this process coordinates.

    submit        checks and plans, listens, and starts one process per member
    a member      registers over a proven connection; its thread here reads what it says until the connection ends
    one dies      it is killed for certain, another is started in its place, and the job begins again at its last
                  snapshot; without a guarantee the job fails
    the end       every member is told to go; what does not end is killed

Part of one job, and gone with it: the listener, two threads and one process per member. When this process dies, by
SIGKILL too, its members end at once.
"""

from jetfast.clusters.cluster import Cluster
from jetfast.clusters.member_processes import MemberProcesses
from jetfast.clusters.snapshot_settings import check_shared
from jetfast.clusters.submission import Submission
from jetfast.control.lifeline import end_members, hold_lifeline
from jetfast.control.member_links import MemberLinks
from jetfast.control.runner import Runner
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.types import PARTITION_COUNT, Duration, positive_duration_us

DEFAULT_LEASE = "5s"


class ProcessCluster(Cluster):
    """Runs jobs in processes of this host, each member in one of its own.

    A guarantee needs a snapshot store that members share: there is no default. Functions of the user go to members by
    cloudpickle: those of modules are imported there, by the `sys.path` of this process.

    Parameters
    ----------
    members : engine instances; each is a process while a job runs
    workers : threads of each member
    snapshot_store : where jobs keep their snapshots unless `submit` says otherwise; a directory or an object store of
        `jetfast.snapshots`, which members share
    partition_count : partitions of the keys, of which each processor owns a share: more than there will ever be
        processors of a step. A job may go on with another number than it had
    start_timeout : how long the process of a member may take to start
    lease : how long a member lives without a word from this process, and this process without one from a member: then
        the member ends, or is killed. A process that is frozen is noticed by it, and a function that lets no other
        thread of its process run for so long
    """

    kind = "processes"

    def __init__(
        self,
        members: int = 2,
        workers: int = 1,
        *,
        snapshot_store: SnapshotStore | None = None,
        partition_count: int = PARTITION_COUNT,
        start_timeout: Duration = "1m",
        lease: Duration = DEFAULT_LEASE,
    ) -> None:
        super().__init__(members, workers, snapshot_store=snapshot_store, partition_count=partition_count)
        self._start_timeout_s = positive_duration_us(start_timeout, "start_timeout") / 1e6
        self._lease_us = positive_duration_us(lease, "lease")

    def _check_store(self, store: SnapshotStore | None) -> None:
        check_shared(store)

    def _coordinate(self, submission: Submission) -> Runner:
        dag, pickled_store = submission.pickled_dag(), submission.pickled_store()
        lifeline = hold_lifeline() if submission.may_be_taken_over else None
        runner = Runner(submission.settings(dag, pickled_store, lease_us=self._lease_us, lifeline=lifeline))
        members = MemberLinks(MemberProcesses(lifeline), runner, start_timeout_s=self._start_timeout_s)
        runner.summon = members.summon
        runner.release = end_members(members.close, lifeline)
        return runner
