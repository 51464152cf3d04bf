"""A job dies between decision and phase 2, and goes on as a changed pipeline: that commits what the snapshot names.

Nothing was suspended or exported before: the transactions of the old pipeline are prepared, and no one of it is left to
commit them.
"""

from collections.abc import Callable
from typing import Any

import pytest

import jetfast as jf
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import SnapshotArea
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import ROWS, rows
from tests.clusters.test_upgrades import BEFORE, rows_in, stepped, windows_to


def crash(outside: TransactionalMemory, store: MemorySnapshotStore, members: int) -> None:
    """Let the whole cluster die when a snapshot that names transactions has just been decided, about halfway."""
    job = stepped(windows_to(outside, BEFORE), store, members=members)
    last = None

    def decided() -> bool:
        nonlocal last
        found = store.read_record("windows")
        before, last = last, None if found is None else found.record.snapshot
        return bool(outside.rows()) and last is not None and last != before and transactions_in(store, last) > 0

    job.run(decided)
    assert 0 < len(rows_in(outside)) < ROWS


def transactions_in(store: MemorySnapshotStore, area: SnapshotArea) -> int:
    return len(list(store.read_files("windows", area, "outside")))


def with_a_step_more(outside: TransactionalMemory) -> jf.Pipeline:
    pipeline = jf.Pipeline("windows")
    timed = pipeline.read(jf.memory(partitions=rows()), name="rows").with_event_time(
        "time", jf.watermarks.fixed_lag("1us")
    )
    windows = timed.group_by("key").window(BEFORE).agg(rows=jf.count(), each=jf.collect_list("row"), name="windows")
    windows.where(jf.col("rows") > 0, name="added").write(outside.sink(), name="outside")
    return pipeline


def with_a_sink_more(outside: TransactionalMemory) -> jf.Pipeline:
    pipeline = windows_to(outside, BEFORE)
    pipeline.read(jf.memory(partitions=rows()), name="others").write(TransactionalMemory.named().sink(), name="added")
    return pipeline


CHANGES: dict[str, Callable[[TransactionalMemory], jf.Pipeline]] = {
    "none": lambda outside: windows_to(outside, BEFORE),
    "another window": lambda outside: windows_to(outside, jf.tumbling("75us")),
    "a step more": with_a_step_more,
    "a sink more": with_a_sink_more,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [(TransactionalMemory.named, 2, {"members": 1}), (TransactionalMemory.staged, 1, {"members": 2, "workers": 2})],
    ids=["named, on fewer", "staged, on more"],
)
def test_a_changed_pipeline_commits_what_was_decided_before_it(
    change: str, kind: Callable[[], TransactionalMemory], before: int, after: dict[str, Any]
) -> None:
    outside, store = kind(), MemorySnapshotStore()
    crash(outside, store, before)
    assert outside.in_doubt() != []
    job = stepped(CHANGES[change](outside), store, **after)
    job.run()
    assert job.runner.error is None
    assert outside.in_doubt() == []
    assert rows_in(outside) == list(range(ROWS))
