"""Snapshots of 1M keys through the public API: how long one takes, the flow stops, and a restore takes."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import jetfast as jf

from .batches import BATCH_ROWS, SCHEMA
from .pipelines import CountingSink, sliding_pipeline

KEYS = 1_000_000
PATIENCE_S = 60.0


class SnapshotOfManyKeys:
    """1M keys with one state each, 48 MB in all; then nothing comes any more, and snapshots are taken."""

    params = ["memory", "directory"]
    param_names = ["store"]
    timeout = 300

    def setup(self, store: str) -> None:
        times = pa.array(np.full(KEYS, 1_000_000)).cast(pa.timestamp("us"))
        rows = pa.table([np.arange(KEYS), times, np.ones(KEYS)], schema=SCHEMA)
        self.batches = rows.to_batches(max_chunksize=BATCH_ROWS)
        self.cluster = jf.LocalCluster(workers=1)
        self.folder = tempfile.mkdtemp(prefix="jetfast-snapshots-")
        self.store = jf.snapshots.memory() if store == "memory" else jf.snapshots.directory(self.folder)

    def teardown(self, store: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def job(self, fresh: bool = True) -> Iterator[jf.Job]:
        """A job without end; cancelled when all is measured. `fresh` False: all its rows are restored."""
        rows = jf.memory(self.batches if fresh else [], schema=SCHEMA, unbounded=True)
        pipeline = sliding_pipeline(rows, CountingSink(), window=jf.tumbling("1h"))
        options = {"snapshot_store": self.store, "snapshot_interval": "50ms", "fresh": fresh}
        job = self.cluster.submit(pipeline, progress=False, **options)
        try:
            yield job
        finally:
            job.cancel()
            with contextlib.suppress(jf.errors.JobCancelledError):
                job.wait(PATIENCE_S)

    def full_snapshots(self, job: jf.Job, count: int) -> list[dict[str, float]]:
        """Wait for snapshots that hold all keys."""
        started = time.perf_counter()
        while True:
            found = [each for each in job.metrics["snapshots"] if each["bytes"] > 40 * KEYS]
            if len(found) >= count:
                return found
            if job.runner.wait(0.005) or time.perf_counter() - started > PATIENCE_S:
                raise TimeoutError(f"{len(found)} snapshots of all keys: {job.status}, {job.error}")

    def track_snapshot_seconds(self, store: str) -> float:
        """From the first barrier to the end of phase 2, the best of five."""
        with self.job() as job:
            return min(each["seconds"] for each in self.full_snapshots(job, 5))

    track_snapshot_seconds.unit = "s"

    def track_pause_ms(self, store: str) -> float:
        """How long the window stands still, the best of five."""
        with self.job() as job:
            return min(each["pause_us"] for each in self.full_snapshots(job, 5)) / 1e3

    track_pause_ms.unit = "ms"

    def track_restore_seconds(self, store: str) -> float:
        """From the submission of a job that goes on to the end of its first snapshot of all keys, the best of three."""
        with self.job() as job:
            self.full_snapshots(job, 1)
        seconds = []
        for _ in range(3):
            with self.job(fresh=False) as job:
                first = self.full_snapshots(job, 1)[0]
            seconds.append(first["started_s"] + first["seconds"])
        return min(seconds)

    track_restore_seconds.unit = "s"
