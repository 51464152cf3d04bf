"""Freezing 10 M open sessions leaves Python's lock to other threads, such as the one that renews a lease."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import jetfast as jf

SESSIONS = 10_000_000
ROWS = 1 << 17
HELD_S_MAX = 1.0
"""A fifth of a lease."""
HELD_SHARE_MAX = 0.25
"""Of the whole export, where a machine is so slow that seconds say nothing."""


class Beats:
    """A thread that asks for Python's lock, again and again, and keeps the longest time that it waited."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        last = time.perf_counter()
        while not self.stopped.wait(0.001):
            now = time.perf_counter()
            self.waited_s = max(self.waited_s, now - last)
            last = now

    def __enter__(self) -> "Beats":
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        self.thread.join()


def rows(start: int) -> pa.RecordBatch:
    count = min(ROWS, SESSIONS - start)
    return pa.record_batch(
        {
            "key": np.arange(start, start + count) * 7919,
            "time": pa.array(np.full(count, 1_700_000_000_000_000), pa.timestamp("us")),
            "text": pa.DictionaryArray.from_arrays(np.arange(count, dtype=np.int32) % 3, ["a", "b", "c"]),
        }
    )


@pytest.mark.simulation
@pytest.mark.parametrize(
    "aggregates", [{"n": jf.count()}, {"n": jf.count(), "texts": jf.count_distinct("text")}], ids=["kernel", "batch"]
)
def test_no_thread_waits_long_for_pythons_lock_while_sessions_are_frozen_and_stored(tmp_path, aggregates):
    p = jf.Pipeline("large state")
    source = jf.memory([rows(start) for start in range(0, SESSIONS, ROWS)], unbounded=True)
    stage = p.read(source, name="rows").with_event_time("time", jf.watermarks.fixed_lag("1s"))
    stage.group_by("key").window(jf.session("60s")).agg(**aggregates, name="sessions").write(jf.collect())
    job = jf.LocalCluster(workers=2).submit(
        p, snapshot_store=jf.snapshots.directory(tmp_path), snapshot_interval="1h", progress=False
    )
    arrived = threading.Event()
    while job.metrics["vertices"].get("sessions", {}).get("rows_in", 0) < SESSIONS:
        arrived.wait(0.05)
    with Beats() as beats:
        start = time.perf_counter()
        job.export_snapshot("large")
        took_s = time.perf_counter() - start
    [snapshot] = job.metrics["snapshots"]
    job.cancel()
    assert snapshot["bytes"] > SESSIONS * 16
    assert beats.waited_s < max(HELD_S_MAX, took_s * HELD_SHARE_MAX)
