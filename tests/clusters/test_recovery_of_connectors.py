"""Whole jobs between all kinds of outside systems, whose members die: on one thread, under a virtual clock."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.core.guarantee import Guarantee
from jetfast.core.source import Source
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.testing import AcknowledgingQueue, Faults, StoredRows, TransactionalMemory
from tests.clusters.test_recovery import run_and_kill
from tests.connectors.reading import read_all
from tests.simulation.stepped_job import SteppedJob, SteppedMember

ROWS = 300
SCHEMA = pa.schema([("row", pa.int64())])


def replayable(random: Random) -> Source:
    """Two partitions, a few rows at a time."""
    batches = [pa.table({"row": range(start, min(start + 3, ROWS))}) for start in range(0, ROWS, 3)]
    return jf.memory(partitions={"a": batches[::2], "b": batches[1::2]})


def confirming(random: Random) -> Any:
    queue = AcknowledgingQueue(SCHEMA, batch_rows=3, faults=Faults(random, {"redeliver": 0.1}))
    queue.publish({"row": row} for row in range(ROWS))
    return queue.source()


def unconfirming(random: Random) -> Source:
    queue = AcknowledgingQueue(SCHEMA, batch_rows=3, confirms=False, faults=Faults(random, {"lose": 0.3}))
    queue.publish({"row": row} for row in range(ROWS))
    return queue.source()


SOURCES: dict[str, Callable[[Random], Source]] = {
    "replayable": replayable,
    "acknowledging": confirming,
    "acknowledging, unconfirmed": unconfirming,
}
SINKS: dict[str, Callable[[Random], Any]] = {
    "named": lambda random: TransactionalMemory.named(faults=Faults(random, {"slow": 0.3})),
    "pool of two": lambda random: TransactionalMemory.pooled(2, faults=Faults(random, {"slow": 0.3})),
    "pool of three": lambda random: TransactionalMemory.pooled(3, overlaps=True),
    "staged": lambda random: TransactionalMemory.staged(overlaps=True),
    "idempotent": lambda random: StoredRows("row"),
}


def run_and_cut_off(job: SteppedJob) -> None:
    """Let the coordinator lose sight of members again and again, which live on for a while."""
    unheard: list[SteppedMember] = []
    for _ in range(3):
        for _ in range(job.random.randrange(60)):
            job.step()
        job.run(lambda: bool(job.members))
        if job.ended:
            break
        unheard.append(job.lose(job.random.choice(list(job.members))))
        for _ in range(job.random.randrange(60)):
            job.step()
            for member in unheard:
                member.works.step()
                member.step_tasklet(job.random.random)
    for member in unheard:
        member.kill()
    job.run()


def run(pipeline: jf.Pipeline, seed: int) -> SteppedJob:
    job = SteppedJob(pipeline, seed=seed, store=MemorySnapshotStore(), interval="30ms", members=1 + seed % 3, workers=2)
    if seed % 2:
        run_and_cut_off(job)
    else:
        run_and_kill(job, kills=3)
    assert job.runner.error is None
    assert job.job.guarantee is Guarantee.EXACTLY_ONCE
    return job


def read_rows(job: SteppedJob) -> bool:
    """Did the last execution read new rows, and not only complete what an earlier one had read?

    Without new rows it may end before a queue delivers again what earlier executions received and did not acknowledge:
    these messages stay in the queue, and their ids in the last snapshot. (A known gap, see docs/exactly_once.md.)
    """
    return bool(job.job.metrics["execution_rows_read"])


def check_each_row_once(source: str, sink: str, seed: int) -> None:
    random = Random(seed)
    outside = SINKS[sink](random)
    pipeline = jf.Pipeline("job")
    read = SOURCES[source](random)
    pipeline.read(read, name="in").write(outside.sink(), name="out")
    job = run(pipeline, seed)
    assert sorted(row["row"] for row in outside.rows()) == list(range(ROWS))
    if source == "acknowledging" and read_rows(job):
        assert read.system.unacknowledged == 0
    if isinstance(outside, TransactionalMemory):
        assert outside.in_doubt() == []


@pytest.mark.parametrize(
    ("source", "sink", "seed"),
    [
        ("acknowledging", "pool of three", 1),
        ("acknowledging", "idempotent", 4),
        ("acknowledging, unconfirmed", "staged", 5),
        ("replayable", "pool of two", 2),
    ],
)
def test_each_row_counts_once_from_any_source_to_any_sink(source: str, sink: str, seed: int) -> None:
    check_each_row_once(source, sink, seed)


@pytest.mark.simulation
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("sink", SINKS)
def test_each_row_counts_once_from_any_source_to_any_sink_by_many_seeds(source: str, sink: str) -> None:
    for seed in range(30):
        check_each_row_once(source, sink, seed)


def test_each_row_is_in_one_file(tmp_path: Path) -> None:
    pipeline = jf.Pipeline("job")
    pipeline.read(replayable(Random(0)), name="in").write(jf.files(tmp_path / "out", "ipc"), name="out")
    run(pipeline, seed=4)
    assert sorted(row["row"] for row in read_all(jf.files(tmp_path / "out"))) == list(range(ROWS))
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []


def test_each_row_is_collected_once() -> None:
    pipeline = jf.Pipeline("job")
    pipeline.read(replayable(Random(0)), name="in").collect("out")
    job = run(pipeline, seed=4)
    assert sorted(job.job.collected("out")["row"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize("seed", range(6))
def test_messages_that_come_again_do_not_go_to_a_reader_that_had_ended(seed: int) -> None:
    queue = AcknowledgingQueue(SCHEMA, batch_rows=1)
    queue.publish({"row": row} for row in range(4))
    outside = TransactionalMemory.named()
    p = jf.Pipeline("queue")
    p.read(queue.source(), name="queue").with_column("same", jf.col("row")).write(outside.sink(), name="sink")
    job = SteppedJob(p, seed=seed, store=MemorySnapshotStore(), interval="1ms", members=1, workers=2)

    def one_reader_has_ended() -> bool:
        stepped = job.members[0].stepped if 0 in job.members else None
        sources = [] if stepped is None else [t for t in stepped.execution.tasklets if t.source is not None]
        return len({tasklet.done_sent for tasklet in sources}) == 2

    job.run(one_reader_has_ended)
    queue.publish({"row": row} for row in range(4, 300))
    before = job.job.metrics["snapshots_taken"]
    job.run(lambda: job.job.metrics["snapshots_taken"] > before + 1)
    assert one_reader_has_ended()
    job.kill(0)
    job.run()
    assert job.job.error is None
    assert sorted(row["row"] for row in outside.rows()) == list(range(300))
