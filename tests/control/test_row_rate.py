"""The rate of a job is that of its present execution: of the last 10 s, without what was restored."""

from pathlib import Path
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast.control.row_rate import RowRate


def values(rows_read: int, restored: int = 0) -> dict[str, Any]:
    return {"vertices": {"rows": {"rows_read": rows_read, "restored_rows_read": restored}, "out": {"rows_in": 7}}}


def test_a_rate_is_of_the_last_ten_seconds() -> None:
    rate = RowRate()
    assert rate.per_second == 0
    rate.begin(100.0)
    assert rate.per_second == 0
    rate.observe(101.0, 0, values(1000))
    assert rate.per_second == 1000
    for second in range(2, 31):
        rate.observe(100.0 + second, 0, values(1000))
    assert rate.per_second == 0, "nothing was read in the last 10 s"
    rate.observe(130.0, 1, values(500))
    assert rate.per_second == 50, "of all members"


def test_restored_rows_do_not_count_and_a_new_execution_starts_from_nothing() -> None:
    rate = RowRate()
    rate.begin(0.0)
    rate.observe(1.0, 0, values(10))
    rate.begin(50.0)
    rate.observe(52.0, 0, values(1_000_020, restored=1_000_000))
    assert rate.per_second == 10


def test_a_rate_stands_still_without_reports() -> None:
    rate = RowRate()
    rate.begin(0.0)
    rate.observe(2.0, 0, values(10))
    assert [rate.per_second for _ in range(2)] == [5, 5]


def test_job_and_steps_agree_after_a_resume(tmp_path: Path) -> None:
    def number(rows: Any, random: Any) -> Any:
        return pa.record_batch({"row": rows})

    pipeline = jf.Pipeline("resumed")
    rows = pipeline.read(jf.generator(number, rate=2000.0, rows=10**9), name="rows")
    rows.where(jf.col("row") >= 0, name="kept").write(jf.files(tmp_path / "out", format="csv"), name="out")
    cluster = jf.LocalCluster(workers=1, snapshot_store=jf.snapshots.memory())
    with cluster.submit(pipeline, snapshot_interval="10ms", progress=False) as job:
        while job.metrics["rows_written"] < 100:
            job.runner.wait(0.01)
        job.suspend()
        suspended = job.metrics
        assert suspended["rows_per_second"] > 0
        job.runner.wait(0.05)
        assert job.metrics["rows_per_second"] == suspended["rows_per_second"], "it does not fall"
        job.resume()
        while job.metrics["rows_read"] <= suspended["rows_read"]:
            job.runner.wait(0.01)
        job.suspend()
        metrics = job.metrics
    steps = metrics["vertices"]
    assert metrics["rows_read"] > metrics["execution_rows_read"] > 0
    assert metrics["execution_rows_read"] == steps["rows"]["rows_out"]
    assert metrics["execution_rows_written"] == steps["out"]["rows_in"]
    assert metrics["rows_read"] - metrics["execution_rows_read"] == suspended["rows_read"]
