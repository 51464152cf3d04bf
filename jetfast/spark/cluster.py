"""The cluster on Spark: members are tasks on its executors and talk to each other directly; this process coordinates.

    submit        checks session and slots, plans, listens, and submits one Spark job per member
    a member      registers over a proven connection; its thread here reads what it says until the connection ends
    the end       every member is told to go; their Spark jobs end; what does not end is cancelled in Spark

Part of one job, and gone with it: the listener, one thread and one Spark job per member.
"""

from typing import Any

from jetfast.clusters.running_jobs import start_job
from jetfast.clusters.snapshot_settings import SnapshotWishes
from jetfast.clusters.submission import DEFAULT_MEMORY_LIMIT, Pipeline, accept_submission, at_least_one
from jetfast.control.job import Job
from jetfast.control.member_links import MemberLinks
from jetfast.control.runner import Runner
from jetfast.core.guarantee import Guarantee
from jetfast.errors import JobDefinitionError, ResourcesError
from jetfast.spark.jobs import SparkJobs
from jetfast.spark.shipping import pickle_with_modules, sent_by_spark
from jetfast.spark.slots import WAIT_S, check_session, count_slots, require_slots
from jetfast.types import Duration, positive_duration_us

LEASE_US = 30_000_000
"""Long: without snapshots a member that is given up is the end of the job."""


class SparkCluster:
    """Runs jobs on the executors of a Spark session, each member in a Python worker of its own.

    Parameters
    ----------
    spark : SparkSession, in the driver's process (not Spark Connect)
    members : engine instances; each holds one Spark slot while a job runs
    workers : threads of each member
    host : name or address of this process that executors can reach; default: spark.driver.host
    port_range : (first, last) ports, both included, for this process and for members; default: any
    start_timeout : how long Spark may take to start all members
    """

    def __init__(
        self,
        spark: Any,
        members: int = 2,
        workers: int = 1,
        host: str | None = None,
        port_range: tuple[int, int] | None = None,
        start_timeout: Duration = "2m",
    ) -> None:
        check_session(spark)
        self.spark = spark
        self.members = at_least_one(members, "members")
        self.workers = at_least_one(workers, "workers")
        self.host = host
        self.port_range = port_range
        self._start_timeout_s = positive_duration_us(start_timeout, "start_timeout") / 1e6

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
        """Start a job and return its handle at once; parameters as of `LocalCluster.submit`.

        Raises JobDefinitionError, of it ResourcesError when there are too few free slots, before anything runs.
        """
        check_session(self.spark)
        submission = accept_submission(
            pipeline,
            cluster="spark",
            member_count=self.members,
            workers=self.workers,
            name=name,
            memory_limit=memory_limit,
            progress=progress,
            two_stage=two_stage,
            max_watermark_retention=max_watermark_retention,
            snapshots=SnapshotWishes(check_guarantee(guarantee)),
        )
        _check_driver()
        dag = pickle_with_modules(submission.pickled_dag, sent_by_spark(self.spark.sparkContext))
        require_slots(lambda: count_slots(self.spark), self.members, WAIT_S)
        runner = Runner(submission.settings(pickled_dag=dag, lease_us=LEASE_US))
        members = MemberLinks(
            SparkJobs(self.spark), runner, self._host(), self._bind(), self.port_range, self._start_timeout_s
        )
        runner.release = members.close
        job = start_job(runner, submission.dag, progress=progress)
        members.start()
        return job

    def __repr__(self) -> str:
        return f"SparkCluster({self.spark.sparkContext.master!r}, members={self.members}, workers={self.workers})"

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


def check_guarantee(guarantee: Guarantee | None) -> Guarantee | None:
    """Return the guarantee that is wanted. Raises JobDefinitionError for one that Spark's members cannot keep yet."""
    if isinstance(guarantee, Guarantee) and guarantee is not Guarantee.NONE:
        raise JobDefinitionError(
            f"guarantee {guarantee.name} needs snapshots, which SparkCluster does not take yet; leave guarantee out, "
            "say Guarantee.NONE, or run the job on a LocalCluster"
        )
    return guarantee


def _check_driver() -> None:
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise ResourcesError("Spark's mapInArrow needs pandas: pip install 'jetfast[spark]'") from error
