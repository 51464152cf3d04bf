"""Jobs that go on as changed pipelines: windows, steps and parallelism are others, each row still counts once."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

import jetfast as jf
from jetfast.control.job_events import CancelAndExportAsked, SuspendAsked
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.errors import JobDefinitionError, JobFailedError
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import ROWS, rows
from tests.simulation.stepped_job import SteppedJob

BEFORE = jf.tumbling("50us")
LISTED = {"rows": jf.count(), "each": jf.collect_list("row")}


def windows_to(outside: TransactionalMemory, window: Any, aggregates: Mapping[str, Any] = LISTED) -> jf.Pipeline:
    pipeline = jf.Pipeline("windows")
    timed = pipeline.read(jf.memory(partitions=rows()), name="rows").with_event_time(
        "time", jf.watermarks.fixed_lag("1us")
    )
    timed.group_by("key").window(window).agg(**aggregates, name="windows").write(outside.sink(), name="outside")
    return pipeline


def stepped(pipeline: jf.Pipeline, store: SnapshotStore, **options: Any) -> SteppedJob:
    return SteppedJob(pipeline, seed=1, store=store, interval="30ms", **options)


def halfway(outside: TransactionalMemory, store: SnapshotStore, members: int = 1) -> int:
    """Run the job before the upgrade, until about its middle; return the windows it wrote."""
    job = stepped(windows_to(outside, BEFORE), store, members=members)
    job.run(lambda: len(outside.rows()) > 0)
    job.do(partial(CancelAndExportAsked, name="before"))
    job.run()
    assert outside.in_doubt() == []
    written = len(outside.rows())
    assert 0 < sum(row["rows"] for row in outside.rows()) < ROWS
    return written


def upgraded(pipeline: jf.Pipeline, store: SnapshotStore, **options: Any) -> SteppedJob:
    job = stepped(pipeline, store, initial_snapshot="before", **options)
    job.run()
    return job


def rows_in(outside: TransactionalMemory) -> list[int]:
    return sorted(row for window in outside.rows() for row in window["each"])


@pytest.mark.parametrize(
    ("before", "after", "window"),
    [
        (1, 2, jf.tumbling("100us")),
        (2, 1, jf.tumbling("25us")),
        *(
            pytest.param(before, after, window, marks=pytest.mark.simulation)
            for before, after in ((1, 2), (2, 1), (2, 2))
            for window in (BEFORE, jf.tumbling("75us"), jf.tumbling("10us"))
        ),
    ],
)
def test_windows_of_another_size_and_on_other_members_hold_each_row_once(before: int, after: int, window: Any) -> None:
    outside, store = TransactionalMemory.named(), MemorySnapshotStore()
    halfway(outside, store, before)
    job = upgraded(windows_to(outside, window), store, members=after, workers=2)
    assert job.runner.error is None
    assert rows_in(outside) == list(range(ROWS))
    assert outside.in_doubt() == []


@pytest.mark.parametrize(
    ("window", "aggregates", "why"),
    [
        (jf.session("5us"), LISTED, "this step saves sessions and bounds, not 'windows'"),
        (BEFORE, {"rows": jf.count()}, "must have the columns key, frame, rows, got key, frame, rows, each.state"),
        (BEFORE, {**LISTED, "sum": jf.sum("row")}, "is the pipeline another one?"),
    ],
    ids=["kind of window", "aggregate dropped", "aggregate added"],
)
def test_state_that_does_not_fit_is_refused_by_its_step_and_a_mended_pipeline_starts_from_it(
    window: Any, aggregates: Mapping[str, Any], why: str
) -> None:
    outside, store = TransactionalMemory.named(), MemorySnapshotStore()
    written = halfway(outside, store)
    job = upgraded(windows_to(outside, window, aggregates), store)
    assert isinstance(job.runner.error, JobFailedError)
    assert "step 'windows' failed when its state was restored" in str(job.runner.error)
    assert why in str(job.runner.error)
    assert len(outside.rows()) == written
    mended = stepped(windows_to(outside, BEFORE), store)  # the job of that name: it has kept its snapshot
    mended.run()
    assert mended.runner.error is None
    assert rows_in(outside) == list(range(ROWS))


def test_added_steps_start_empty_and_dropped_ones_are_named_while_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outside, added, store = TransactionalMemory.named(), TransactionalMemory.named(), MemorySnapshotStore()
    halfway(outside, store)
    more = windows_to(outside, BEFORE)
    more.read(jf.memory(partitions=rows()), name="others").write(added.sink(), name="added")
    with caplog.at_level("INFO", "jetfast"):
        job = upgraded(more, store)
    assert "steps that its snapshot does not know start empty: 'added', 'others'" in caplog.text
    assert job.runner.error is None
    assert rows_in(outside) == list(range(ROWS))
    assert sorted(row["row"] for row in added.rows()) == list(range(ROWS)), "an added source begins at its beginning"

    fewer = jf.Pipeline("fewer")
    rest = TransactionalMemory.named()
    fewer.read(jf.memory(partitions=rows()), name="rows").write(rest.sink(), name="rest")
    with caplog.at_level("WARNING", "jetfast"):
        job = upgraded(fewer, store)
    assert "its snapshot holds state of steps that it has no more: 'outside', 'windows'" in caplog.text
    assert job.runner.error is None
    assert 0 < len(rest.rows()) < ROWS, "the source goes on where it was"


def copying(*sinks: TransactionalMemory) -> jf.Pipeline:
    pipeline = jf.Pipeline("copying")
    read = pipeline.read(jf.memory(partitions=rows()), name="rows")
    for sink in sinks:
        read.write(sink.sink(), name=sink.name)
    return pipeline


def test_a_sink_is_dropped_only_when_its_transactions_are_settled() -> None:
    dropped, kept = (TransactionalMemory.named(name=name) for name in ("dropped", "kept"))
    store = MemorySnapshotStore()
    decided = stepped(copying(dropped, kept), store)
    decided.run(lambda: (found := store.read_record("copying")) is not None and found.record.snapshot is not None)
    assert dropped.in_doubt() != [], "the coordinator is gone between decision and phase 2, and all members with it"
    with pytest.raises(JobDefinitionError, match="cannot go on without 'dropped'"):
        stepped(copying(kept), store)
    mended = stepped(copying(dropped, kept), store)
    mended.run(lambda: mended.runner.status is jf.JobStatus.RUNNING)
    mended.do(SuspendAsked)
    assert dropped.in_doubt() == kept.in_doubt() == []
    written = len(dropped.rows())
    assert 0 < written < ROWS
    changed = stepped(copying(kept), store)
    changed.run()
    assert changed.runner.error is None
    assert sorted(row["row"] for row in kept.rows()) == list(range(ROWS))
    assert len(dropped.rows()) == written
