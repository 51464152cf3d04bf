"""The Spark jobs that members are: submitted on a thread each, cancelled by group, their failures explained."""

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

from jetfast.clusters.child_python import import_path
from jetfast.control.member_links import OnEnd
from jetfast.control.messages import Registered
from jetfast.control.process_identity import has_ended
from jetfast.control.remote_member import MemberTask
from jetfast.errors import MemberLostError, ResourcesError
from jetfast.spark.members import RESULT_SCHEMA, member_function

logger = logging.getLogger("jetfast.spark")

_SLEEP = "reflect('java.lang.Thread', 'sleep', 9223372036854775807L)"
"""In the JVM of an executor, until it is interrupted."""


class SparkJobs:
    """MemberCarrier: members as Spark jobs of one task each. Spark may start such a task again by itself, as a copy."""

    def __init__(self, spark: Any) -> None:
        """Each of the jobs has the Spark properties (pool, tags) of the thread that calls this."""
        self._spark = spark
        self._properties = _local_properties(spark)

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        """Submit the job of a member."""

        def run() -> None:
            error: Exception | None = None
            try:
                self._submit(group, description, task)
            except Exception as problem:
                error = problem
            on_end(error)

        thread = threading.Thread(target=run, name=f"jetfast-spark-job-{task.member}", daemon=True)
        thread.start()
        return thread

    def cancel(self, group: str) -> None:
        """Cancel the Spark job of a member; Spark ends its Python worker if the task does not end by itself."""
        try:
            self._spark.sparkContext.cancelJobGroup(group)
        except Exception as error:  # the session was stopped: its jobs have ended
            logger.debug("cannot cancel %s: %s", group, error)

    def has_task(self, group: str) -> bool:
        """Does a task run for what was started as `group`?

        Told by the scheduler: the tasks that the status tracker counts may be ten seconds old, those of a heartbeat.
        """
        context = self._spark.sparkContext
        tracker, scheduler = context.statusTracker(), context._jsc.sc().taskScheduler()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        attempts = [
            scheduler.taskSetManagerForAttempt(stage.stageId, stage.currentAttemptId)
            for stage in stages
            if stage is not None
        ]
        return any(attempt.isDefined() and attempt.get().runningTasks() > 0 for attempt in attempts)

    def hold_slot(self, group: str, description: str) -> threading.Thread:
        """Submit a job that holds one slot, without Python, until it is cancelled; the thread ends with it."""

        def run() -> None:
            try:
                self._set_group(group, description, ends_at_once=True)
                self._spark.range(0, 1, 1, 1).selectExpr(_SLEEP).collect()
            except Exception as error:  # that is how it ends
                logger.debug("%s: %s", description, error)

        thread = threading.Thread(target=run, name=group, daemon=True)
        thread.start()
        return thread

    def has_ended(self, registered: Registered) -> bool:
        """On this host one sees. Elsewhere that Spark has given it up does not mean that it has ended."""
        return has_ended(registered.process)

    def explain_start(self, member: int, error: Exception | None) -> Exception:
        """Return why a member did not come, with what to do, out of what Spark says."""
        if self._is_stopped:
            return ResourcesError(
                "the Spark session has been stopped; a job with a guarantee goes on from its last snapshot when it is "
                "submitted again, on a new one"
            )
        return explain_start(member, error)

    def explain_absence(self, member: int, seconds: float) -> Exception:
        """Return what it means that a member has not come for so long."""
        return ResourcesError(
            f"member {member} did not start within {seconds:.0f} s: Spark gave it no slot, or its Python workers do "
            "not start. See the Spark UI; start_timeout= of SparkCluster sets the time"
        )

    def explain_end(self, error: Exception | None) -> str:
        """Return how a member that had come has ended."""
        if error is None or _CANCELLED.search(str(error)):  # after its end was noticed here
            return "its connection ended: its process was killed or its executor was lost"
        return f"its Spark job ended: {_first_line(error)}"

    def _submit(self, group: str, description: str, task: MemberTask) -> None:
        """Run the Spark job of a member to its end, from a thread of its own."""
        self._set_group(group, description, ends_at_once=False)
        context = self._spark.sparkContext
        # Only in local mode are the folders of this process those of the workers.
        folders = import_path() if context.master == "local" or context.master.startswith("local[") else []
        with _safe_path(context):
            member = self._spark.range(0, 1, 1, 1).mapInArrow(member_function(task, folders), RESULT_SCHEMA)
        member.toArrow()

    def _set_group(self, group: str, description: str, *, ends_at_once: bool) -> None:
        """Of the jobs that this thread submits."""
        if self._properties is not None:
            self._spark.sparkContext._jsc.sc().setLocalProperties(self._properties.clone())
        self._spark.sparkContext.setJobGroup(group, description, interruptOnCancel=ends_at_once)

    @property
    def _is_stopped(self) -> bool:
        return self._spark is not None and self._spark.sparkContext._jsc is None


def _local_properties(spark: Any) -> Any:
    """Return a copy of the properties that Spark keeps for this thread; None where it keeps none for each."""
    from py4j.clientserver import ClientServer

    if spark is None or not isinstance(spark.sparkContext._gateway, ClientServer):
        return None
    return spark.sparkContext._jsc.sc().getLocalProperties().clone()


_wrapping = threading.Lock()
"""The environment of workers is a field of the Spark context."""


@contextlib.contextmanager
def _safe_path(context: Any) -> Iterator[None]:
    """Let functions that are given to Spark meanwhile run in Python workers that do not import from where they stand.

    Spark starts workers with `-m`, so they import from the working directory of their JVM first. In local mode that is
    the driver's. A file there would take the place of a module of the standard library.
    """
    with _wrapping:
        environment = context.environment
        context.environment = {**environment, "PYTHONSAFEPATH": "1"}
        try:
            yield
        finally:
            context.environment = environment


_JETFAST_ERROR = re.compile(r"^jetfast\.errors\.(\w+): (.*)$", re.MULTILINE)
_IMPORT_ERROR = re.compile(r"(?:ModuleNotFoundError|ImportError|PackageNotFoundError)[^\n]*: (.*)")
_CANCELLED = re.compile(r"cancell?ed", re.IGNORECASE)
_KILLED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure|cancell?ed", re.IGNORECASE)
"""What Spark says of a task whose process is gone."""
_SET_PYTHON = (
    "Spark's Python workers must run an interpreter that has jetfast, pyarrow and pandas: set the environment variable "
    "PYSPARK_PYTHON (or spark.pyspark.python) before the session starts, for example to"
)


def explain_start(member: int, error: Exception | None) -> Exception:
    """Return why the Spark job of a member ended before the member came. MemberLostError: it was killed."""
    text = str(error) if error is not None else "its Spark job ended at once"
    explained: Exception
    if (said := _JETFAST_ERROR.search(text)) is not None:
        explained = MemberLostError(said[2]) if said[1] == MemberLostError.__name__ else ResourcesError(said[2])
    elif (missing := _IMPORT_ERROR.search(text)) is not None:
        explained = ResourcesError(
            f"member {member} did not start: {missing[1].strip()}. {_SET_PYTHON} {sys.executable}"
        )
    elif "PYTHON_VERSION_MISMATCH" in text or "Cannot run program" in text:
        explained = ResourcesError(
            f"member {member} did not start: {_first_line(error)}. {_SET_PYTHON} {sys.executable}"
        )
    else:
        kind = MemberLostError if _KILLED.search(text) else ResourcesError
        explained = kind(f"member {member} did not start: {_first_line(error)}")
    explained.__cause__ = error
    return explained


def _first_line(error: Exception | None) -> str:
    if error is None:
        return "it returned"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
