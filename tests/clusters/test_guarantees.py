"""What each source and sink lets a job promise, and where that is said."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.memory import MemorySource
from jetfast.control.job_report import report_job
from jetfast.core.guarantee import Delivery
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.errors import JobFailedError
from jetfast.testing import AcknowledgingQueue, StoredRows, TransactionalMemory
from tests.simulation.stepped_job import SteppedJob

EXACTLY_ONCE, AT_LEAST_ONCE, NONE = jf.Guarantee.EXACTLY_ONCE, jf.Guarantee.AT_LEAST_ONCE, jf.Guarantee.NONE
ROWS = pa.table({"row": [1, 2, 3]})


class PlainSink:
    """A sink of a user, who has not thought of guarantees."""

    name = "plain"
    cooperative = True
    parallelism_one = False
    target = None

    def check(self, schema: pa.Schema) -> None:
        pass

    def check_target(self) -> None:
        pass

    def open_writer(self, schema: pa.Schema, context: Any) -> "PlainSink":
        return self

    def write(self, batch: Any) -> None:
        pass

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        pass

    def abort(self) -> None:
        pass


SINKS: dict[str, tuple[Callable[[Path], Any], jf.Guarantee]] = {
    "a directory of files": (lambda path: jf.files(path / "out", "parquet"), EXACTLY_ONCE),
    "one file": (lambda path: jf.files(path / "out.csv"), NONE),
    "rows of no key": (lambda path: StoredRows().sink(), AT_LEAST_ONCE),
    "collect": (lambda path: jf.collect(), EXACTLY_ONCE),
    "transactional": (lambda path: TransactionalMemory.named().sink(), EXACTLY_ONCE),
    "idempotent": (lambda path: StoredRows("row").sink(), EXACTLY_ONCE),
    "one that says nothing": (lambda path: PlainSink(), AT_LEAST_ONCE),
}


def run(pipeline: jf.Pipeline, wanted: jf.Guarantee | None = None) -> jf.Job:
    cluster = jf.LocalCluster(workers=1, snapshot_store=jf.snapshots.memory())
    job = cluster.submit(pipeline, guarantee=wanted, progress=False)
    job.wait(60)
    return job


@pytest.mark.parametrize("name", SINKS)
def test_a_job_promises_what_its_sink_can_keep_and_says_so_at_submission_and_in_its_status(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "jetfast")
    make, strongest = SINKS[name]
    pipeline = jf.Pipeline("promise")
    pipeline.read(jf.memory(ROWS)).write(make(tmp_path), name="the sink")
    job = run(pipeline)
    assert job.guarantee is strongest
    assert strongest.value in job._repr_html_()
    assert strongest.value in repr(job)
    assert (job.metrics["snapshots_taken"] > 0) == (strongest is not NONE)
    if strongest is EXACTLY_ONCE:
        assert job.weakened_by == ()
        assert "the guarantee is" not in caplog.text
    else:
        (why,) = job.weakened_by
        assert why.startswith(f"step 'the sink' keeps {strongest.name} at most: ")
        assert f"the guarantee is {strongest.name} instead of EXACTLY_ONCE: step 'the sink'" in caplog.text
        assert "weakened by 1" in job._repr_html_()


def test_what_was_not_asked_for_is_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "jetfast")
    pipeline = jf.Pipeline("promise")
    pipeline.read(jf.memory(ROWS)).write(jf.console(limit=0))
    for wanted in (AT_LEAST_ONCE, NONE):
        job = run(pipeline, wanted)
        assert job.guarantee is wanted
        assert job.weakened_by == ()
    assert "the guarantee is" not in caplog.text
    assert "takes no snapshots" not in caplog.text


def test_every_source_keeps_exactly_once(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("row\n1\n2\n")
    queue = AcknowledgingQueue(ROWS.schema)
    queue.publish([{"row": 1}])
    sources: list[Any] = [
        jf.memory(ROWS),
        jf.generator({"row": pa.int64()}, rows=3),
        jf.files(tmp_path / "rows.csv"),
        queue.source(),
    ]
    for source in sources:
        pipeline = jf.Pipeline("promise")
        pipeline.read(source).collect()
        assert run(pipeline).guarantee is EXACTLY_ONCE


def test_a_console_beside_other_sinks_weakens_nothing_but_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "jetfast")
    table = TransactionalMemory.named()
    pipeline = jf.Pipeline("promise")
    rows = pipeline.read(jf.memory(ROWS)).peek(name="peek")
    rows.write(table.sink(), name="table")
    rows.write(jf.console(limit=0), name="console")
    job = run(pipeline)
    assert job.guarantee is EXACTLY_ONCE
    assert job.sink_guarantees == {"table": EXACTLY_ONCE, "console": AT_LEAST_ONCE}
    assert job.runner.plan.guarantee is EXACTLY_ONCE
    (why,) = job.weakened_by
    assert f"the guarantee is EXACTLY_ONCE, but {why}" in caplog.text
    assert why.startswith("step 'console' keeps AT_LEAST_ONCE at most: ")
    assert report_job(job).sink_guarantees == {"table": "EXACTLY_ONCE", "console": "AT_LEAST_ONCE"}
    assert "guarantee of console" in job._repr_html_()
    explained = pipeline.explain()
    assert "  table  x 1, keeps EXACTLY_ONCE at most\n" in explained
    assert "  console  x 1, keeps AT_LEAST_ONCE at most, does not count\n" in explained


def test_a_sink_of_a_user_that_does_not_count_weakens_nothing_but_itself() -> None:
    class Looking(PlainSink):
        counts = False

    pipeline = jf.Pipeline("promise")
    pipeline.read(jf.memory(ROWS)).write(Looking(), name="looking")
    job = run(pipeline)
    assert (job.guarantee, job.sink_guarantees) == (EXACTLY_ONCE, {"looking": AT_LEAST_ONCE})


def test_steps_without_state_before_a_sink_that_repeats_rows_need_no_aligned_barriers() -> None:
    for with_state in (False, True):
        pipeline = jf.Pipeline("promise")
        rows = pipeline.read(jf.memory(ROWS)).where(jf.col("row") > 1)
        if with_state:
            rows = rows.group_by("row").rolling_agg(n=jf.count())
        rows.write(StoredRows().sink())
        job = run(pipeline)
        assert job.guarantee is AT_LEAST_ONCE
        assert job.runner.plan.guarantee is (EXACTLY_ONCE if with_state else AT_LEAST_ONCE)


class FleetingSource(MemorySource):
    """A source of a user that cannot be read again."""

    source_delivery = Delivery.FLEETING


def fleeting() -> FleetingSource:
    made = jf.memory(ROWS)
    return FleetingSource(made.name, made.schema, made.scripts, True, made.batch_rows, made.identity)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"snapshot_store": jf.snapshots.memory(), "snapshot_interval": "1s"}, "step 'source' keeps NONE at most"),
        ({"snapshot_interval": "1s"}, "it has no store"),
    ],
)
def test_an_interval_for_a_job_that_takes_no_snapshots_is_warned_of(
    options: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "jetfast")
    pipeline = jf.Pipeline("promise")
    pipeline.read(fleeting(), name="source").collect()
    job = jf.LocalCluster(workers=1).submit(pipeline, progress=False, **options)
    job.wait(60)
    assert job.guarantee is NONE
    assert "job promise: takes no snapshots, at no interval, and starts from the beginning after a failure: " in (
        caplog.text
    )
    assert why in caplog.text


@pytest.mark.parametrize("problem", [ConnectionResetError("reset"), TimeoutError("late"), ValueError("bad")])
def test_an_error_of_a_source_that_passes_by_itself_restarts_the_job(problem: Exception) -> None:
    problems = [problem]

    class Failing(MemorySource):
        def open_reader(self, partition: str, position: Any, context: Any) -> Any:
            if problems:
                raise problems.pop()
            return super().open_reader(partition, position, context)

    made = jf.memory(ROWS)
    source = Failing(made.name, made.schema, made.scripts, True, made.batch_rows, made.identity)
    pipeline = jf.Pipeline("failing")
    pipeline.read(source).collect()
    job = SteppedJob(pipeline, seed=1, guarantee=EXACTLY_ONCE, store=MemorySnapshotStore())
    job.run()
    if isinstance(problem, ValueError):
        assert isinstance(job.runner.error, JobFailedError)
    else:
        assert job.runner.error is None
        assert job.job.metrics["restarts"] == 1
