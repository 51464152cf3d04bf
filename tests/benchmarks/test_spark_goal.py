"""The comparison with Spark, without Spark: what both sides read, how windows are judged, whose CPU time counts."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from benchmarks.compare import goals_of
from benchmarks.goals.options import Options
from benchmarks.goals.spark import FILE_ROWS, GATES, Bench, Case
from benchmarks.peers.spark import cpu_of_all_processes
from jetfast.types import MAX_TIME

ROWS = 4000
SLIDING = Case("sliding", "1 ms", "500 us", ROWS, ROWS, 1)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(None, tmp_path, Options())


def written(bench: Bench, out: Path) -> pa.Table:
    """The windows of all rows, by a pipeline here, in files as both sides write them."""
    source, _ = bench.source(ROWS)
    pipeline = jf.Pipeline("windows")
    rows = pipeline.read(jf.files(str(source), partitions=r"partition-\d"), name="events")
    timed = rows.with_event_time("time", jf.watermarks.fixed_lag("50ms"))
    windows = timed.group_by("key").window(SLIDING.window).agg(count=jf.count(), mean=jf.mean("value"), name="windows")
    windows.collect()
    table: pa.Table = jf.LocalCluster().submit(pipeline, progress=False).to_arrow()
    out.mkdir()
    pq.write_table(table, out / "part.parquet")
    return table


def test_both_sides_read_all_rows_from_two_source_partitions(bench: Bench) -> None:
    source, events = bench.source(ROWS)
    files = sorted(source.iterdir())
    assert [file.name for file in files] == [
        f"stretch-000{stretch}-partition-{partition}.parquet" for stretch in range(2) for partition in range(2)
    ]
    tables = [pq.read_table(file) for file in files]
    assert {table.num_rows for table in tables} == {ROWS // 4}
    assert Options().spark_rows == FILE_ROWS * 2 * 20  # twenty micro-batches of two files, a second each
    whole = pa.concat_tables(tables)
    for name, expected in (("key", events.keys), ("time", events.times), ("value", events.values)):
        found = whole[name].cast(pa.int64()) if name == "time" else whole[name]
        assert sorted(found.to_pylist()) == sorted(expected.tolist())
    assert bench.source(ROWS)[0] == source


def test_right_windows_are_told_from_wrong_ones(bench: Bench, tmp_path: Path) -> None:
    table = written(bench, tmp_path / "out")
    _, events = bench.source(ROWS)
    assert bench.right(SLIDING, events, tmp_path / "out", MAX_TIME)
    file = tmp_path / "out" / "part.parquet"
    ends = table["window_end"].cast(pa.int64()).to_numpy()
    middle = int(np.median(ends))
    counted_twice = table.set_column(table.schema.get_field_index("count"), "count", [table["count"].to_numpy() * 2])
    for wrong in (table.slice(1), pa.concat_tables([table, table.slice(0, 1)]), counted_twice):
        pq.write_table(wrong, file)
        assert not bench.right(SLIDING, events, tmp_path / "out", MAX_TIME)
    pq.write_table(table.filter(pa.array(ends <= middle)), file)
    assert bench.right(SLIDING, events, tmp_path / "out", middle)
    assert not bench.right(SLIDING, events, tmp_path / "out", MAX_TIME)


def test_spark_is_compared_with_only_when_it_is_asked_for() -> None:
    assert goals_of("spark") == [12]
    assert 12 not in goals_of(None)
    assert {kind: goal.gate for kind, goal in GATES.items()} == {
        ("tumbling", "batch"): 5.0,
        ("tumbling", "streaming"): 10.0,
        ("sliding", "batch"): 100.0,
        ("sliding", "streaming"): 200.0,
    }


def test_cpu_time_of_children_counts_when_they_have_ended_too() -> None:
    burn = "import time\nwhile time.process_time() < 0.1: pass"
    before = cpu_of_all_processes()
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert cpu_of_all_processes() - before >= 0.08
