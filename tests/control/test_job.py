"""The job handle over a runner whose members the test plays."""

import logging
import threading

import pyarrow as pa
import pytest

from jetfast.control import messages
from jetfast.control.job import Job
from jetfast.control.job_settings import JobSettings
from jetfast.control.job_status import JobStatus
from jetfast.control.messages import CoordinatorMessage, Registered
from jetfast.control.runner import Runner
from jetfast.control.versions import running_versions
from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import Processor
from jetfast.errors import JobCancelledError, JobDefinitionError, JobFailedError

SCHEMA = pa.schema([("x", pa.int64())])
IDS = {"execution_id": 1, "member": 0}


class Collecting:
    """A sink as `jetfast.connectors` has it, as far as a job looks at it."""

    def __init__(self, collects: bool) -> None:
        self.collects = collects


class Counted:
    """A source that knows how many rows it has."""

    total_rows = 5000


class Supplier:
    """A supplier as those of `jetfast.processors.source` and `sink` are."""

    def __init__(self, sink: Collecting | None = None) -> None:
        if sink is None:
            self.source = Counted()
        else:
            self.sink = sink

    def __call__(self) -> Processor:
        return Processor()


def graph(*collects: str, files: bool = False) -> Dag:
    dag = Dag("job")
    dag.add_vertex(Vertex("source", Supplier()))
    for name in collects:
        dag.add_vertex(Vertex(name, Supplier(Collecting(True))))
        dag.add_edge(Edge("source", name, SCHEMA))
    if files:
        dag.add_vertex(Vertex("files", Supplier(Collecting(False))))
        dag.add_edge(Edge("source", "files", SCHEMA))
    return dag


class Member:
    """The job's only member: does what `on_start` says when it is started."""

    def __init__(self, runner: Runner, on_start) -> None:
        self.runner, self.on_start = runner, on_start
        self.started = threading.Event()

    def send(self, message: CoordinatorMessage) -> None:
        if isinstance(message, messages.Prepare):
            self.runner.receive(0, messages.Prepared(**IDS))
        elif isinstance(message, messages.Start):
            self.on_start(self.runner)
            self.started.set()
        elif isinstance(message, messages.Cancel):
            self.runner.receive(0, messages.Failed(**IDS, kind="JobCancelledError", error="stopped"))

    def dismiss(self) -> None:
        """It is no process."""

    def close(self) -> None:
        pass


def finish(runner: Runner) -> None:
    for value in (1, 2):
        rows = pa.record_batch({"x": [value]}, schema=SCHEMA)
        runner.receive(0, messages.Delivered(**IDS, vertex="result", rows=rows))
    vertices = {"source": {"rows_out": 1234, "rejected_rows": 1}, "result": {"rows_in": 2, "late_rows": 3}}
    runner.receive(0, messages.Metrics(**IDS, values={"vertices": vertices}))
    runner.receive(0, messages.Finished(**IDS))


def fail(runner: Runner) -> None:
    runner.receive(0, messages.Failed(**IDS, kind="JobFailedError", error="step 'x': boom", traceback="tb"))


def run_on(runner: Runner) -> None:
    pass


def submit(on_start, dag: Dag | None = None, progress: bool | None = False) -> Job:
    runner = Runner(JobSettings("job", "id", b"", 1, 1, Guarantee.NONE, 100), new_execution_id=lambda last: 1)
    member = Member(runner, on_start)
    runner.start()
    runner.register(
        0,
        member,
        Registered(execution_id=0, member=0, incarnation=0, pid=1, host="h", address="", versions=running_versions()),
    )
    assert member.started.wait(30)
    return Job(runner, dag or graph("result"), progress=progress)


def test_wait_returns_when_the_job_has_completed() -> None:
    job = submit(finish)
    job.wait()
    assert job.status is JobStatus.COMPLETED
    assert job.error is None
    assert (job.name, job.id, job.guarantee) == ("job", "id", Guarantee.NONE)
    assert repr(job) == "<Job 'job' completed, none>"
    assert job.metrics["rows_read"] == 1234
    assert job.metrics["total_rows"] == 5000


def test_wait_raises_what_the_job_failed_with_every_time() -> None:
    job = submit(fail)
    for _ in range(2):
        with pytest.raises(JobFailedError, match="step 'x': boom"):
            job.wait()
    assert job.status is JobStatus.FAILED


def test_wait_with_a_timeout_leaves_the_job_running() -> None:
    job = submit(run_on)
    with pytest.raises(TimeoutError, match="still running"):
        job.wait(timeout=0.01)
    assert job.status is JobStatus.RUNNING
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()
    job.cancel()  # no matter


def test_leaving_the_block_cancels_a_job_that_still_runs() -> None:
    with submit(run_on) as job:
        assert job.status is JobStatus.RUNNING
    assert job.status is JobStatus.FAILED
    assert isinstance(job.error, JobCancelledError)


def test_collected_rows_come_as_a_table_of_the_sinks_schema() -> None:
    job = submit(finish)
    assert job.to_arrow() == pa.table({"x": [1, 2]}, schema=SCHEMA)
    assert job.collected() == job.collected("result") == job.to_arrow()
    assert job.to_polars()["x"].to_list() == [1, 2]
    assert job.to_pandas()["x"].tolist() == [1, 2]


def test_a_collect_sink_that_got_no_rows_gives_an_empty_table() -> None:
    job = submit(finish, graph("other"))
    assert job.collected() == SCHEMA.empty_table()


def test_asking_for_a_collect_sink_that_is_not_there_names_those_that_are() -> None:
    job = submit(finish, graph("a", "b", files=True))
    with pytest.raises(JobDefinitionError, match="2 collect sinks \\('a', 'b'\\); say which one"):
        job.collected()
    with pytest.raises(JobDefinitionError, match="no collect sink 'files'; it has 'a', 'b'"):
        job.collected("files")
    with pytest.raises(JobDefinitionError, match="0 collect sinks"):
        submit(finish, graph(files=True)).collected()


def test_the_end_is_logged_with_rows_in_and_out_late_rejected_and_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    job = submit(finish, progress=True)
    job.wait()
    job.wait()
    ends = [r.message for r in caplog.records if "completed" in r.message]
    assert len(ends) == 1
    assert ends[0].startswith("job job completed: 1,234 rows in, 2 out, 3 late, 0 partly late, 1 rejected, ")


def test_progress_false_logs_nothing_and_gathers_no_figures(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    monkeypatch.delattr(Job, "metrics")
    submit(finish, progress=False).wait()
    assert not caplog.records


def test_html_shows_status_figures_and_steps_escaped() -> None:
    dag = graph("result")
    dag.add_vertex(Vertex("<b>", Supplier()))
    job = submit(fail, dag)
    with pytest.raises(JobFailedError):
        job.wait()
    text = job._repr_html_()
    for part in ("failed", "step &#x27;x&#x27;: boom", "&lt;b&gt;", "source"):
        assert part in text
