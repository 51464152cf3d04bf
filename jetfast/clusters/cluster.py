"""What all clusters have in common: how large they are, and how a pipeline becomes a job on them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from jetfast.clusters.running_jobs import start_job
from jetfast.clusters.snapshot_settings import DEFAULT_SNAPSHOT_INTERVAL, SnapshotWishes, check_store
from jetfast.clusters.submission import DEFAULT_MEMORY_LIMIT, Pipeline, Submission, accept_submission, at_least_one
from jetfast.control.job import Job
from jetfast.control.runner import Runner
from jetfast.core.guarantee import Guarantee
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.types import Duration


class Cluster(ABC):
    """Where members live. The same pipeline runs on each kind, which says how its members come and go."""

    kind: ClassVar[str]
    """As `SubmissionRecord.cluster`."""

    def __init__(
        self, members: int, workers: int, *, snapshot_store: SnapshotStore | None, partition_count: int
    ) -> None:
        self._check_store(snapshot_store)
        self.members = at_least_one(members, "members")
        self.workers = at_least_one(workers, "workers")
        self.partition_count = at_least_one(partition_count, "partition_count")
        self.snapshot_store = snapshot_store
        self._default_store: SnapshotStore | None = None
        """Where a job with a guarantee keeps its snapshots if nobody says so; None: somebody must."""

    def submit(
        self,
        pipeline: Pipeline,
        *,
        name: str | None = None,
        guarantee: Guarantee | str | None = None,
        snapshot_store: SnapshotStore | None = None,
        snapshot_interval: Duration = DEFAULT_SNAPSHOT_INTERVAL,
        max_restarts: int | None = None,
        fresh: bool = False,
        initial_snapshot: str | None = None,
        accept_loss: Sequence[str] = (),
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
        guarantee : a Guarantee or its name, such as "exactly-once"; default EXACTLY_ONCE if there is a snapshot store,
            else NONE. A job gets the weakest of this and of what its sources and the sinks that count can keep;
            `job.weakened_by` names each part that keeps less
        snapshot_store : of `jetfast.snapshots`; default: that of the cluster. With a guarantee and no store at all
            a LocalCluster keeps snapshots in memory: they survive the loss of members, and not of this process. Other
            clusters need a store that their members share
        snapshot_interval : time between the end of a snapshot and the start of the next
        max_restarts : how often the job is started again after a member or a connection was lost; default: for ever.
            With guarantee NONE it is not
        fresh : begin anew, whatever the snapshot store knows of a job of this name
        initial_snapshot : name of a snapshot that a job has exported to this store: to start from it, whatever is known
            of a job of this name. State is matched by the names of steps: those that it does not know start empty
        accept_loss : names of transactions that an outside system has lost, as DataLostError says them: the job goes
            on without their rows. Kept in the execution record; what is not lost is committed all the same
        suspend_on_failure : suspend the job, instead of failing it, when a row or a function of the user has failed, or
            `max_restarts` are used up
        memory_limit : bytes of rows that may wait in the queues of each member, such as "512MB", and as much again
            under way between members; each queue may take one batch more. State of windows is not in it
        progress : shown by `job.wait()`: a bar on a terminal, else log lines; False: nothing
        two_stage : aggregate near the source first (True), never (False), or where it pays (None)
        max_watermark_retention : a watermark is kept back for other inputs that lag for at most so long, such as "10s",
            in all steps on its way together; what comes later is late. Default: as long as they lag

        Raises JobDefinitionError and TypeError, before anything runs, for what cannot be meant or cannot go together.
        """
        store = self.snapshot_store if snapshot_store is None else snapshot_store
        self._check_store(store)
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
                accept_loss,
            ),
            default_store=self._default_store,
        )
        return start_job(self._coordinate(submission), submission.dag, progress=progress)

    @abstractmethod
    def _coordinate(self, submission: Submission) -> Runner:
        """Return what runs the job, ready to be started: it can summon members of this cluster, and release them."""

    def _check_store(self, store: SnapshotStore | None) -> None:
        """Raise TypeError or JobDefinitionError for a snapshot store that members cannot use."""
        check_store(store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(members={self.members}, workers={self.workers})"
