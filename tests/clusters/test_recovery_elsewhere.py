"""Snapshots of a job on 2 members are restored on 1, then on 3, with other partitions each time: nothing changes."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.file_writers import open_table_writer
from jetfast.core.source import Source
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.testing import EMPTY, TransactionalMemory, VirtualClock, silence
from tests.connectors.reading import read_all
from tests.simulation.stepped_job import SteppedJob

ROWS = 600
KEYS = 7
SIZES = [(2, 2, 271), (1, 1, 19), (3, 1, 1000)]
"""Members, workers and key partitions of the first execution, and of those that restore from it."""
Build = Callable[[Any], Any]


def table() -> pa.Table:
    numbers = range(ROWS)
    return pa.table({"row": numbers, "key": [n % KEYS for n in numbers], "time": pa.array(numbers, pa.timestamp("us"))})


def parts() -> list[pa.Table]:
    """The rows of each of five source partitions, in order."""
    return [table().filter(pa.array([n % 5 == part for n in range(ROWS)])) for part in range(5)]


def in_memory(disorder: int = 0) -> Source:
    """A few rows at a time, with pauses: a partition that has a pause turns idle. Some batches may be late."""
    scripts = []
    for number, part in enumerate(parts()):
        script: list[Any] = []
        for start in range(0, part.num_rows, 3):
            script += [part.slice(start, 3), EMPTY]
        for place in range(0, len(script) - disorder, 12) if disorder else ():
            script.insert(place + disorder, script.pop(place))
        if number == 2:
            script.insert(len(script) // 2, silence("50ms"))
        scripts.append(script)
    return jf.memory(partitions=scripts)


def run_elsewhere(pipeline: Callable[[], jf.Pipeline]) -> jf.Job:
    """Let each execution but the last take a snapshot or two and then vanish, coordinator and all; return the last."""
    store, clock = MemorySnapshotStore(), VirtualClock("1970-01-01T00:00:00")
    first, second, last = (
        {"members": size[0], "workers": size[1], "partition_count": size[2], "store": store, "clock": clock}
        for size in SIZES
    )
    for snapshots, options in ((2, first), (1, second)):
        job = SteppedJob(pipeline(), seed=1, interval="10ms", **options)
        job.run(lambda: job.runner.snapshots.taken == snapshots)  # noqa: B023 (called in this round)
        assert not job.ended, "there would be nothing to restore"
        assert job.job.guarantee is jf.Guarantee.EXACTLY_ONCE
    job = SteppedJob(pipeline(), seed=1, interval="10ms", **last)
    job.run()
    assert job.runner.error is None
    return job.job


def timed(pipeline: jf.Pipeline) -> Any:
    read = pipeline.read(in_memory(), name="rows")
    return read.with_event_time("time", jf.watermarks.fixed_lag("40us"), idle_timeout="20ms")


def sliding(stage: Any) -> Any:
    return stage.group_by("key").window(jf.sliding("60us", "20us")).agg(n=jf.count(), total=jf.sum("row"))


def session(stage: Any) -> Any:
    return stage.group_by("key").window(jf.session("6us")).agg(n=jf.count(), mean=jf.mean("row"), last=jf.last("row"))


def batch_aggregates(stage: Any) -> Any:
    windows = stage.group_by("key").window(jf.tumbling("80us"))
    return windows.agg(distinct=jf.count_distinct("row"), half=jf.quantile("row", 0.5), best=jf.top_n("row", 2))


def all_rows(stage: Any) -> Any:
    return stage.window(jf.tumbling("40us")).agg(n=jf.count(), least=jf.min("row"), values=jf.count("row"))


def top_of_windows(stage: Any) -> Any:
    first = stage.group_by("key").window(jf.tumbling("40us")).agg(n=jf.count(), total=jf.sum("row"), name="first")
    return first.top(3, by="total", name="best")


def window_after_window(stage: Any) -> Any:
    first = stage.group_by("key").window(jf.sliding("40us", "20us")).agg(n=jf.count(), total=jf.sum("row"), name="1")
    return first.group_by("key").window(jf.tumbling("120us")).agg(n=jf.sum("n"), most=jf.max("total"), name="2")


def plain(stage: Any) -> Any:
    return stage.where(jf.col("row") >= 0)


slow = pytest.mark.simulation
STEPS: dict[str, Build] = {
    build.__name__: build
    for build in (plain, sliding, session, batch_aggregates, all_rows, top_of_windows, window_after_window)
}


@pytest.mark.parametrize("name", [name if name == "sliding" else pytest.param(name, marks=slow) for name in STEPS])
def test_each_step_gives_what_it_gives_without_a_restart(name: str) -> None:
    outside = TransactionalMemory.named()

    def pipeline(sink: Any = None) -> jf.Pipeline:
        made = jf.Pipeline("elsewhere")
        STEPS[name](timed(made)).write(sink or outside.sink(), name="out")
        return made

    job = run_elsewhere(pipeline)
    assert job.metrics["late_rows"] == job.metrics["partly_late_rows"] == 0
    whole = SteppedJob(pipeline(jf.collect()), seed=0, guarantee=jf.Guarantee.NONE)
    whole.run()
    found, wanted = (Counter(map(repr, rows)) for rows in (outside.rows(), whole.job.collected().to_pylist()))
    assert found == wanted
    assert len(wanted) >= 5
    assert outside.in_doubt() == []


@slow
def test_early_results_come_beside_final_ones_that_do_not_change() -> None:
    outside = TransactionalMemory.named()

    def pipeline() -> jf.Pipeline:
        made = jf.Pipeline("early")
        windows = timed(made).group_by("key").window(jf.tumbling("80us")).early_results(every="5ms")
        windows.agg(n=jf.count(), total=jf.sum("row")).write(outside.sink(), name="out")
        return made

    run_elsewhere(pipeline)
    final = [row for row in outside.rows() if not row["is_early"]]
    assert len(final) < len(outside.rows())
    wanted = {(n % KEYS, n // 80) for n in range(ROWS)}
    assert Counter((row["key"], row["window_start"].microsecond // 80) for row in final) == Counter(wanted)
    assert sum(row["total"] for row in final) == sum(range(ROWS))


@slow
def test_windows_by_the_wall_clock_hold_each_row_once() -> None:
    outside = TransactionalMemory.named()

    def pipeline() -> jf.Pipeline:
        made = jf.Pipeline("seen")
        stage = made.read(in_memory(), name="rows").with_processing_time("seen")
        stage.group_by("key").window(jf.tumbling("20ms")).agg(each=jf.collect_list("row")).write(outside.sink())
        return made

    run_elsewhere(pipeline)
    assert sorted(row for window in outside.rows() for row in window["each"]) == list(range(ROWS))
    ends = Counter((row["key"], row["window_end"]) for row in outside.rows())
    assert max(ends.values()) == 1, "no window is given twice"


@slow
def test_late_rows_are_counted_and_written_once() -> None:
    windows, late = TransactionalMemory.named(), TransactionalMemory.named()

    def pipeline() -> jf.Pipeline:
        made = jf.Pipeline("late")
        read = made.read(in_memory(disorder=8), name="rows")
        stage = read.with_event_time("time", jf.watermarks.fixed_lag("0us"), idle_timeout="1ms")
        counts = stage.group_by("key").window(jf.tumbling("4us")).agg(each=jf.collect_list("row"))
        counts.write(windows.sink(), name="windows")
        counts.late_rows.write(late.sink(), name="late")
        return made

    job = run_elsewhere(pipeline)
    missed = [row["row"] for row in late.rows()]
    assert missed, "there must be something to look at"
    assert job.metrics["late_rows"] == len(missed)
    assert sorted(missed + [row for window in windows.rows() for row in window["each"]]) == list(range(ROWS))


def write_files(directory: Path, file_format: str) -> None:
    for number, part in enumerate(parts()):
        suffix = {"json": "jsonl", "ipc": "arrow", "ipc_stream": "arrows"}.get(file_format, file_format)
        with (directory / f"{number}.{suffix}").open("wb") as file:
            writer = open_table_writer(file, file_format, part.schema)
            for start in range(0, part.num_rows, 10):
                writer.write_table(part.slice(start, 10))
            writer.close()


@pytest.mark.parametrize(
    "file_format", ["parquet", *(pytest.param(name, marks=slow) for name in ("csv", "json", "ipc", "ipc_stream"))]
)
def test_files_of_each_format_are_copied_row_by_row(file_format: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    write_files(source, file_format)

    def pipeline() -> jf.Pipeline:
        made = jf.Pipeline("copy")
        made.read(jf.files(source, batch_rows=3), name="in").write(jf.files(target, file_format), name="out")
        return made

    run_elsewhere(pipeline)
    assert sorted(row["row"] for row in read_all(jf.files(target))) == list(range(ROWS))
    assert not [path for path in target.iterdir() if path.name.startswith(".")]


def test_files_in_groups_go_on_in_their_order(tmp_path: Path) -> None:
    write_files(tmp_path, "csv")
    outside = TransactionalMemory.named()

    def pipeline() -> jf.Pipeline:
        made = jf.Pipeline("groups")
        groups = [["0.csv", "1.csv"], ["2.csv", "3.csv", "4.csv"]]
        made.read(jf.files(tmp_path, partitions=groups, batch_rows=3), name="in").write(outside.sink(), name="out")
        return made

    run_elsewhere(pipeline)
    assert sorted(row["row"] for row in outside.rows()) == list(range(ROWS))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "make",
    [
        TransactionalMemory.named,
        lambda: TransactionalMemory.pooled(2),
        lambda: TransactionalMemory.pooled(3, overlaps=True),
        TransactionalMemory.staged,
    ],
)
def test_a_generator_goes_on_where_it_was_into_sinks_of_each_kind(
    make: Callable[[], TransactionalMemory], partitions: int
) -> None:
    outside = make()

    def pipeline() -> jf.Pipeline:
        made = jf.Pipeline("generated")
        source = jf.generator(
            lambda rows, random: pa.record_batch({"row": rows}), rows=ROWS, rate=2000, partitions=partitions
        )
        made.read(source, name="in").write(outside.sink(), name="out")
        return made

    run_elsewhere(pipeline)
    assert sorted(row["row"] for row in outside.rows()) == list(range(ROWS))
    assert outside.in_doubt() == []


@pytest.mark.parametrize("workers", [2, 3])
def test_files_that_come_while_a_job_is_stopped_are_read_though_some_readers_had_ended(
    workers: int, tmp_path: Path
) -> None:
    source, store, outside = tmp_path / "in", MemorySnapshotStore(), TransactionalMemory.named()
    source.mkdir()

    def write(name: str, first: int, count: int) -> None:
        text = "".join(f"{row}\n" for row in range(first, first + count))
        (source / name).write_text("row\n" + text)

    def pipeline() -> jf.Pipeline:
        made = jf.Pipeline("files")
        read = made.read(jf.files(source, "csv", batch_rows=3), name="in")
        read.where(jf.col("row") >= 0).write(outside.sink(), name="out")
        return made

    write("1.csv", 0, 3)
    write("2.csv", 3, 200)
    first = SteppedJob(pipeline(), seed=1, store=store, interval="10ms", workers=2)
    first.run(lambda: first.runner.snapshots.taken == 2)
    assert not first.ended
    write("0.csv", 203, 50)  # it comes first, and would change whose file is whose
    last = SteppedJob(pipeline(), seed=2, store=store, interval="10ms", workers=workers)
    last.run()
    assert last.runner.error is None
    assert sorted(row["row"] for row in outside.rows()) == list(range(253))
