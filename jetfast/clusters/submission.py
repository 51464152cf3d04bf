"""What every cluster does with a submission before it touches a member: checks settings, has the pipeline planned."""

import logging
import re
import uuid
from dataclasses import dataclass
from typing import Protocol

from jetfast.control.job import Job
from jetfast.control.progress import show_log_lines
from jetfast.control.runner import ExecutionSettings, new_execution_id
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.errors import JobDefinitionError
from jetfast.types import Duration, non_negative_duration_us

logger = logging.getLogger("jetfast")

DEFAULT_MEMORY_LIMIT = "1GB"


class Pipeline(Protocol):
    """What a cluster needs of a pipeline."""

    name: str

    def plan(self, *, member_count: int, workers: int, two_stage: bool | None) -> Dag:
        """Return the graph for so many members with so many workers each. `two_stage` None: the planner chooses."""


class Cluster(Protocol):
    """Where members live. The same pipeline runs on each kind."""

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
        """Start a job and return its handle at once."""


@dataclass(frozen=True)
class Submission:
    """A submission that has passed all checks."""

    job: str
    job_id: str
    dag: Dag
    member_count: int
    workers: int
    guarantee: Guarantee
    memory_limit_bytes: int

    def new_execution(self, pickled_dag: bytes) -> ExecutionSettings:
        """Return the settings of an execution with a new id; `pickled_dag` as `messages.Prepare.dag`."""
        return ExecutionSettings(
            job=self.job,
            job_id=self.job_id,
            execution_id=new_execution_id(),
            dag=pickled_dag,
            member_count=self.member_count,
            workers=self.workers,
            guarantee=self.guarantee,
            memory_limit_bytes=self.memory_limit_bytes,
        )


def accept_submission(
    pipeline: Pipeline,
    *,
    member_count: int,
    workers: int,
    name: str | None,
    guarantee: Guarantee | None,
    memory_limit: str,
    progress: bool | None,
    two_stage: bool | None,
    max_watermark_retention: Duration | None = None,
) -> Submission:
    """Check the settings, plan the pipeline, log the guarantee. Raises JobDefinitionError and TypeError."""
    if not callable(getattr(pipeline, "plan", None)):
        raise TypeError(f"submit() needs a jetfast.Pipeline, got {type(pipeline).__name__}")
    job = pipeline.name if name is None else name
    if not isinstance(job, str) or not job:
        raise JobDefinitionError(f"a job's name must be text that is not empty, got {job!r}")
    if progress not in (None, True, False):
        raise TypeError(f"progress must be True, False or None (a bar on a terminal, else lines), got {progress!r}")
    if two_stage not in (None, True, False):
        raise TypeError(f"two_stage must be True, False or None (the planner chooses), got {two_stage!r}")
    chosen = check_guarantee(guarantee)
    memory_limit_bytes = bytes_of(memory_limit, "memory_limit")
    dag = pipeline.plan(member_count=member_count, workers=workers, two_stage=two_stage)
    if max_watermark_retention is not None:
        dag.max_watermark_retention_us = non_negative_duration_us(max_watermark_retention, "max_watermark_retention")
    if progress is not False:
        show_log_lines()
    reason = " (no snapshot store: a restart starts from the beginning)" if guarantee is None else ""
    logger.info("job %s: guarantee %s%s", job, chosen.name, reason)
    return Submission(job, uuid.uuid4().hex, dag, member_count, workers, chosen, memory_limit_bytes)


def check_guarantee(guarantee: Guarantee | None) -> Guarantee:
    """Return the guarantee that the job gets. Raises JobDefinitionError for one that cannot be kept."""
    if guarantee is None:
        return Guarantee.NONE
    if not isinstance(guarantee, Guarantee):
        choices = ", ".join(f"Guarantee.{choice.name}" for choice in Guarantee)
        raise TypeError(f"guarantee must be one of {choices}, got {guarantee!r}")
    if guarantee is not Guarantee.NONE:
        raise JobDefinitionError(
            f"guarantee {guarantee.name} needs snapshots, which this version of jetfast does not take yet; "
            "leave guarantee out, or say Guarantee.NONE"
        )
    return guarantee


def at_least_one(value: int, what: str) -> int:
    """Return a count of members or workers. Raises TypeError and JobDefinitionError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be a whole number, got {value!r}")
    if value < 1:
        raise JobDefinitionError(f"{what} must be at least 1, got {value}")
    return value


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)", re.IGNORECASE)
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def bytes_of(size: str, what: str) -> int:
    """Return "512MB" (powers of 1000) or "1.5 GiB" (powers of 1024) in bytes.

    Raises TypeError for a bare number and JobDefinitionError for text that cannot be read or is zero.
    """
    if isinstance(size, int | float) and not isinstance(size, bool):
        raise TypeError(f'{what} must have a unit, got the bare number {size!r}; did you mean "{size}MB"?')
    if not isinstance(size, str):
        raise TypeError(f'{what} must be text such as "512MB", got {type(size).__name__}')
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise JobDefinitionError(f'{what} {size!r} cannot be read; write it like "512MB" or "1.5GiB"')
    unit = match[2].lower()
    result = int(float(match[1]) * (1024 if "i" in unit else 1000) ** _POWERS[unit[0]])
    if result < 1:
        raise JobDefinitionError(f"{what} must be greater than zero, got {size!r}")
    return result
