"""Whole jobs between files: what they leave, when they fail, when they run again."""

from pathlib import Path

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.testing import CRASH
from tests.connectors.reading import read_all

TABLE = pa.table({"id": range(1000), "word": [f"w{i % 7}" for i in range(1000)]})


def tree(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file())


def ids(path: Path, **options: object) -> list[int]:
    return sorted(row["id"] for row in read_all(jf.files(path, **options)))  # type: ignore[arg-type]


@pytest.mark.parametrize("file_format", ["parquet", "csv", "json", "ipc", "ipc_stream"])
def test_rows_go_through_files_of_every_format(tmp_path: Path, file_format: str) -> None:
    first = jf.Pipeline("first")
    first.read(jf.memory(TABLE, partitions=5)).write(jf.files(tmp_path / "a", file_format))
    jf.LocalCluster(members=2, workers=2).submit(first).wait()
    second = jf.Pipeline("second")
    second.read(jf.files(tmp_path / "a")).where(jf.col("id") % 2 == 0).write(jf.files(tmp_path / "b.csv"))
    jf.LocalCluster(workers=2).submit(second).wait()
    assert ids(tmp_path / "b.csv") == list(range(0, 1000, 2))
    assert len(tree(tmp_path)) <= 5


def test_a_job_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail(rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.column("id")[0].as_py() >= 500:
            raise ValueError("poison")
        return rows

    pipeline = jf.Pipeline()
    rows = pipeline.read(jf.memory(TABLE, batch_rows=100))
    rows.map_batches(fail, schema=TABLE.schema).write(jf.files(tmp_path / "out", "csv"))
    with pytest.raises(jf.errors.JobFailedError, match="poison"):
        jf.LocalCluster(workers=2).submit(pipeline).wait()
    assert tree(tmp_path) == []


def test_a_job_that_was_lost_can_be_submitted_again_and_writes_each_row_once(tmp_path: Path) -> None:
    pipeline = jf.Pipeline()
    rows = pipeline.read(jf.memory([TABLE.slice(0, 500), CRASH, TABLE.slice(500)]))
    rows.write(jf.files(tmp_path / "out", "parquet"))
    with pytest.raises(jf.errors.RestartableError, match="scripted crash"):
        jf.LocalCluster(workers=2).submit(pipeline).wait()
    assert tree(tmp_path) == []
    jf.LocalCluster(workers=2).submit(pipeline).wait()
    assert ids(tmp_path / "out") == list(range(1000))


def test_a_second_run_is_refused_at_submission_unless_it_may_overwrite(tmp_path: Path) -> None:
    def pipeline(overwrite: bool) -> jf.Pipeline:
        made = jf.Pipeline()
        made.read(jf.memory(TABLE)).write(jf.files(tmp_path / "out.parquet", overwrite=overwrite))
        return made

    jf.LocalCluster(workers=1).submit(pipeline(False)).wait()
    with pytest.raises(jf.errors.JobDefinitionError, match="give overwrite=True"):
        jf.LocalCluster(workers=1).submit(pipeline(False))
    jf.LocalCluster(workers=1).submit(pipeline(True)).wait()
    assert ids(tmp_path / "out.parquet") == list(range(1000))


def test_two_sinks_of_one_target_are_refused(tmp_path: Path) -> None:
    rows = jf.Pipeline().read(jf.memory(TABLE))
    rows.write(jf.files(tmp_path / "out", "csv"), name="one")
    with pytest.raises(jf.errors.JobDefinitionError, match="'one' and 'two' both write to"):
        rows.write(jf.files(f"{tmp_path}/./out/", "parquet"), name="two")


def test_malformed_lines_and_null_times_reach_the_rejected_rows(tmp_path: Path) -> None:
    lines = ["time,id", *(f"2020-01-01 00:{i // 60:02d}:{i % 60:02d},{i}" for i in range(100)), "nonsense", ",100"]
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n")
    pipeline = jf.Pipeline()
    source = pipeline.read(jf.files(tmp_path / "in.csv"), name="in").with_event_time(
        "time", jf.watermarks.fixed_lag("1s")
    )
    source.write(jf.files(tmp_path / "good.jsonl"))
    source.rejected_rows.write(jf.files(tmp_path / "bad.jsonl"))
    job = jf.LocalCluster(workers=2).submit(pipeline)
    job.wait()
    assert ids(tmp_path / "good.jsonl") == list(range(100))
    assert sorted(
        (row["position"], row["reason"], row["row"]) for row in read_all(jf.files(tmp_path / "bad.jsonl"))
    ) == [
        (101, "expected 2 columns, got 1", "nonsense"),
        (102, "time is null", '{"time":null,"id":100}'),
    ]
    assert (job.metrics["rows_read"], job.metrics["rejected_rows"]) == (102, 2)
