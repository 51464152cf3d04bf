"""What a running pipeline must not do batch by batch, and what it tells of where its time goes."""

import numpy as np
import pyarrow as pa

import jetfast as jf
from jetfast.core.batch import Batch
from jetfast.kernels.columns import arena_statistics

BATCHES = 600
ROWS = 1024
SCHEMA = pa.schema([("key", pa.int64()), ("time", pa.timestamp("us")), ("value", pa.float64())])


class WatchingSink:
    """Drops rows, and notes what the pool had allocated when they came."""

    name = "watching"
    cooperative = True
    parallelism_one = True
    target = None

    def __init__(self):
        self.allocations = []

    def check(self, schema):
        pass

    def check_target(self):
        pass

    def open_writer(self, schema, context):
        return self

    def write(self, batch: Batch):
        self.allocations.append(arena_statistics()["allocations"])

    def finish(self):
        pass

    def abort(self):
        pass


def events():
    """BATCHES batches of ROWS rows, a row each 10 microseconds, in random order inside of a batch."""
    random = np.random.default_rng(5)
    batches = []
    for index in range(BATCHES):
        times = (index * ROWS + random.permutation(ROWS)) * 10
        columns = [random.integers(0, 300, ROWS), pa.array(times).cast(pa.timestamp("us")), random.random(ROWS)]
        batches.append(pa.record_batch(columns, schema=SCHEMA))
    return batches


def test_a_pipeline_that_has_warmed_up_takes_no_memory_from_the_system():
    sink = WatchingSink()
    pipeline = jf.Pipeline("steady")
    (
        pipeline.read(jf.memory(events()), name="events")
        .with_event_time("time", jf.watermarks.fixed_lag("11ms"))
        .where(jf.col("value") < 0.9)
        .group_by("key")
        .window(jf.sliding("50ms", "5ms"))
        .agg(rows=jf.count(), mean=jf.mean("value"), least=jf.min("value"), name="windows")
        .write(sink)
    )
    job = jf.LocalCluster(workers=1).submit(pipeline, progress=False)
    job.wait()
    # A window is full after 10 slides, and the last 10 come when the input has ended. More workers take more blocks: as
    # many as wait in their queues at one time, which is bounded, but not the same each time.
    running = sink.allocations[len(sink.allocations) // 2 : -12]
    assert len(running) > 40
    assert running[0] == running[-1]
    assert job.metrics["arena_allocations"] >= running[-1]


def test_a_job_tells_how_much_of_its_time_is_spent_in_python():
    pipeline = jf.Pipeline("share")
    (
        pipeline.read(jf.memory(events()), name="events")
        .with_event_time("time", jf.watermarks.fixed_lag("11ms"))
        .group_by("key")
        .window(jf.sliding("50ms", "5ms"))
        .agg(rows=jf.count(), name="windows")
        .write(WatchingSink())
    )
    job = jf.LocalCluster(workers=1).submit(pipeline, progress=False)
    job.wait()
    metrics = job.metrics
    assert 0 < metrics["sampled_kernel_ns"] < metrics["sampled_cpu_ns"]
    assert metrics["python_share"] == 1 - metrics["sampled_kernel_ns"] / metrics["sampled_cpu_ns"]
