"""The cluster on Spark: members are tasks on its executors and talk to each other directly; this process coordinates.

    submit        checks session and slots, plans, listens, and submits one Spark job per member
    a member      registers over a proven connection; its thread here reads what it says until the connection ends
    one is lost   when its end is certain its Spark job is submitted again, and the jetfast job begins again at its last
                  snapshot, on fewer members if there is no slot for it; without a guarantee the job fails
    the end       every member is told to go; their Spark jobs end; what does not end is cancelled in Spark

Part of one job, and gone with it: the listener, three threads, and for each member a thread and a Spark job. When this
process dies, by SIGKILL too, its members end at once.
"""

from typing import Any, ClassVar

from jetfast.clusters.cluster import Cluster
from jetfast.clusters.snapshot_settings import check_shared
from jetfast.clusters.submission import Submission
from jetfast.control.member_links import MemberLinks
from jetfast.control.runner import Runner
from jetfast.core.guarantee import Guarantee
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.errors import ResourcesError
from jetfast.spark.jobs import SparkJobs
from jetfast.spark.shipping import pickle_with_modules, sent_by_spark
from jetfast.spark.sizing import LEAVE_DELAY_S, SizeWatch, Sizing
from jetfast.spark.slots import WAIT_S, Size, Slots, check_session, count_slots, require_slots, size_of
from jetfast.types import PARTITION_COUNT, Duration, non_negative_duration_us, positive_duration_us

DEFAULT_LEASE = "5s"
LEASE_WITHOUT_GUARANTEE = "30s"
"""Longer: without snapshots a member that is given up is the end of the job."""


class SparkCluster(Cluster):
    """Runs jobs on the executors of a Spark session, each member in a Python worker of its own.

    A guarantee needs a snapshot store that this process and all executors reach: there is no default. A job whose
    driver has died goes on when it is submitted again to the same store, also by another session.

    Parameters
    ----------
    spark : SparkSession, in the driver's process (not Spark Connect)
    members : engine instances; each holds one Spark slot while a job runs. Default: as many as there are executors now
        (two, if dynamic allocation is yet to bring them)
    workers : threads of each member. Default: the cores of an executor; of a slot (spark.task.cpus), if `members` is
        given
    host : name or address of this process that executors can reach; default: spark.driver.host
    port_range : (first, last) ports, both included, for this process and for members; default: any
    start_timeout : how long Spark may take to start all members, and before that an executor that is certain to come
    snapshot_store : where jobs keep their snapshots unless `submit` says otherwise; a directory or an object store of
        `jetfast.snapshots`
    partition_count : partitions of the keys, of which each processor owns a share: more than there will ever be
        processors of a step. A job may go on with another number than it had
    lease : how long a member lives without a word from this process, and this process without one from a member.
        Default: 5 s for jobs with a guarantee, else 30 s. The end of a member on another host is certain when its lease
        has run out; only then another one takes its place
    leave_delay : how long a member may wait for a slot while all are taken; then a job with a guarantee goes on without
        it. Default: 3 s; under dynamic allocation half of `start_timeout`, for Spark may bring another executor
    join_delay : how long slots must have been free before a job that has lost members for want of slots is restarted
        with more of them
    """

    kind = "spark"

    def __init__(
        self,
        spark: Any,
        members: int | None = None,
        workers: int | None = None,
        host: str | None = None,
        port_range: tuple[int, int] | None = None,
        start_timeout: Duration = "2m",
        *,
        snapshot_store: SnapshotStore | None = None,
        partition_count: int = PARTITION_COUNT,
        lease: Duration | None = None,
        leave_delay: Duration | None = None,
        join_delay: Duration = "10s",
    ) -> None:
        self.spark = spark
        self._check_session()
        size = self._size(members, workers)
        super().__init__(size.members, size.workers, snapshot_store=snapshot_store, partition_count=partition_count)
        self.host = host
        self.port_range = port_range
        self._start_timeout_s = positive_duration_us(start_timeout, "start_timeout") / 1e6
        self._lease_us = None if lease is None else positive_duration_us(lease, "lease")
        self._leave_delay_s = (
            None if leave_delay is None else non_negative_duration_us(leave_delay, "leave_delay") / 1e6
        )
        self._join_delay_s = non_negative_duration_us(join_delay, "join_delay") / 1e6

    def __repr__(self) -> str:
        return f"SparkCluster({self.spark.sparkContext.master!r}, members={self.members}, workers={self.workers})"

    def _check_store(self, store: SnapshotStore | None) -> None:
        check_shared(store)

    def _coordinate(self, submission: Submission) -> Runner:
        """Raises ResourcesError when the session cannot carry the members, before anything runs."""
        self._check_session()
        _check_driver()
        dag = pickle_with_modules(submission.pickled_dag, self._sent_modules())
        pickled_store = submission.pickled_store()
        self._require_slots()
        runner = Runner(submission.settings(dag, pickled_store, lease_us=self._lease_of(submission)))
        jobs = self._jobs()
        members = MemberLinks(jobs, runner, self._host(), self._bind(), self.port_range, self._start_timeout_s)
        runner.summon = members.summon
        runner.stand_down = members.stand_down
        runner.release = members.close
        if self._sees_slots and submission.snapshots.guarantee is not Guarantee.NONE:
            watch = SizeWatch(runner, members, jobs, self._count_slots, submission.shape_of, self._sizing())
            runner.release = watch.stop_and(members.close)
            watch.start()
        return runner

    # What a session of another kind answers otherwise.

    _sees_slots: ClassVar = True

    def _check_session(self) -> None:
        check_session(self.spark)

    def _size(self, members: int | None, workers: int | None) -> Size:
        return size_of(self.spark, members, workers)

    def _require_slots(self) -> None:
        require_slots(self._count_slots, self.members, WAIT_S, start_wait_s=self._start_timeout_s)

    def _sent_modules(self) -> set[str]:
        """Names of modules that executors have besides those that are installed."""
        return sent_by_spark(self.spark.sparkContext)

    def _jobs(self) -> SparkJobs:
        return SparkJobs(self.spark)

    def _count_slots(self) -> Slots:
        return count_slots(self.spark)

    def _sizing(self) -> Sizing:
        leave_delay_s = self._leave_delay_s
        if leave_delay_s is None:
            leave_delay_s = self._start_timeout_s / 2 if self._count_slots().may_grow_to else LEAVE_DELAY_S
        return Sizing(self.members, leave_delay_s, self._join_delay_s)

    def _lease_of(self, submission: Submission) -> int:
        if self._lease_us is not None:
            return self._lease_us
        keeps_nothing = submission.snapshots.guarantee is Guarantee.NONE
        return positive_duration_us(LEASE_WITHOUT_GUARANTEE if keeps_nothing else DEFAULT_LEASE, "lease")

    def _host(self) -> str:
        if self.host is not None:
            return self.host
        context = self.spark.sparkContext
        if context.master == "local" or context.master.startswith("local["):
            return "127.0.0.1"
        return str(context.getConf().get("spark.driver.host", "127.0.0.1"))

    def _bind(self) -> str | None:
        if self.host is not None:
            return None
        context = self.spark.sparkContext
        return None if context.master.startswith("local") else context.getConf().get("spark.driver.bindAddress", None)


def _check_driver() -> None:
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise ResourcesError("Spark's mapInArrow needs pandas: pip install 'jetfast[spark]'") from error
