"""Windows by the wall clock in whole jobs, by a virtual one."""

import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast import col
from jetfast.errors import JobDefinitionError
from jetfast.testing import VirtualClock, scripted, silence

SECOND_US = 1_000_000


def rows(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def timed(pipeline: jf.Pipeline, source: Any) -> Any:
    return pipeline.read(source, name="rows").where(col("n") > 0).with_processing_time("seen")


def ends(table: pa.Table) -> list[float]:
    return [end / SECOND_US for end in table["window_end"].cast(pa.int64()).to_pylist()]


@pytest.mark.parametrize(("members", "workers"), [(1, 1), (1, 3), (2, 1)])
@pytest.mark.parametrize("two_stage", [False, True])
def test_rows_count_in_the_window_of_the_time_at_which_they_come(members: int, workers: int, two_stage: bool) -> None:
    source = scripted([rows(1, 2), silence("25s"), rows(3), rows(-1), silence("1s"), rows(4)])
    pipeline = jf.Pipeline("seen")
    tens = timed(pipeline, source).group_by((col("n") % 2).alias("odd")).window(jf.tumbling("10s"))
    result = tens.agg(rows=jf.count(), total=jf.sum("n"), name="tens")
    result.collect()
    result.window(jf.tumbling("1h")).agg(windows=jf.count(), total=jf.sum("total"), name="an hour").collect("hours")
    cluster = jf.LocalCluster(members=members, workers=workers, clock=VirtualClock("1970-01-01T00:00:00"))
    job = cluster.submit(pipeline, progress=False, two_stage=two_stage)
    job.wait(timeout=60)
    table = job.collected("result")
    assert sum(table["total"].to_pylist()) == 10
    assert max(ends(table)) >= 30
    if members * workers == 1:  # others may look at the clock later
        assert (min(ends(table)), len(table)) == (10, 4)
    assert job.collected("hours").to_pylist()[0]["total"] == 10
    assert job.metrics["late_rows"] == 0


@pytest.mark.parametrize("window", [jf.tumbling("10s"), jf.sliding("10s", "5s"), jf.session("10s")], ids=str)
def test_a_window_closes_when_the_clock_passes_its_end_though_no_row_comes(window: Any) -> None:
    clock = VirtualClock("1970-01-01T00:00:00")
    pipeline = jf.Pipeline("seen")
    stamped: list[int] = []
    closed: list[int] = []

    def note(column: str, noted: list[int]) -> Any:
        def noting(batch: pa.RecordBatch) -> pa.RecordBatch:
            noted.extend(batch[column].to_pylist())
            return batch

        return noting

    rows_of_ever = timed(pipeline, jf.memory(rows(1, 2), unbounded=True))
    rows_of_ever = rows_of_ever.map_batches(note("n", stamped), schema=rows_of_ever.schema)
    result = rows_of_ever.window(window).agg(total=jf.sum("n"), name="all")
    result.map_batches(note("total", closed), schema=result.schema).collect()
    with jf.LocalCluster(workers=1, clock=clock).submit(pipeline, progress=False):
        wait_for(lambda: stamped)
        assert closed == []
        clock.advance("11s")  # the source stays silent for ever
        wait_for(lambda: closed)
        assert set(closed) == {3}


def wait_for(what: Any) -> None:
    """Wait for what a worker does."""
    give_up = time.monotonic() + 60
    while not what():
        assert time.monotonic() < give_up
        threading.Event().wait(0.002)


def test_only_one_step_on_a_path_makes_watermarks() -> None:
    pipeline = jf.Pipeline("twice")
    source = jf.memory({"t": pa.array([1], pa.timestamp("us")), "n": [1]})
    stage = pipeline.read(source, name="rows").with_event_time("t")
    with pytest.raises(JobDefinitionError, match="only one step on a path makes watermarks, and 'rows' makes them"):
        stage.drop("t").with_processing_time()
    once = timed(jf.Pipeline(), jf.memory(rows(1)))
    with pytest.raises(JobDefinitionError, match=r"'with_processing_time\(seen\)' makes them"):
        once.with_processing_time("again")


def test_the_column_of_the_processing_time_must_be_new() -> None:
    with pytest.raises(JobDefinitionError, match="there is a column 'n' already"):
        jf.Pipeline().read(jf.memory(rows(1))).with_processing_time("n")
    with pytest.raises(JobDefinitionError, match="a column is named by text, got 1"):
        jf.Pipeline().read(jf.memory(rows(1))).with_processing_time(1)  # type: ignore[arg-type]


def test_watermarks_of_processing_time_go_by_the_frames_of_the_windows_behind_it() -> None:
    pipeline = jf.Pipeline("frames")
    stage = timed(pipeline, jf.memory({"n": [1], "unused": ["x"]}))
    stage.window(jf.sliding("1m", "20s")).agg(total=jf.sum("n"), name="all").collect()
    dag = pipeline.plan()
    supplier: Any = dag.vertices["with_processing_time(seen)"].supplier
    assert supplier().throttle.frame == jf.tumbling("20s")
    assert dag.inbound("all")[0].schema.names == ["n", "seen"]
