"""`job.explain_watermark()`: which partition and input hold event time back, since when, what it waits for."""

from contextlib import suppress
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast.control import messages
from jetfast.control.job import Job
from jetfast.control.watermark_explanation import WatermarkExplanation, explain_watermark
from jetfast.testing import VirtualClock, scripted, silence

SCHEMA = pa.schema([("time", pa.timestamp("us")), ("key", pa.string())])
SECOND = 1_000_000


def rows(key: str, *seconds: int) -> pa.Table:
    return pa.table({"time": [second * SECOND for second in seconds], "key": [key] * len(seconds)}, schema=SCHEMA)


def counting(source: Any, clock: Any = None, idle_timeout: str = "60s") -> Job:
    pipeline = jf.Pipeline("meters")
    (
        pipeline.read(source, name="rows")
        .with_event_time("time", jf.watermarks.fixed_lag("10s"), idle_timeout=idle_timeout)
        .group_by("key")
        .window(jf.tumbling("10s"))
        .agg(n=jf.count(), name="counts")
        .collect()
    )
    return jf.LocalCluster(workers=1, clock=clock or VirtualClock()).submit(pipeline, progress=False)


def explained_when(job: Job, rows_read: int) -> WatermarkExplanation:
    """The explanation once so many rows have been read, their watermark has come to all steps, and members said so."""
    while True:
        explanation = job.explain_watermark()
        reached = [step.watermark_us is not None for step in explanation.steps]
        if job.metrics["rows_read"] >= rows_read and reached and all(reached):
            return explanation
        with suppress(TimeoutError):
            job.wait(timeout=0.01)


def test_the_partition_that_is_furthest_behind_holds_the_watermark_back() -> None:
    source = jf.memory(partitions={"slow": [rows("slow", 0, 5)], "fast": [rows("fast", 65)]}, unbounded=True)
    with counting(source) as job:
        explanation = explained_when(job, 3)
    holder = explanation.held_back_by
    assert holder is not None
    assert (holder.source, holder.partition, holder.member, holder.processor) == ("rows", "slow", 0, 0)
    assert holder.watermark_us == -5 * SECOND
    assert holder.behind_us == 60 * SECOND
    assert holder.since_us == holder.rows_us == VirtualClock()()
    assert "waits for a row later than 1970-01-01 00:00:05" in holder.waits_for
    assert explanation.watermark_us == -10 * SECOND  # the boundary of the frame that holds -5 s
    assert explanation.late == ()
    text = str(explanation)
    assert "held back by source partition 'slow' (member 0, processor 0)" in text
    sent = messages.Metrics(execution_id=1, member=0, values=dict(job.runner.members[0].metrics))
    assert messages.decode_from_member(messages.encode(sent)) == sent  # members of other processes can report it
    assert "the partition that is furthest ahead is 1m ahead" in text
    assert "step 'counts': at 1969-12-31 23:59:50" in text
    assert "held back by its input from 'rows-0'" in text
    assert text in explanation._repr_html_().replace("&#x27;", "'").replace("&quot;", '"')


def test_rows_that_became_late_because_all_partitions_were_idle_are_told() -> None:
    source = scripted(
        {
            "slow": [rows("slow", 0), silence("70s"), rows("slow", 5, 100)],
            "fast": [rows("fast", 65), silence("80s"), rows("fast", 100)],
        }
    )
    job = counting(source)
    job.wait()
    explanation = job.explain_watermark()
    (late,) = explanation.late
    assert late.partition == "slow"
    assert late.late is not None
    assert (late.late.rows, late.late.rows_by_all_idle, late.late.most_us) == (1, 1, 50 * SECOND)
    assert late.late.first_us == VirtualClock().advance("70s")
    leap = explanation.sources[0].leap
    assert leap is not None
    assert leap.at_us == VirtualClock().advance("60s")
    assert (leap.from_us, leap.to_us, leap.all_idle) == (-10 * SECOND, 55 * SECOND, True)
    (step,) = (step for step in explanation.steps if step.step == "counts")
    assert step.late_rows == 1
    text = str(explanation)
    leaped = "the watermark went from 1969-12-31 23:59:50 to 1970-01-01 00:00:55: all partitions were idle"
    assert f"at 2024-01-01 00:01:00 of wall time {leaped}" in text
    late_text = "1 row came behind the watermark, up to 50s, 1 of them because all were idle"
    assert f"source partition 'slow': {late_text}; the first at 2024-01-01 00:01:10 of wall time" in text


def test_no_row_of_a_partition_that_is_behind_by_more_than_the_lag_is_lost() -> None:
    source = scripted(
        {
            "slow": [piece for second in range(0, 60, 10) for piece in (rows("slow", second), silence("10s"))],
            "fast": [piece for second in range(60, 120, 10) for piece in (rows("fast", second), silence("10s"))],
        }
    )
    job = counting(source)
    job.wait()
    assert job.metrics["late_rows"] == job.metrics["partly_late_rows"] == 0
    assert sum(job.to_arrow()["n"].to_pylist()) == 12


def partition_report(**other: Any) -> dict[str, Any]:
    usual = {
        "partition": "p",
        "watermark_us": 5,
        "raised_us": 100,
        "rows_us": 100,
        "idle": False,
        "finished": False,
        "opened": True,
        "needs_us": None,
        "silent_us": 0,
        "idle_in_us": None,
        "overtaken": None,
    }
    return usual | other


def source_report(*partitions: dict[str, Any], **other: Any) -> dict[str, Any]:
    usual = {
        "vertex": "rows",
        "processor": 0,
        "blocked": False,
        "finished": False,
        "idle": False,
        "watermark_us": 5,
        "policy": 'fixed_lag("1s")',
        "partition_count": len(partitions),
        "unfinished": len(partitions),
        "leap": None,
        "partitions": list(partitions),
    }
    return usual | other


def step_report(**other: Any) -> dict[str, Any]:
    usual = {
        "vertex": "counts",
        "processor": 0,
        "finished": False,
        "watermark_us": 5,
        "idle": False,
        "since_us": 100,
        "input": "rows-0",
        "input_watermark_us": 5,
        "leap": None,
    }
    return usual | other


def explain(*members: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> WatermarkExplanation:
    reports = [
        (number, {"event_time": {"now_us": 3_000_100, "sources": sources, "steps": steps}})
        for number, (sources, steps) in enumerate(members)
    ]
    return explain_watermark("job", reports, {"counts": ["rows"]})


def test_a_job_without_reports_says_so() -> None:
    explanation = explain_watermark("job", [(0, {})], {})
    assert str(explanation) == "job 'job': no source with event time has reported yet"
    assert (explanation.watermark_us, explanation.held_back_by) == (None, None)


def test_the_lowest_partition_of_all_members_is_named() -> None:
    low = source_report(partition_report(partition="low", watermark_us=3), watermark_us=3, processor=1)
    explanation = explain(([source_report(partition_report())], []), ([low], []))
    holder = explanation.held_back_by
    assert holder is not None
    assert (holder.partition, holder.member, holder.processor, holder.behind_us) == ("low", 1, 1, 2)
    assert explanation.watermark_us == 3
    assert explanation.sources[0].partition_count == 2


def test_a_partition_without_any_row_holds_back_most() -> None:
    silent = partition_report(partition="silent", watermark_us=None, rows_us=None, silent_us=1, idle_in_us=59 * SECOND)
    explanation = explain(([source_report(silent, partition_report(), watermark_us=None)], []))
    holder = explanation.held_back_by
    assert holder is not None
    assert (holder.partition, holder.state, explanation.watermark_us) == ("silent", "silent", None)
    text = str(explanation)
    assert "job 'job': event time has not begun" in text
    assert "source partition 'silent' (member 0, processor 0), which is without a watermark yet since 1970" in text
    assert holder.waits_for == (
        "no row has come yet; it waits for a row, or until it has been silent for another 59s and counts as idle"
    )


def test_what_a_partition_waits_for_is_told() -> None:
    def waits_for(source: dict[str, Any]) -> tuple[str, str]:
        (partition,) = explain(([source], [])).sources[0].partitions
        return partition.state, partition.waits_for

    assert waits_for(source_report(partition_report(), blocked=True)) == (
        "blocked",
        "it waits for room downstream: a later step is slower than the source",
    )
    assert waits_for(source_report(partition_report(opened=False)))[0] == "unread"
    assert waits_for(source_report(partition_report(finished=True)))[0] == "finished"
    assert waits_for(source_report(partition_report(idle=True)))[0] == "idle"
    assert waits_for(source_report(partition_report(needs_us=7))) == (
        "reading",
        "its last rows came 3s ago; it waits for a row later than 1970-01-01 00:00:00.000007, however long that takes: "
        "it is never idle",
    )


def test_idle_and_finished_sources_hold_nothing_back() -> None:
    idle = source_report(partition_report(idle=True), idle=True)
    explanation = explain(([idle, source_report(partition_report(), vertex="other", watermark_us=9)], []))
    assert explanation.watermark_us == 9
    assert "all its source partitions are idle or finished: nobody waits for it" in str(explanation)


def test_a_step_tells_the_input_that_holds_it_and_what_went_on_without_waiting() -> None:
    leap = {"at_us": 50, "from_us": 1, "to_us": 5 * SECOND, "all_idle": True}
    ahead, behind = step_report(watermark_us=9, processor=1), step_report(leap=leap, input="rows-1")
    lagging = partition_report(partition="lagging", watermark_us=4)
    explanation = explain(([source_report(lagging)], [ahead]), ([], [behind]))
    (step,) = explanation.steps
    assert (step.member, step.processor, step.input, step.watermark_us) == (1, 0, "rows-1", 5)
    assert step.lagging_partitions == ("lagging",)
    text = str(explanation)
    assert "all inputs were idle" in text
    assert "rows of 'lagging' before 1970-01-01 00:00:05 are late since then" in text


def test_steps_that_go_by_the_wall_clock_are_told_without_a_source() -> None:
    pipeline = jf.Pipeline("load")
    source = jf.memory(rows("a", 1), unbounded=True)
    stage = pipeline.read(source, name="rows").with_processing_time("seen")
    stage.window(jf.tumbling("10s")).agg(n=jf.count(), name="counts").collect()
    with jf.LocalCluster(workers=1, clock=VirtualClock()).submit(pipeline, progress=False) as job:
        while not job.explain_watermark().steps:
            with suppress(TimeoutError):
                job.wait(timeout=0.01)
        explanation = job.explain_watermark()
    assert explanation.sources == ()
    assert str(explanation).startswith(
        "job 'load': event time is the wall clock\nstep 'counts': at 2024-01-01 00:00:00"
    )
    assert "held back by its input from 'with_processing_time(seen)-0'" in str(explanation)
