"""The life of a job in this process: errors, cancellation, Ctrl-C, bounded memory; nothing is left behind."""

import os
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobCancelledError, JobFailedError, RestartableError
from jetfast.testing import CRASH, EMPTY, scripted

PATIENCE_S = 60.0


def job_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("jetfast-")]


class GatedSink:
    """A sink that takes the first batch and then nothing until the gate opens."""

    name = "gated"
    cooperative = False
    parallelism_one = True
    target = None

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.rows = 0

    def check(self, schema: pa.Schema) -> None:
        pass

    def check_target(self) -> None:
        pass

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> "GatedSink":
        return self

    def write(self, batch: Batch) -> None:
        self.entered.set()
        assert self.gate.wait(PATIENCE_S)
        self.rows += batch.row_count

    def finish(self) -> None:
        pass

    def abort(self) -> None:
        pass


def endless() -> jf.Pipeline:
    pipeline = jf.Pipeline("endless")
    pipeline.read(jf.generator({"x": pa.int64()}), name="numbers").where(jf.col("x") < 0).collect()
    return pipeline


@pytest.mark.parametrize(("members", "workers"), [(1, 1), (1, 3), (2, 2)])
def test_memory_stays_below_memory_limit_when_the_sink_is_slow(members: int, workers: int) -> None:
    limit, rows = 2_000_000, 1_000_000
    sink = GatedSink()
    pipeline = jf.Pipeline("slow")
    columns = {"a": pa.int64(), "b": pa.float64(), "c": pa.int64()}
    pipeline.read(jf.generator(columns, rows=rows, partitions=4), name="numbers").write(sink)
    job = jf.LocalCluster(members=members, workers=workers).submit(pipeline, memory_limit="2MB", progress=False)
    assert sink.entered.wait(PATIENCE_S)
    rows_read, before = 0, -1
    while rows_read == 0 or rows_read > before:  # until the source has come to a halt
        with pytest.raises(TimeoutError):
            job.wait(0.3)  # members report four times a second
        before, rows_read = rows_read, job.metrics["rows_read"]
    assert rows_read < rows / 2
    sink.gate.set()
    job.wait()
    metrics = job.metrics
    assert sink.rows == metrics["rows_written"] == metrics["rows_read"] == rows
    batch_bytes = 8192 * 24
    channels = 4 * members * workers
    assert 0 < metrics["queued_bytes_peak"] <= members * limit + channels * batch_bytes
    assert metrics["peak_rss_bytes"] > 0


def test_memory_between_members_stays_below_memory_limit_when_the_sink_is_slow() -> None:
    limit, rows = 500_000, 1_000_000
    sink = GatedSink()
    pipeline = jf.Pipeline("slow")
    columns = {"a": pa.int64(), "b": pa.float64(), "c": pa.int64()}
    pipeline.read(jf.generator(columns, rows=rows, partitions=4), name="numbers").write(sink)
    job = jf.LocalCluster(members=2, workers=2).submit(pipeline, memory_limit="500kB", progress=False)
    assert sink.entered.wait(PATIENCE_S)
    rows_sent, before = 0, -1
    while rows_sent == 0 or rows_sent > before:
        with pytest.raises(TimeoutError):
            job.wait(0.3)
        before, rows_sent = rows_sent, job.metrics["rows_sent"]
    under_way = job.metrics["bytes_sent"] - job.metrics["bytes_received"]
    assert under_way <= limit + 2 * 8192 * 24, "one batch more for each of the two senders"
    sink.gate.set()
    job.wait()
    assert sink.rows == rows


@pytest.mark.parametrize("members", [1, 2])
def test_a_function_that_raises_fails_the_job_and_is_named(members: int) -> None:
    def divide(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 7 in batch["x"].to_pylist():
            raise ZeroDivisionError("seven is not to my taste")
        return batch

    rows = jf.memory(partitions={"east": {"x": [1, 2]}, "west": {"x": [6, 7, 8]}})
    pipeline = jf.Pipeline("raising")
    pipeline.read(rows, name="rows").map_batches(divide, schema=rows.schema, name="divide").collect()
    job = jf.LocalCluster(members=members, workers=1).submit(pipeline, progress=False)
    with pytest.raises(JobFailedError) as caught:
        job.wait()
    text = str(caught.value)
    for part in (
        "step 'divide'",
        f"on member {members - 1}",
        "source partition 'west'",
        "rows 0 to 2" if members == 2 else "rows 2 to 4",
        "ZeroDivisionError: seven is not to my taste",
    ):
        assert part in text
    assert "divide" in str(caught.value.__cause__), "the traceback of the member shows the user's function"
    assert job.status is jf.JobStatus.FAILED
    assert job_threads() == []


def test_a_broken_connection_of_a_source_fails_the_job_with_a_restartable_error() -> None:
    pipeline = jf.Pipeline("crashing")
    pipeline.read(jf.memory(partitions={"east": [{"x": [1, 2]}, CRASH, {"x": [3]}]}), name="rows").collect()
    job = jf.LocalCluster(members=2, workers=1).submit(pipeline, progress=False)
    with pytest.raises(RestartableError, match="scripted crash at item 1 of partition 'east'"):
        job.wait()
    assert job.status is jf.JobStatus.FAILED


def test_what_fails_while_members_prepare_fails_the_job() -> None:
    def refuse(*_: object) -> None:
        raise OSError("no disk")

    sink = GatedSink()
    sink.open_writer = refuse  # type: ignore[method-assign,assignment]
    pipeline = jf.Pipeline("refused")
    pipeline.read(jf.memory({"x": [1]}), name="rows").write(sink)
    job = jf.LocalCluster(members=2, workers=1).submit(pipeline, progress=False)
    with pytest.raises(JobFailedError, match=r"step 'gated' failed .*OSError: no disk"):
        job.wait()
    assert job_threads() == []


def test_an_endless_job_is_cancelled_and_leaves_no_thread() -> None:
    job = jf.LocalCluster(members=2, workers=2).submit(endless(), progress=False)
    assert job.status is not jf.JobStatus.COMPLETED
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()
    assert job.status is jf.JobStatus.FAILED
    assert job_threads() == []


def test_a_job_can_be_cancelled_at_any_moment() -> None:
    for _ in range(10):
        job = jf.LocalCluster(members=2, workers=1).submit(endless(), progress=False)
        while job.status is jf.JobStatus.NOT_RUNNING:
            pass
        job.cancel()
        with pytest.raises(JobCancelledError):
            job.wait()
    assert job_threads() == []


def test_several_jobs_run_side_by_side() -> None:
    cluster = jf.LocalCluster(workers=2)
    jobs = []
    for number in range(4):
        pipeline = jf.Pipeline(f"job {number}")
        pipeline.read(jf.memory({"x": list(range(number * 10))}, schema=pa.schema([("x", pa.int64())]))).collect()
        jobs.append(cluster.submit(pipeline, progress=False))
    assert [len(job.to_arrow()) for job in jobs] == [0, 10, 20, 30]
    assert len({job.id for job in jobs}) == 4


PROGRAM = """
import sys, threading
import pyarrow as pa
import jetfast as jf

pipeline = jf.Pipeline("endless")
pipeline.read(jf.generator({"x": pa.int64()}), name="numbers").where(jf.col("x") < 0).collect()
job = jf.LocalCluster(members=2, workers=2).submit(pipeline, progress=False)
while job.status is not jf.JobStatus.RUNNING:
    pass
wait = job.runner.wait


def announced(timeout):
    job.runner.wait = wait
    print("waiting", flush=True)  # from here on a Ctrl-C falls into job.wait()
    return wait(timeout)


try:
    job.runner.wait = announced
    job.wait()
except KeyboardInterrupt:
    print(job.status.value, type(job.error).__name__, [thread.name for thread in threading.enumerate()], flush=True)
    raise
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process")
def test_ctrl_c_stops_the_job_cleanly_and_raises_keyboard_interrupt() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert output == "failed JobCancelledError ['MainThread']\n"
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


def test_a_program_that_does_not_wait_ends_its_jobs_when_it_ends() -> None:
    program = PROGRAM.split("wait = ")[0]
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert result.stdout + result.stderr == ""


def test_metrics_tell_what_crossed_between_members() -> None:
    pipeline = jf.Pipeline("crossing")
    rows = jf.generator({"key": pa.int64(), "time": pa.timestamp("us")}, rows=10_000, partitions=4)
    (
        pipeline.read(rows, name="rows")
        .with_event_time("time", jf.watermarks.fixed_lag("1s"))
        .group_by("key")
        .window(jf.tumbling("1s"))
        .agg(rows=jf.count())
        .collect()
    )
    job = jf.LocalCluster(members=2, workers=1).submit(pipeline, progress=False, two_stage=False)
    result = job.to_arrow()
    assert pa.compute.sum(result["rows"]).as_py() == 10_000
    metrics = job.metrics
    assert [member["rows_read"] for member in metrics["members"]] == [5000, 5000]
    for member in metrics["members"]:
        assert member["pid"] == os.getpid()
        assert 0 < member["rows_received"] < 10_000
        assert member["bytes_received"] > 0
    assert metrics["rows_sent"] == metrics["rows_received"]


def test_a_partition_that_falls_silent_does_not_hold_back_windows() -> None:
    times = pa.array([0, 1, 2, 3], pa.timestamp("s"))
    rows = jf.memory(partitions={"silent": {"time": times[:1]}, "busy": {"time": times}}, unbounded=True)
    pipeline = jf.Pipeline("silent")
    stage = pipeline.read(rows).with_event_time("time", jf.watermarks.fixed_lag("0s"), idle_timeout="1ms")
    stage.window(jf.tumbling("1s")).agg(rows=jf.count()).collect()
    job = jf.LocalCluster(workers=1).submit(pipeline, progress=False)
    while len(job.collected()) < 3:  # the watermark of "busy" closes three windows
        with pytest.raises(TimeoutError):
            job.wait(0.01)
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()
    assert job.collected()["rows"].to_pylist() == [2, 1, 1]


@pytest.mark.parametrize(("members", "workers"), [(1, 3), (2, 2)])
def test_a_live_source_with_fewer_partitions_than_processors_ends_when_its_partitions_do(
    members: int, workers: int
) -> None:
    pipeline = jf.Pipeline("few")
    pipeline.read(scripted([pa.table({"n": [1, 2]}), EMPTY, pa.table({"n": [3]})]), name="rows").collect()
    job = jf.LocalCluster(members=members, workers=workers).submit(pipeline, progress=False)
    assert sorted(job.to_arrow()["n"].to_pylist()) == [1, 2, 3]
