"""Values that text cannot hold: an error that names row and column, never a file with other values in it."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast.connectors.files import files
from jetfast.connectors.text_values import Inexpressible, check_expressible
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Guarantee
from jetfast.errors import JobDefinitionError, JobFailedError
from tests.connectors.reading import context, read_all, write_all

DAY_S = 86_400
YEAR_10000_S = 253_402_300_800
YEAR_0_S = -62_167_219_200
LOCAL_MEAN_TIMES = {"Europe/Berlin": -2_422_054_408, "America/New_York": -2_717_650_800, "Africa/Monrovia": 63_593_070}
"""First second at which a zone is whole minutes away from UTC."""
UNITS = {"s": 1, "ms": 10**3, "us": 10**6}


def numbers(column_type: pa.DataType, *values: int) -> pa.Array:
    return pa.array(values, pa.int32() if column_type.bit_width == 32 else pa.int64()).view(column_type)


def edges() -> list[tuple[pa.Array, bool]]:
    """(values, can text express them) at and beyond the ends of every type of time."""
    found = []
    for unit, factor in UNITS.items():
        first, end = YEAR_0_S * factor, YEAR_10000_S * factor
        for zone in (None, "UTC"):
            stamp = pa.timestamp(unit, zone)
            found += [(numbers(stamp, first, end - 1), True), (numbers(stamp, end), False)]
            found += [(numbers(stamp, first - 1), False), (numbers(stamp, 2**63 - 1), False)]
            found += [(numbers(stamp, -(2**63)), False)]
        east, west = pa.timestamp(unit, "+02:00"), pa.timestamp(unit, "-02:00")
        found += [(numbers(east, end - 7200 * factor), False), (numbers(east, end - 7200 * factor - 1), True)]
        found += [(numbers(west, end), True), (numbers(west, end + 7200 * factor), False)]
        found += [(numbers(east, first - 7200 * factor), True), (numbers(west, first), False)]
    hour_ns = 3600 * 10**9
    first_ns, last_ns = -9_223_372_036 * 10**9, 2**63 - 1
    for zone in (None, "UTC", "+02:00", "-02:00", "Europe/Berlin", "America/New_York"):
        found += [(numbers(pa.timestamp("ns", zone), -(2**62), last_ns - 3 * hour_ns), zone not in LOCAL_MEAN_TIMES)]
        found += [(numbers(pa.timestamp("ns", zone), first_ns - 1), False)]
        found += [(numbers(pa.timestamp("ns", zone), -(2**63)), False)]
        found += [(numbers(pa.timestamp("ns", zone), last_ns), zone not in ("+02:00", "Europe/Berlin"))]
    for zone in (None, "UTC", "+02:00"):
        found += [(numbers(pa.timestamp("ns", zone), first_ns), True)]
    east, west = pa.timestamp("ns", "+02:00"), pa.timestamp("ns", "-02:00")
    found += [(numbers(east, last_ns - 2 * hour_ns), True), (numbers(east, last_ns - 2 * hour_ns + 1), False)]
    found += [(numbers(west, first_ns + 2 * hour_ns), True), (numbers(west, first_ns + 2 * hour_ns - 1), False)]
    for unit, factor in {**UNITS, "ns": 10**9}.items():
        for zone, seconds in LOCAL_MEAN_TIMES.items():
            stamp = pa.timestamp(unit, zone)
            found += [(numbers(stamp, seconds * factor, 10**9 * factor), True)]
            found += [(numbers(stamp, seconds * factor - 1, 10**9 * factor), False)]
    for time in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        day = DAY_S * {**UNITS, "ns": 10**9}[time.unit]
        found += [(numbers(time, 0, day - 1), True), (numbers(time, day), False), (numbers(time, -1), False)]
    found += [(numbers(pa.date32(), YEAR_0_S // DAY_S, YEAR_10000_S // DAY_S - 1), True)]
    found += [(numbers(pa.date32(), YEAR_10000_S // DAY_S), False), (numbers(pa.date32(), -(2**31)), False)]
    found += [(numbers(pa.date64(), YEAR_10000_S * 1000), False), (numbers(pa.date64(), -(2**62)), False)]
    return found


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_times_that_text_can_express_read_back_and_others_are_refused(tmp_path: Path, file_format: str) -> None:
    for number, (column, expressible) in enumerate(edges()):
        table = pa.table({"x": column})
        sink = files(tmp_path / str(number), file_format)
        if not expressible:
            with pytest.raises(JobFailedError, match=r"row 0, column 'x'.* which text cannot express"):
                write_all(sink, table.schema, [table])
            continue
        write_all(sink, table.schema, [table])
        read = files(tmp_path / str(number), schema=table.schema)
        (partition,) = read.partitions()
        reader = read.open_reader(partition, None, context())
        rows = reader.read()
        assert rows is not None
        assert rows.rejected is None, f"{column.type}: {rows.rejected.to_arrow().to_pylist()}"
        assert rows.batch.to_arrow().column(0).equals(column), column
        reader.close()


NESTINGS: list[Any] = [
    lambda column: column,
    lambda column: pa.StructArray.from_arrays([column], ["a"]),
    lambda column: pa.ListArray.from_arrays(list(range(len(column) + 1)), column),
    lambda column: pa.LargeListArray.from_arrays(list(range(len(column) + 1)), column),
    lambda column: pa.FixedSizeListArray.from_arrays(column, 1),
    lambda column: pa.ListViewArray.from_arrays(list(range(len(column))), [1] * len(column), column),
    lambda column: column.dictionary_encode(),
]


@pytest.mark.parametrize("nest", range(len(NESTINGS)))
def test_the_row_and_the_column_are_named_wherever_the_value_is(nest: int) -> None:
    stamps = numbers(pa.timestamp("us"), *range(1000))
    bad = numbers(pa.timestamp("us"), *range(700), 2**62, *range(299))
    chunks = pa.chunked_array([NESTINGS[nest](stamps), NESTINGS[nest](bad)])
    table = pa.table({"id": list(range(2000)), "at": chunks})
    with pytest.raises(Inexpressible, match=r"^row 11700, column 'at': timestamp\[us\] 4611686018427387904 is outside"):
        check_expressible(table, 10_000)
    check_expressible(table.slice(0, 1700), 0)
    check_expressible(table.slice(1701), 0)


@pytest.mark.parametrize(
    "column_type", [pa.timestamp("s"), pa.timestamp("s", "Europe/Berlin"), pa.time32("s")], ids=str
)
def test_seconds_that_parquet_cannot_hold_as_milliseconds_are_refused(tmp_path: Path, column_type: pa.DataType) -> None:
    greatest = (2 ** (column_type.bit_width - 1) - 1) // 1000
    nestings = [*NESTINGS[:4], NESTINGS[6], as_maps]
    for place, nest in enumerate(nestings):
        held = pa.table({"id": [0, 1], "at": nest(numbers(column_type, -greatest, greatest))})
        write_all(files(tmp_path / f"{place}.parquet"), held.schema, [held])
        assert pq.read_table(tmp_path / f"{place}.parquet").num_rows == 2
        for beyond in (greatest + 1, -greatest - 1):
            table = pa.table({"id": [0, 1], "at": nest(numbers(column_type, 0, beyond))})
            where = rf"x{place}\.parquet: row 3, column 'at': .* {beyond} is beyond the milliseconds"
            with pytest.raises(JobFailedError, match=where):
                write_all(files(tmp_path / f"x{place}.parquet"), table.schema, [held, table])
            assert not (tmp_path / f"x{place}.parquet").exists()


def as_maps(column: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(list(range(len(column) + 1)), pa.array(["k"] * len(column)), column)


def test_values_behind_a_null_do_not_count() -> None:
    times = numbers(pa.time32("s"), 1, 2**31 - 1)
    hidden = pa.StructArray.from_arrays([times], ["a"], mask=pa.array([False, True]))
    check_expressible(pa.table({"x": hidden}), 0)


@pytest.mark.parametrize("guarantee", [Guarantee.NONE, Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_a_job_fails_before_the_file_is_finished(tmp_path: Path, guarantee: Guarantee, file_format: str) -> None:
    table = pa.table({"id": [1, 2], "at": numbers(pa.time64("us"), 5, DAY_S * 10**6)})
    pipeline = jf.Pipeline("times")
    pipeline.read(jf.memory(table)).write(files(tmp_path / "out", file_format))
    store = jf.snapshots.directory(str(tmp_path / "snapshots"))
    job = jf.LocalCluster(workers=1, snapshot_store=store).submit(pipeline, guarantee=guarantee, progress=False)
    with pytest.raises(JobFailedError, match=r"part-.*: row 1, column 'at': time64\[us\] 86400000000 is no time"):
        job.wait()
    assert not [name for name in os.listdir(tmp_path / "out") if not name.startswith(".")]


def test_nested_values_in_json_are_what_values_of_columns_are(tmp_path: Path) -> None:
    durations = pa.array([5], pa.duration("s"))
    stamps = numbers(pa.timestamp("ns"), 1)
    floats = pa.array([float("nan"), 1.5, float("-inf"), None])
    row = {
        "durations": pa.ListArray.from_arrays([0, 1], durations),
        "stamps": pa.StructArray.from_arrays([stamps, pa.array(["x"])], ["a", "b"]),
        "floats": pa.ListArray.from_arrays([0, 4], floats),
        "views": pa.ListArray.from_arrays([0, 1], pa.array(["v"], pa.string_view())),
    }
    path = tmp_path / "x.jsonl"
    write_all(files(path), pa.table(row).schema, [pa.table(row)])
    assert path.read_text() == (
        '{"durations":[5],"stamps":{"a":"1970-01-01 00:00:00.000000001","b":"x"},'
        '"floats":[NaN,1.5,-Infinity,null],"views":["v"]}\n'
    )
    read = json.loads(path.read_text())["floats"]
    (again,) = read_all(files(path))
    assert repr(again["floats"]) == repr(read)


def test_text_that_is_no_utf8_is_an_error_that_names_its_column(tmp_path: Path) -> None:
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    bad = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    writer = files(tmp_path / "x.jsonl").open_writer(pa.schema([("x", pa.string())]), context())
    writer.write(Batch.from_arrow(pa.record_batch({"x": bad})))
    with pytest.raises(JobFailedError, match=r"column 'x': 'utf-8' codec can't decode"):
        writer.finish()
    writer.abort()


@pytest.mark.parametrize("file_format", ["csv", "json"])
@pytest.mark.parametrize(
    "column_type",
    [
        pa.month_day_nano_interval(),
        pa.dictionary(pa.int32(), pa.binary()),
        pa.list_(pa.month_day_nano_interval()),
        pa.list_(pa.dictionary(pa.int8(), pa.large_binary())),
        pa.list_(pa.uuid()),
    ],
)
def test_types_that_text_cannot_hold_are_refused_by_column(
    tmp_path: Path, file_format: str, column_type: pa.DataType
) -> None:
    schema = pa.schema([("good", pa.int64()), ("bad", column_type)])
    with pytest.raises(JobDefinitionError, match="'bad'"):
        files(tmp_path / "out", file_format).check(schema)
