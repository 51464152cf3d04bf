"""Rows with all that is unpleasant, a pipeline over them, and the checks that hold for every run of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from polars.testing import assert_frame_equal

import jetfast as jf
from jetfast.connectors.memory import EMPTY, MemorySource
from jetfast.core.windows import AnyWindow
from jetfast.testing import scripted
from tests.clusters import windows_reference
from tests.clusters.windows_reference import SCHEMA, as_sorted

SECOND = 1_000_000


@dataclass(frozen=True)
class Case:
    """Rows of one job. Times in microseconds."""

    seed: int
    rows: int = 400
    partitions: int = 3
    disorder_us: int = 5 * SECOND
    span_us: int = 60 * SECOND
    keys: int = 5
    size_us: int = 8 * SECOND
    slide_us: int = 2 * SECOND
    null_share: float = 0.1
    with_empty_answers: bool = False


def make_rows(case: Case) -> dict[str, pa.Table]:
    """Return the rows of each source partition, in order of arrival: out of order by less than `disorder_us`."""
    random = np.random.default_rng(case.seed)
    arrival = np.sort(random.integers(0, case.span_us, case.rows)) - case.span_us // 2  # negative times, too
    time = arrival - random.integers(0, max(1, case.disorder_us), case.rows)
    partition = random.integers(0, case.partitions, case.rows)

    def nulls() -> Any:
        return random.random(case.rows) < case.null_share

    table = pa.Table.from_arrays(
        [
            pa.array(np.arange(case.rows)),
            pa.array([f"p{number}" for number in partition]),
            pa.array([f"k{number}" for number in random.integers(0, case.keys, case.rows)], mask=nulls()),
            pa.array(random.integers(0, 2, case.rows).astype(np.int32), mask=nulls()),
            pa.array(time, pa.timestamp("us"), mask=nulls()),
            pa.array(random.integers(-640, 640, case.rows) / 64, mask=nulls()),
        ],
        schema=SCHEMA,
    )
    return {f"p{number}": table.filter(pa.array(partition == number)) for number in range(case.partitions)}


def source(case: Case, batch_rows: int) -> MemorySource:
    """The rows of a case as a source; with `with_empty_answers` one whose partitions turn idle now and then."""
    tables = make_rows(case)
    if not case.with_empty_answers:
        return jf.memory(partitions=tables, schema=SCHEMA, batch_rows=batch_rows)
    random = np.random.default_rng(case.seed)
    scripts: dict[str, list[Any]] = {}
    for name, table in tables.items():
        script: list[Any] = []
        start = 0
        while start < len(table):
            length = int(random.integers(1, 40))
            script += [table.slice(start, length), *[EMPTY] * int(random.integers(0, 4))]
            start += length
        scripts[name] = script
    made = scripted(scripts, schema=SCHEMA)
    made.batch_rows = batch_rows
    return made


@dataclass
class Outcome:
    """What one run gave."""

    windows: pl.DataFrame
    metrics: dict[str, Any]
    late: pl.DataFrame | None = None
    rejected: pl.DataFrame | None = None
    job: jf.Job | None = field(default=None, repr=False)


AGGREGATES: Mapping[str, Any] = {
    "rows": jf.count(),
    "values": jf.count("value"),
    "sum_id": jf.sum("id"),
    "total": jf.sum("value"),
    "mean": jf.mean("value"),
    "least": jf.min("value"),
    "greatest": jf.max("value"),
    "spread": jf.var_samp("value"),
}


def run(
    case: Case,
    *,
    lag: str,
    members: int = 1,
    workers: int = 1,
    batch_rows: int = 65536,
    two_stage: bool | None = None,
    late: bool = True,
    idle_timeout: str = "60s",
    memory_limit: str = "1GB",
    window: AnyWindow | None = None,
) -> Outcome:
    """Run the case through the public API; `window`: another one than the sliding one of the case."""
    pipeline = jf.Pipeline("windows")
    rows = pipeline.read(source(case, batch_rows), name="rows").with_event_time(
        "time", jf.watermarks.fixed_lag(lag), idle_timeout=idle_timeout
    )
    rows.rejected_rows.collect("rejected")
    windows = (
        rows.group_by("key", "code")
        .window(window or jf.sliding(f"{case.size_us}us", f"{case.slide_us}us"))
        .agg(**AGGREGATES, name="windows")
    )
    windows.collect("result")
    if late:
        windows.late_rows.collect("late")
    cluster = jf.LocalCluster(members=members, workers=workers)
    job = cluster.submit(pipeline, progress=False, two_stage=two_stage, memory_limit=memory_limit)
    job.wait()
    return Outcome(
        as_sorted(job.collected("result")),
        job.metrics,
        pl.DataFrame(job.collected("late")) if late else None,
        pl.DataFrame(job.collected("rejected")),
        job,
    )


def expected(case: Case, late: pl.DataFrame | None = None) -> pl.DataFrame:
    """The windows of a case, without what the run itself reported as missed."""
    rows = pa.concat_tables(make_rows(case).values())
    missed = {} if late is None else dict(late.select("id", pl.col("missed_until").dt.epoch("us")).iter_rows())
    return windows_reference.reference(rows, case.size_us, case.slide_us, missed)


def check_windows(outcome: Outcome, case: Case) -> None:
    """Each window holds exactly the rows of its span less those reported as having missed it."""
    assert_frame_equal(outcome.windows, expected(case, outcome.late), rel_tol=1e-9, abs_tol=1e-9)


def check_identities(outcome: Outcome, case: Case) -> None:
    """On time + partly late + late + rejected = all rows, by identity, each in one class."""
    metrics, late, rejected = outcome.metrics, outcome.late, outcome.rejected
    assert late is not None
    assert rejected is not None
    all_rows = pl.DataFrame(pa.concat_tables(make_rows(case).values()))
    timeless = set(all_rows.filter(pl.col("time").is_null())["id"])
    rejected_ids = [int(text.split('"id":')[1].split(",")[0]) for text in rejected["row"]]
    assert len(rejected_ids) == len(set(rejected_ids)) == metrics["rejected_rows"]
    assert set(rejected_ids) == timeless
    assert late["id"].is_unique().all()
    timed = all_rows.filter(pl.col("time").is_not_null())
    assert set(late["id"]) <= set(timed["id"])
    as_they_were = timed.filter(pl.col("id").is_in(late["id"].implode())).sort("id")
    assert late.select(SCHEMA.names).sort("id").equals(as_they_were)
    # Late: the last window was missed. Partly late: not the last.
    last_window = (pl.col("time").dt.epoch("us") // case.slide_us) * case.slide_us + case.size_us
    wholly = late.filter(pl.col("missed_until").dt.epoch("us") >= last_window)
    assert metrics["late_rows"] == len(wholly)
    assert metrics["partly_late_rows"] == len(late) - len(wholly)
    assert metrics["rows_read"] == case.rows
    on_time = set(timed["id"]) - set(late["id"])
    assert len(on_time) + len(late) + len(rejected_ids) == case.rows


def rows_within_lag(case: Case, lag_us: int) -> set[int]:
    """Rows at most `lag` behind the highest earlier time of their own partition: those are never late."""
    safe = set()
    for table in make_rows(case).values():
        highest = None
        for identity, time in zip(table["id"].to_pylist(), table["time"].cast(pa.int64()).to_pylist(), strict=True):
            if time is None:
                continue
            if highest is None or time >= highest - lag_us:
                safe.add(identity)
            highest = time if highest is None else max(highest, time)
    return safe
