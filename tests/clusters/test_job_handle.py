"""What users give to a job and read from its handle: time limits, names of guarantees, figures of rows."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.core.guarantee import Guarantee
from jetfast.core.joins import JoinType
from jetfast.errors import DurationError, JobCancelledError, JobDefinitionError, JobFailedError
from jetfast.types import timeout_s


def numbers(rows: Any, random: Any) -> pa.RecordBatch:
    return pa.record_batch({"row": rows})


def endless() -> jf.Job:
    pipeline = jf.Pipeline("endless")
    pipeline.read(jf.memory({"n": [1]}, unbounded=True), name="rows").collect()
    return jf.LocalCluster(workers=1).submit(pipeline, progress=False)


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(None, None), (2, 2.0), (0, 0.0), (0.5, 0.5), ("20s", 20.0), (timedelta(seconds=3), 3.0)]
)
def test_a_time_limit_is_a_duration_or_a_number_of_seconds(timeout: Any, seconds: float | None) -> None:
    assert timeout_s(timeout) == seconds


@pytest.mark.parametrize(("timeout", "error"), [("soon", DurationError), (-1, DurationError), (True, TypeError)])
def test_a_time_limit_that_cannot_be_meant_is_refused_before_anything_is_asked(
    timeout: Any, error: type[Exception]
) -> None:
    with endless() as job:
        for call in (job.wait, job.suspend, job.restart, job.leave):
            with pytest.raises(error, match="timeout"):
                call(timeout=timeout)
        with pytest.raises(error, match="timeout"):
            job.export_snapshot("kept", timeout=timeout)
        assert job.status not in (jf.JobStatus.SUSPENDED, jf.JobStatus.FAILED)


def test_a_job_is_waited_for_by_a_duration() -> None:
    with endless() as job, pytest.raises(TimeoutError, match=r"job endless is still .* after 0\.01 s"):
        job.wait(timeout="10ms")


@pytest.mark.parametrize("text", ["exactly-once", "EXACTLY_ONCE", "exactly once", "ExactlyOnce", "Exactly_Once"])
def test_a_guarantee_may_be_given_by_its_name(text: str) -> None:
    pipeline = jf.Pipeline("named")
    pipeline.read(jf.memory({"n": [1]}), name="rows").collect()
    job = jf.LocalCluster(workers=1).submit(pipeline, guarantee=text, progress=False)
    job.wait()
    assert Guarantee(text) is Guarantee.EXACTLY_ONCE
    assert job.runner.plan.snapshot_store is not None, "it has taken snapshots"


def test_a_guarantee_of_another_name_is_refused_with_those_that_there_are() -> None:
    pipeline = jf.Pipeline("named")
    pipeline.read(jf.memory({"n": [1]}), name="rows").collect()
    for value, error in (("at-most-once", JobDefinitionError), (2, TypeError)):
        with pytest.raises(error, match=r"guarantee must be one of Guarantee.NONE \('none'\), .*, got " + repr(value)):
            jf.LocalCluster(workers=1).submit(pipeline, guarantee=value, progress=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "join_type"),
    [("INNER", JoinType.INNER), ("left_outer", JoinType.LEFT), ("Right", JoinType.RIGHT)]
    + [(text, JoinType.OUTER) for text in ("outer", "full", "full_outer", "FullOuter")],
)
def test_joins_are_known_by_the_names_that_spark_gives_them(text: str, join_type: JoinType) -> None:
    assert JoinType(text) is join_type


def test_rows_that_are_put_aside_do_not_count_as_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    (tmp_path / "rows.json").write_text('{"n": 1}\n{"n": "x"\n{"n": 2}\n')
    pipeline = jf.Pipeline("aside")
    rows = pipeline.read(jf.files(tmp_path / "rows.json", format="json"), name="rows")
    rows.collect("kept")
    rows.rejected_rows.select("reason").collect("rejected")
    job = jf.LocalCluster(workers=1).submit(pipeline)
    job.wait()
    assert (job.collected("kept").num_rows, job.collected("rejected").num_rows) == (2, 1)
    assert (job.metrics["rows_written"], job.metrics["rejected_rows"]) == (2, 1)
    assert "3 rows in, 2 out, 0 late, 0 partly late, 1 rejected" in caplog.text


def test_a_job_that_has_ended_explains_how_and_does_not_say_that_it_waits() -> None:
    with endless() as job:
        pass
    with pytest.raises(JobCancelledError):
        job.wait()
    assert job.explain_progress() == "job endless is failed: JobCancelledError: the job was cancelled"
    pipeline = jf.Pipeline("broken")
    rows = pipeline.read(jf.memory({"n": [0]}), name="rows")
    rows.map_batches(lambda batch: 1 // 0, schema=rows.schema, name="breaks").collect()
    failed = jf.LocalCluster(workers=1).submit(pipeline, progress=False)
    with pytest.raises(JobFailedError):
        failed.wait()
    assert failed.explain_progress().startswith("job broken is failed: JobFailedError: step 'breaks'")


@pytest.mark.parametrize("shared", [False, True])
def test_a_job_that_starts_from_a_named_snapshot_says_how_many_rows_are_written_again(
    tmp_path: Path, shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = jf.snapshots.directory(tmp_path / "store") if shared else jf.snapshots.memory()
    cluster = jf.LocalCluster(workers=1, snapshot_store=store)

    pipeline = jf.Pipeline("copy")
    rows = pipeline.read(jf.generator(numbers, rate=1000.0, rows=10**9), name="rows")
    rows.write(jf.files(tmp_path / "out", format="csv"), name="out")

    def written() -> int:
        return sum(len(file.read_text().splitlines()) - 1 for file in (tmp_path / "out").glob("part-*"))

    with cluster.submit(pipeline, snapshot_interval="10ms", progress=False) as job:
        while job.metrics["rows_written"] == 0:
            job.runner.wait(0.01)
        job.suspend()
        job.export_snapshot("early")
        early = written()
        job.resume()
        while job.metrics["rows_written"] < early + 100:
            job.runner.wait(0.01)
        job.suspend()
        late = written()
    with cluster.submit(pipeline, initial_snapshot="early", progress=False):
        pass
    assert late >= early + 100
    assert f"job copy: {late - early:,} rows are written again: job 'copy' had written so many more" in caplog.text
