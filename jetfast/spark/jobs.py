"""The Spark jobs that members are: started on a thread each, cancelled by group, their failures explained."""

import logging
import re
import sys
import threading
from typing import Any

from jetfast.control.member_links import OnEnd
from jetfast.control.remote_member import MemberTask
from jetfast.errors import ResourcesError
from jetfast.spark.members import RESULT_SCHEMA, member_function

logger = logging.getLogger("jetfast.spark")


class SparkJobs:
    """MemberCarrier: members as Spark jobs of one task each. Spark starts a task that failed again by itself."""

    summons = False

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        """Submit the job of a member, from a thread that inherits the caller's Spark properties (pool, tags)."""
        from pyspark import InheritableThread

        def run() -> None:
            error: Exception | None = None
            try:
                self._spark.sparkContext.setJobGroup(group, description, interruptOnCancel=False)
                self._spark.range(0, 1, 1, 1).mapInArrow(member_function(task), RESULT_SCHEMA).toArrow()
            except Exception as problem:
                error = problem
            on_end(error)

        thread: threading.Thread = InheritableThread(run)
        thread.name = f"jetfast-spark-job-{task.member}"
        thread.daemon = True
        thread.start()
        return thread

    def cancel(self, group: str) -> None:
        """Cancel the Spark job of a member; Spark ends its Python worker if the task does not end by itself."""
        try:
            self._spark.sparkContext.cancelJobGroup(group)
        except Exception as error:  # the session was stopped: its jobs have ended
            logger.debug("cannot cancel %s: %s", group, error)

    def explain_start(self, member: int, error: Exception | None) -> Exception:
        """Return why a member did not come, with what to do, out of what Spark says."""
        return explain_start(member, error)

    def explain_absence(self, member: int, seconds: float) -> Exception:
        """Return what it means that a member has not come for so long."""
        return ResourcesError(
            f"member {member} did not start within {seconds:.0f} s: Spark gave it no slot, or its Python workers do "
            "not start. See the Spark UI; start_timeout= of SparkCluster sets the time"
        )

    def explain_end(self, error: Exception | None) -> str:
        """Return how a member that had come has ended."""
        return f"its Spark job ended: {_first_line(error)}"


_JETFAST_ERROR = re.compile(r"^jetfast\.errors\.(\w+): (.*)$", re.MULTILINE)
_IMPORT_ERROR = re.compile(r"(?:ModuleNotFoundError|ImportError|PackageNotFoundError)[^\n]*: (.*)")
_SET_PYTHON = (
    "Spark's Python workers must run an interpreter that has jetfast, pyarrow and pandas: set the environment variable "
    "PYSPARK_PYTHON (or spark.pyspark.python) before the session starts, for example to"
)


def explain_start(member: int, error: Exception | None) -> Exception:
    """Return why the Spark job of a member ended before the member came."""
    text = str(error) if error is not None else "its Spark job ended at once"
    if (said := _JETFAST_ERROR.search(text)) is not None:
        explained = ResourcesError(said[2])
    elif (missing := _IMPORT_ERROR.search(text)) is not None:
        explained = ResourcesError(
            f"member {member} did not start: {missing[1].strip()}. {_SET_PYTHON} {sys.executable}"
        )
    elif "PYTHON_VERSION_MISMATCH" in text or "Cannot run program" in text:
        explained = ResourcesError(
            f"member {member} did not start: {_first_line(error)}. {_SET_PYTHON} {sys.executable}"
        )
    else:
        explained = ResourcesError(f"member {member} did not start: {_first_line(error)}")
    explained.__cause__ = error
    return explained


def _first_line(error: Exception | None) -> str:
    if error is None:
        return "it returned"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
