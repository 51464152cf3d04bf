"""Jobs of a LocalCluster that lose members: with threads, as users run them."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.control import restarts
from jetfast.errors import JobCancelledError, MemberLostError
from jetfast.testing import TransactionalMemory, kill_member

PATIENCE_S = 30.0
ROWS = 3000


@pytest.fixture(autouse=True)
def restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "RESTART_DELAY_MIN_S", 0.001)


class Gate:
    """Lets rows pass, and calls once, on a thread of a member, what is to happen at one of them."""

    def __init__(self, row: int) -> None:
        self.row = row
        self.happened = False
        self.happen: Callable[[], None] = lambda: None

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self.happened and self.row in rows["row"].to_pylist():
            self.happened = True
            self.happen()
        return rows


def pipeline(outside: TransactionalMemory, gate: Gate) -> jf.Pipeline:
    table = pa.table({"row": range(ROWS)})
    result = jf.Pipeline("rows")
    read = result.read(jf.memory(table, partitions=2, batch_rows=100))
    read.map_batches(gate, schema=table.schema).write(outside.sink(), name="outside")
    return result


def rows_of(outside: TransactionalMemory) -> list[Any]:
    return sorted(row["row"] for row in outside.rows())


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("guarantee", [jf.Guarantee.EXACTLY_ONCE, jf.Guarantee.AT_LEAST_ONCE])
def test_a_job_begins_again_from_its_last_snapshot_when_a_member_dies(members: int, guarantee: jf.Guarantee) -> None:
    outside, gate = TransactionalMemory.named(), Gate(row=ROWS // 3)

    def die() -> None:
        raise SystemExit  # what ends a thread is no error of the user

    gate.happen = die
    cluster = jf.LocalCluster(members=members, workers=1)
    job = cluster.submit(pipeline(outside, gate), guarantee=guarantee, snapshot_interval="1ms", progress=False)
    job.wait(PATIENCE_S)
    assert job.metrics["restarts"] == 1
    if guarantee is jf.Guarantee.EXACTLY_ONCE:
        assert rows_of(outside) == list(range(ROWS))
    assert set(rows_of(outside)) == set(range(ROWS))
    assert outside.in_doubt() == []


@pytest.mark.parametrize("members", [1, 2])
def test_a_member_that_is_killed_is_followed_by_another(members: int) -> None:
    outside = TransactionalMemory.named()
    endless = jf.Pipeline("endless")
    endless.read(jf.generator({"x": pa.int64()}, rate=100_000, partitions=2)).write(outside.sink(), name="outside")
    cluster = jf.LocalCluster(members=members, workers=1, snapshot_store=jf.snapshots.memory())
    with cluster.submit(endless, snapshot_interval="1ms", progress=False) as job:
        for kills in range(1, 4):
            taken = job.metrics["snapshots_taken"]
            while job.metrics["snapshots_taken"] < taken + 2:
                assert not job.runner.wait(0.001)
            kill_member(job, members - 1)
            while job.metrics["restarts"] < kills:
                assert not job.runner.wait(0.001)
        job.cancel()
        with pytest.raises(JobCancelledError):
            job.wait(PATIENCE_S)
    assert outside.in_doubt() == []
    assert len(outside.rows()) > 0
    with pytest.raises(ValueError, match="no member 7"):
        kill_member(job, 7)


def test_a_member_that_is_killed_fails_a_job_without_a_guarantee() -> None:
    endless = jf.Pipeline("endless")
    endless.read(jf.generator({"x": pa.int64()}, rate=1000)).collect()
    job = jf.LocalCluster(workers=1).submit(endless, progress=False)
    while job.status is not jf.JobStatus.RUNNING:
        assert not job.runner.wait(0.001)
    kill_member(job)
    with pytest.raises(MemberLostError, match="member 0 was killed"):
        job.wait(PATIENCE_S)
