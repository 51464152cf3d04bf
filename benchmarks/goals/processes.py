"""Goal 9 between processes: the same keyed pipeline on two processes of one worker each, against one."""

from collections.abc import Iterator

import jetfast as jf
from benchmarks.answers import WindowReference
from benchmarks.goals.feed import cached_events
from benchmarks.goals.options import Options
from benchmarks.goals.pipelines import CASE, KEYS, right_results
from benchmarks.goals.windows import SIZE_US, SLIDE_US
from benchmarks.measure import Cost, measure, side_by_side
from benchmarks.report import Entry, Goal, ratio
from benchmarks.suite.pipelines import CountingSink, sliding_pipeline
from benchmarks.suite.repeated import TURN_ROWS, RepeatedEvents
from jetfast.core.source import Source

PARTITIONS = 2
LOOK_S = 0.005
"""How often the job is asked how far it is: each time takes a core from the two that work."""


def run(members: int, rows: Source, sink: object) -> jf.Job:
    """Start a job on so many processes, and wait until its rows begin to flow."""
    job = jf.ProcessCluster(members, 1).submit(sliding_pipeline(rows, sink), progress=False)
    wait_while(job, jf.JobStatus.NOT_RUNNING, jf.JobStatus.STARTING)
    return job


def wait_while(job: jf.Job, *statuses: jf.JobStatus) -> None:
    """Wait until the job stands elsewhere."""
    while job.status in statuses:
        if job.runner.wait(LOOK_S):
            break


def processes(options: Options) -> Iterator[Entry]:
    """Wall time from when the rows begin to flow until the last one has: how long processes take to start and to end
    is no matter of a stream. Half of the rows, or of their sums, cross from one process to the other.
    """
    if not options.chosen({"one-process": None}):
        return
    some = cached_events(TURN_ROWS, KEYS)
    arrow = some.record_batches()
    halves = jf.memory(partitions={"even": arrow[0::2], "odd": arrow[1::2]})
    reference = WindowReference(some, KEYS, SIZE_US, SLIDE_US)
    equal = all(right_results(run(members, halves, jf.collect()).to_arrow(), reference) for members in (1, 2))

    turn_rows = min(options.process_rows // PARTITIONS, 1 << 20)
    rounds = options.process_rows // (PARTITIONS * turn_rows)
    source = RepeatedEvents.of(cached_events(turn_rows, KEYS), rounds, PARTITIONS)

    def turn(members: int) -> Cost:
        job = run(members, source, CountingSink())
        cost = measure(lambda: wait_while(job, jf.JobStatus.RUNNING))
        job.wait()
        if job.metrics["rows_read"] != source.total_rows:
            raise AssertionError(f"{job.metrics['rows_read']} rows were read of {source.total_rows}")
        return cost

    costs = side_by_side(lambda: turn(2), {"one-process": {"": lambda: turn(1)}}, options.wall_repeats, "wall_s")
    yield ratio(
        "two-processes-vs-one", CASE, "one-process", costs["jetfast"], costs["one-process"], source.total_rows, equal,
        Goal(9, 1.5, 1.75), "wall_s",
    )  # fmt: skip
