"""The Spark jobs that members are: started on a thread each, cancelled by group."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from jetfast.spark.members import RESULT_SCHEMA, MemberTask, member_function

logger = logging.getLogger("jetfast.spark")

OnEnd = Callable[[Exception | None], None]


class MemberJobs(Protocol):
    """Port: starts and cancels what a member runs in."""

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        """Start a member; the thread lives as long as it, and calls `on_end` last: with None if the member returned."""

    def cancel(self, group: str) -> None:
        """Kill what was started as `group`. Harmless when it has ended."""


class SparkJobs:
    """Members as Spark jobs of one task each."""

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
