"""Early results in whole jobs, in a plan, and in what they refuse."""

from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.errors import DurationError
from jetfast.testing import VirtualClock, scripted, silence

SCHEMA = pa.schema([("time", pa.timestamp("us")), ("key", pa.string())])


def rows(key: str, *seconds: int) -> pa.Table:
    return pa.table({"time": [second * 1_000_000 for second in seconds], "key": [key] * len(seconds)}, schema=SCHEMA)


def counted(pipeline: jf.Pipeline, source: Any, window: Any, every: str = "1s") -> Any:
    stage = pipeline.read(source, name="rows").with_event_time("time", jf.watermarks.fixed_lag("10s"))
    return stage.group_by("key").window(window).early_results(every=every).agg(n=jf.count(), name="counts")


@pytest.mark.parametrize("window", [jf.tumbling("1h"), jf.session("10m")], ids=str)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_silent_source_still_gives_early_results_and_the_final_ones_in_the_end(window: Any, workers: int) -> None:
    script = [rows("a", 1, 2), silence("5s"), rows("a", 3), silence("5s"), rows("b", 4)]
    source = scripted({"p": script}, schema=SCHEMA)
    pipeline = jf.Pipeline("early")
    counted(pipeline, source, window).collect()
    job = jf.LocalCluster(workers=workers, clock=VirtualClock()).submit(pipeline, progress=False)
    job.wait()
    found = [(row["key"], row["n"], row["is_early"]) for row in job.collected("result").to_pylist()]
    assert sorted(row for row in found if not row[2]) == [("a", 3, False), ("b", 1, False)]
    assert {row for row in found if row[2]} <= {("a", 2, True), ("a", 3, True), ("b", 1, True)}
    # Batches leave a source as they come, so a period of the first silence has passed when the window looks.
    assert ("a", 2, True) in found or ("a", 3, True) in found


def test_early_results_take_one_stage() -> None:
    pipeline = jf.Pipeline("early")
    result = counted(pipeline, jf.memory(schema=SCHEMA), jf.tumbling("1h"))
    result.collect()
    assert result.schema.names == ["key", "window_start", "window_end", "n", "is_early"]
    assert "counts (accumulate)" not in pipeline.plan(member_count=2, two_stage=True).vertices
    assert "early results every 1s" in pipeline.explain(member_count=2)


@pytest.mark.parametrize("every", ["0s", "-1s"])
def test_the_period_of_early_results_must_be_positive(every: str) -> None:
    with pytest.raises(DurationError, match="every"):
        counted(jf.Pipeline("early"), jf.memory(schema=SCHEMA), jf.tumbling("1h"), every)
