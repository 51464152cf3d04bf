"""Random pipelines of windows, windows after windows and best results: the same on any workers and batch sizes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast import col
from jetfast.core.aggregate import Aggregate
from jetfast.core.windows import AnyWindow, SessionWindow

SECOND = 1_000_000
LAG = "30s"
"""More than rows of a partition are out of order."""
RUNS = [(1, 1), (1, 4096), (3, 1), (3, 4096)]
"""Workers, and rows of a batch."""


class Choice(NamedTuple):
    """One aggregate of the column `v` (text where `takes_text`) to choose from."""

    aggregate: Aggregate
    goes_by_time: bool = False
    """Its result is only certain if no two rows of a key have the same time: that of results often is the same."""
    takes_text: bool = False


AGGREGATES = [
    Choice(jf.count()),
    Choice(jf.count("v")),
    Choice(jf.sum("v")),
    Choice(jf.mean("v")),
    Choice(jf.min("v")),
    Choice(jf.max("v")),
    Choice(jf.var_samp("v")),
    Choice(jf.stddev_pop("v")),
    Choice(jf.sum(col("v") * 2)),
    Choice(jf.first("v"), goes_by_time=True),
    Choice(jf.last("v", ignore_nulls=True), goes_by_time=True),
    Choice(jf.top_n("v", 2)),
    Choice(jf.bottom_n("v", 2, by="v"), goes_by_time=True),
    Choice(jf.count_distinct("v")),
    Choice(jf.approx_count_distinct("v")),
    Choice(jf.quantiles("v", [0.1, 0.9])),
    Choice(jf.linear_trend("v"), goes_by_time=True),
    Choice(jf.collect_list("v"), goes_by_time=True),
    Choice(jf.collect_set("v")),
    Choice(jf.concat("key", ","), goes_by_time=True, takes_text=True),
    Choice(
        jf.aggregate(
            "v",
            create=lambda: 0,
            accumulate=lambda state, rows: state + rows["v"].null_count,
            combine=lambda left, right: left + right,
            state=pa.int64(),
        )
    ),
]
FIRST = st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=4)
SECOND_AGGREGATES = FIRST.map(lambda choices: [c for c in choices if not c.goes_by_time] or AGGREGATES[:1])
FRAMED = [
    jf.tumbling("10s"),
    jf.tumbling("7s", offset="2s"),
    jf.sliding("20s", "5s"),
    jf.sliding("9s", "1s", offset="500ms"),
]
SESSIONS = [jf.session("1s"), jf.session("4s")]
LATER = [jf.tumbling("30s"), jf.sliding("1m", "20s", offset="1s"), jf.session("10s")]


@dataclass(frozen=True)
class Shape:
    """One pipeline."""

    window: AnyWindow
    keys: tuple[str, ...]
    aggregates: list[Choice]
    early: bool = False
    top: int = 0
    """0: all results."""
    later: AnyWindow | None = None
    later_aggregates: tuple[Choice, ...] = ()

    def build(self, rows: Any) -> Any:
        """The windows over some rows; early results are filtered out."""
        windowed = rows.group_by(*self.keys).window(self.window) if self.keys else rows.window(self.window)
        if self.early:
            windowed = windowed.early_results(every="20ms")
        first = windowed.agg(v=jf.sum("v"), **named(self.aggregates), name="first")
        stage: Any = first
        if self.early:
            stage = stage.where(~col("is_early")).drop("is_early")
        if self.top and not self.early and not isinstance(self.window, SessionWindow):
            stage = first.top(self.top, by="v", per=self.keys[:1])
        if self.later is not None:
            groups = [key for key in self.keys if key != "code"]
            stage = (stage.group_by(*groups) if groups else stage).window(self.later)
            stage = stage.agg(
                **named([c for c in self.later_aggregates if not c.takes_text]), rows=jf.count(), name="later"
            )
        return first, stage


def named(choices: list[Choice]) -> dict[str, Aggregate]:
    return {f"a{number}": choice.aggregate for number, choice in enumerate(choices)}


def shapes(windows: list[AnyWindow]) -> st.SearchStrategy[Shape]:
    return st.builds(
        Shape,
        window=st.sampled_from(windows),
        keys=st.sampled_from([(), ("key",), ("key", "code"), ("code",)]),
        aggregates=FIRST,
        early=st.booleans(),
        top=st.integers(0, 3),
        later=st.sampled_from([None, *LATER]),
        later_aggregates=SECOND_AGGREGATES.map(tuple),
    )


def make_rows(seed: int, disorder_s: int) -> pa.Table:
    """Rows of one second each on average, no two at the same time, in order of arrival."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 100))
    times = np.sort(random.choice(2 * count * 20, count, replace=False)) * (SECOND // 20) - count * SECOND // 2
    arrival = np.argsort(times + random.integers(0, disorder_s * SECOND, count), kind="stable")
    return pa.table(
        {
            "id": np.arange(count),
            "time": pa.array(times[arrival], pa.timestamp("us")),
            "key": pa.array([f"k{key}" for key in random.integers(0, 4, count)], mask=random.random(count) < 0.1),
            "code": pa.array(random.integers(0, 2, count).astype(np.int32), mask=random.random(count) < 0.1),
            "v": pa.array(random.integers(-640, 640, count) / 64, mask=random.random(count) < 0.1),
        }
    )


def run(
    rows: pa.Table, shape: Shape, lag: str, workers: int, batch_rows: int, late: bool = False, two_stage: Any = None
) -> jf.Job:
    pipeline = jf.Pipeline("random")
    source = jf.memory(partitions=thirds(rows), schema=rows.schema, batch_rows=batch_rows)
    first, last = shape.build(pipeline.read(source, name="rows").with_event_time("time", jf.watermarks.fixed_lag(lag)))
    last.collect()
    if late:
        first.late_rows.collect("late")
    job = jf.LocalCluster(workers=workers).submit(pipeline, progress=False, two_stage=two_stage)
    job.wait(timeout=120)
    return job


def thirds(rows: pa.Table) -> list[pa.Table]:
    """Every third row each: source partitions."""
    return [rows.take(np.arange(part, len(rows), 3)) for part in range(3)]


def shown(table: pa.Table) -> list[str]:
    """Rows in some order; floats to nine digits, for variances and trends depend on the order of additions."""
    return sorted(repr({name: rounded(value) for name, value in row.items()}) for row in table.to_pylist())


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value if abs(value) > 1e-9 else 0.0:.9g}"
    return [rounded(each) for each in value] if isinstance(value, list) else value


SEEDS = st.integers(0, 2**32)


def check_all_runs(seed: int, shape: Shape, two_stage: bool | None) -> None:
    rows = make_rows(seed, 20)
    first, *others = [run(rows, shape, LAG, *layout, two_stage=two_stage) for layout in RUNS]
    assert first.metrics["late_rows"] == first.metrics["partly_late_rows"] == 0
    wanted = shown(first.collected("result"))
    assert wanted
    for job in others:
        assert shown(job.collected("result")) == wanted


def check_late_rows(seed: int, shape: Shape, lag_s: int) -> None:
    rows = make_rows(seed, 20)
    for layout in RUNS[1:3]:
        job = run(rows, shape, f"{lag_s}s", *layout, late=True)
        late = job.collected("late")["id"].to_numpy()
        assert job.metrics["late_rows"] == len(late)
        on_time = rows.filter(pa.array(~np.isin(rows["id"].to_numpy(), late)))
        alone = run(on_time, shape, LAG, 1, 4096)
        assert alone.metrics["late_rows"] == 0
        assert shown(job.collected("result")) == shown(alone.collected("result"))


@settings(max_examples=4)
@given(seed=SEEDS, shape=shapes([*FRAMED, *SESSIONS]), two_stage=st.sampled_from([None, True]))
def test_random_pipelines_give_the_same_on_1_and_3_workers_and_in_batches_of_1_and_4096(
    seed: int, shape: Shape, two_stage: bool | None
) -> None:
    check_all_runs(seed, shape, two_stage)


@settings(max_examples=3)
@given(seed=SEEDS, shape=shapes([*FRAMED[:2], *SESSIONS]), lag_s=st.integers(0, 5))
def test_what_is_not_reported_as_late_gives_what_it_gives_without_the_late_rows(
    seed: int, shape: Shape, lag_s: int
) -> None:
    check_late_rows(seed, shape, lag_s)


@pytest.mark.simulation
@settings(max_examples=100)
@given(seed=SEEDS, shape=shapes([*FRAMED, *SESSIONS]), two_stage=st.sampled_from([None, True]))
def test_many_random_pipelines_give_the_same(seed: int, shape: Shape, two_stage: bool | None) -> None:
    check_all_runs(seed, shape, two_stage)


@pytest.mark.simulation
@settings(max_examples=60)
@given(seed=SEEDS, shape=shapes([*FRAMED[:2], *SESSIONS]), lag_s=st.integers(0, 5))
def test_many_random_pipelines_lose_nothing_but_what_they_report(seed: int, shape: Shape, lag_s: int) -> None:
    check_late_rows(seed, shape, lag_s)
