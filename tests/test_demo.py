"""The demo's own checks find what they should: a result with one wrong cell, a lost row, a row in two classes."""

from collections import defaultdict

import polars as pl
import pytest

import jetfast as jf
from docs.examples.flights import __main__ as demo
from docs.examples.flights import check, data

LAG_US = 2 * check.HOUR_US


def run_slowly(flights: pl.DataFrame, lag_us: int = LAG_US) -> check.Result:
    """The demo's pipeline, one flight at a time in plain Python: airports are read in turn, batches are one row."""
    queues = [flights.filter(origin=airport).to_dicts() for airport in sorted(data.AIRPORTS)]
    times = {
        row["id"]: stamp for row, stamp in zip(flights.to_dicts(), flights["scheduled"].dt.timestamp("us"), strict=True)
    }
    watermarks = [None] * len(queues)
    watermark = None
    windows = defaultdict(list)
    late = []
    while any(queues):
        open_partitions = [index for index, queue in enumerate(queues) if queue]
        index = min(open_partitions, key=lambda i: watermarks[i] or 0)
        row = queues[index].pop(0)
        time = times[row["id"]]
        first = (time // check.SLIDE_US + 1) * check.SLIDE_US
        missed_until = None
        for end in range(first, first + check.SIZE_US, check.SLIDE_US):
            if watermark is not None and end <= watermark:
                missed_until = end
            else:
                windows[row["carrier"], row["origin"], end].append(row)
        if missed_until is not None:
            late.append({**row, "missed_until": missed_until})
        watermarks[index] = max(watermarks[index] or 0, time - lag_us)
        if all(value is not None for value in watermarks):
            active = [watermarks[i] for i in open_partitions]
            watermark = max(watermark or 0, min(active))
    rows = []
    for (carrier, origin, end), members in windows.items():
        delays = [row["dep_delay"] for row in members if row["dep_delay"] is not None]
        rows.append(
            {
                "carrier": carrier,
                "origin": origin,
                "window_start": end - check.SIZE_US,
                "window_end": end,
                "flights": len(members),
                "departed": len(delays),
                "mean_delay": sum(delays) / len(delays) if delays else None,
                "min_delay": min(delays, default=None),
                "max_delay": max(delays, default=None),
                "fingerprints": sum(row["fingerprint"] for row in members),
            }
        )
    schema = {**flights.schema, "missed_until": pl.Int64}
    late_rows = pl.DataFrame(late, schema=schema).with_columns(pl.col("missed_until").cast(pl.Datetime("us")))
    window_rows = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.col("window_start", "window_end").cast(pl.Datetime("us"))
    )
    lost = sum(
        int(row["missed_until"] == (times[row["id"]] // check.SLIDE_US) * check.SLIDE_US + check.SIZE_US)
        for row in late
    )
    counted = {"rows": len(flights), "late_rows": lost, "partly_late_rows": len(late) - lost, "rejected_rows": 0}
    return check.Result(window_rows, late_rows, flights.head(0), counted)


@pytest.fixture(scope="module")
def flights() -> pl.DataFrame:
    """Three days of June with thunderstorms: delays of hours, cancelled flights."""
    return data.read_flights().filter(pl.col("scheduled").dt.ordinal_day().is_between(175, 178))


@pytest.fixture(scope="module")
def engine_run(flights, tmp_path_factory) -> tuple[demo.Run, check.Result]:
    """The demo's own run on a LocalCluster of two members, its checks included."""
    directory = tmp_path_factory.mktemp("demo")
    data.write_streams(flights, directory / "streams")
    cluster = jf.LocalCluster(members=2, workers=1)
    return demo.run(cluster, "local", demo.WHOLE_LAG, flights, directory / "streams", directory / "out")


@pytest.fixture(scope="module")
def result(flights) -> check.Result:
    return run_slowly(flights)


def test_the_stream_is_the_real_one():
    flights = data.read_flights()
    assert len(flights) == 336_776
    assert flights["dep_delay"].null_count() == 8_255
    behind = (pl.col("scheduled").cum_max() - pl.col("scheduled")).over("origin").dt.total_minutes()
    assert 21 * 60 < flights.select(behind.max()).item() < 22 * 60


def test_the_checks_accept_a_true_result(flights, result):
    assert check.check_windows(flights, result) > 1000
    classes = check.check_classes(flights, result)
    assert classes.partly_late > 0
    assert classes.on_time + classes.partly_late + classes.late + classes.rejected == len(flights)


def test_the_pipeline_equals_the_reference_and_the_slow_engine(flights, engine_run):
    run, result = engine_run
    assert (run.rows, run.classes.on_time) == (len(flights), len(flights))
    slow = run_slowly(flights, 24 * check.HOUR_US)
    columns = [*check.KEYS, *check.VALUES]
    assert result.windows.select(columns).sort(check.KEYS).equals(slow.windows.select(columns).sort(check.KEYS))


@pytest.mark.parametrize("column", [*check.KEYS, *check.VALUES])
def test_one_changed_cell_of_a_run_fails_the_check(flights, engine_run, column):
    _, result = engine_run
    assert_one_changed_cell_is_found(flights, result, column)


@pytest.mark.parametrize("column", [*check.KEYS, *check.VALUES])
def test_one_changed_cell_beside_late_rows_fails_the_check(flights, result, column):
    assert_one_changed_cell_is_found(flights, result, column)


def assert_one_changed_cell_is_found(flights, result, column):
    windows = result.windows
    value = windows[1234, column]
    if windows.schema[column] == pl.String:
        changed = value + "?"
    elif windows.schema[column].is_temporal():
        changed = value.replace(microsecond=1)
    else:
        changed = (value or 0) + 1
    damaged = windows.clone()
    damaged[1234, column] = changed
    with pytest.raises(check.DifferenceError):
        check.check_windows(flights, check.Result(damaged, result.late, result.rejected, result.counted))


def test_a_lost_window_fails_the_check(flights, result):
    windows = pl.concat([result.windows[:100], result.windows[101:]])
    with pytest.raises(check.DifferenceError, match="1 windows are missing"):
        check.check_windows(flights, check.Result(windows, result.late, result.rejected, result.counted))


def test_a_window_that_came_twice_fails_the_check(flights, result):
    windows = pl.concat([result.windows, result.windows[7:8]])
    with pytest.raises(check.DifferenceError, match="more than once"):
        check.check_windows(flights, check.Result(windows, result.late, result.rejected, result.counted))


def test_a_late_row_that_is_not_reported_fails_the_check(flights, result):
    silent = check.Result(result.windows, result.late[1:], result.rejected, result.counted)
    with pytest.raises(check.DifferenceError):
        check.check_windows(flights, silent)
    with pytest.raises(check.DifferenceError, match="the job counted"):
        check.check_classes(flights, silent)


def test_a_late_row_reported_twice_fails_the_check(flights, result):
    late = pl.concat([result.late, result.late[:1]])
    with pytest.raises(check.DifferenceError, match="twice"):
        check.check_classes(flights, check.Result(result.windows, late, result.rejected, result.counted))


def test_a_late_row_that_was_no_input_fails_the_check(flights, result):
    late = result.late.with_columns(dep_delay=pl.col("dep_delay") + 1)
    with pytest.raises(check.DifferenceError, match="not rows of the input"):
        check.check_classes(flights, check.Result(result.windows, late, result.rejected, result.counted))


def test_with_a_lag_that_covers_the_disorder_nothing_is_late(flights):
    result = run_slowly(flights, 24 * check.HOUR_US)
    check.check_nothing_late(result)
    assert check.check_windows(flights, result) > 1000


def test_a_late_row_fails_the_check_that_nothing_is_late(result):
    with pytest.raises(check.DifferenceError):
        check.check_nothing_late(result)
