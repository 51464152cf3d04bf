"""Whole pipelines through the public API."""

import jetfast as jf

from .batches import make_events
from .pipelines import CountingSink, sliding_pipeline


class SlidingPipeline:
    """4 M rows in memory, sliding 10 s by 100 ms, a sink that counts."""

    params = [[100, 10_000], [1, 2]]
    param_names = ["keys", "workers"]
    timeout = 120

    def setup(self, keys: int, workers: int) -> None:
        self.batches = make_events(4_000_000, keys).record_batches()

    def time_pipeline(self, keys: int, workers: int) -> None:
        job = jf.LocalCluster(workers=workers).submit(sliding_pipeline(self.batches, CountingSink()), progress=False)
        job.wait()

    def track_python_share(self, keys: int, workers: int) -> float:
        """Thread CPU around the kernels over thread CPU; NaN if the job was too short for a sample."""
        job = jf.LocalCluster(workers=workers).submit(sliding_pipeline(self.batches, CountingSink()), progress=False)
        job.wait()
        share = job.metrics["python_share"]
        return float("nan") if share is None else float(share)

    track_python_share.unit = "share"

    def peakmem_pipeline(self, keys: int, workers: int) -> None:
        self.time_pipeline(keys, workers)


class EmptyPipeline:
    """What a job costs that has nothing to do: submission, threads, end."""

    def setup(self) -> None:
        self.batches = make_events(1, 1).record_batches()

    def time_job(self) -> None:
        jf.LocalCluster(workers=2).submit(sliding_pipeline(self.batches, CountingSink()), progress=False).wait()
