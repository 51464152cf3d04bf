"""Each cast against Spark itself (ANSI mode): values, errors and refusals, and the written list of what differs.

`EXCEPTIONS` is that list: each entry is a sentence of docs/expressions.md and the values that show it. A difference
that is not in it fails the test, and so does an entry that does not differ any more.
"""

import datetime
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jetfast.api.expressions import coalesce, col, lit, when
from jetfast.api.lowering import ExpressionTypeError, Way, lower
from jetfast.api.spark_types import is_number
from jetfast.api.time_text import write_timestamps

pytestmark = pytest.mark.spark

D = Decimal


NUMBER_TEXTS = [
    "1", " 12 ", "\t7\n", "\x001", "\xa01", "0x1F", "+5", "-5", "--5", "1.5", "1.", ".5", "-.5e-3", "1e3", "1E2",
    "1_0", "", "  ", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "300", "128", "-128",
    "00000000000000000000007", "1.5d", "1.5f", "1D", "0x1p3", "inf", "-Infinity", "+Inf", "NaN", "nan", "-nan",
    "1e400", "1e-400", "yes", "Y", "t", "TRUE", " True ", "on", "no", "F", "0", "2", "abc", "1 2", "1e", "1.005",
    "-1.005", "123456789.999", "99999999.995", "99999999.994", "0.1234567890123456785", "1e40", "1,000", "1L", "٣",
    None,
]  # fmt: skip
TIME_TEXTS = [
    "2020", "2020-1", "2020-1-2", "2020-01-02", "2020-01-02T", "2020-01-02 ", "2020-01-02 3", "2020-01-02 3:4",
    "2020-01-02 3:4:5", "2020-01-02T03:04:05", "2020-01-02 03:04:05.1", "2020-01-02 03:04:05.123456789",
    "2020-01-02 03:04:05Z", "2020-01-02 03:04:05+01", "2020-01-02 03:04:05+01:00", "2020-01-02 03:04:05 +01:00",
    "2020-01-02 03:04:05+0100", "2020-01-02 03:04:05 UTC", "2020-01-02 03:04:05 Europe/Berlin",
    "2020-01-02 03:04:05GMT+1", "2020-01-02T03:04:05-7:30", "  2020-01-02 03:04:05  ", "20200102", "2020/01/02",
    "2020-13-01", "2020-02-30", "2020-01-02 24:00:00", "2020-01-02 23:59:60", "12020-01-02", "+2020-01-02",
    "-2020-01-02", "0000-01-01", "0001-01-01", "9999-12-31 23:59:59.999999", "+10000-01-01", "2020-01-02abc",
    "2020-01-02 abc", "2020-01-02Tabc", "now", "epoch", "2021-03-28 02:30:00", "2021-10-31 02:30:00", "12:30",
    "2020-01-02 03:04:05.", "1582-10-10", "1500-01-01 00:00:00", "2020-01-02 03:04:05 CET",
    "2020-01-02 03:04:05+19:00", "2020-01-02 03:04:05+18:00", "2020-01-02 03:04:05 Nowhere/Else", None,
]  # fmt: skip
FLOATS = [
    0.0, -0.0, 1.0, 1.5, -1.9, 0.1, 1e7, 9999999.0, 1e-3, 9.999e-4, 123456789.125, 1e16, 1e20, 1e300, 5e-324, 2e-3,
    2e23, 1.1e-5, 2.0**53, 2.0**63, -(2.0**63), 2147483647.5, 2147483648.0, -2147483648.9, 127.9, 128.0, -128.9,
    math.nan, math.inf, -math.inf, 0.005, 1.005, 2.675, 99999999.995, 99999999.994, 12345.678, 4.35, 1 / 3, None,
]  # fmt: skip
FLOATS32 = [
    0.0, 1.0, 0.1, 1.1, 16777216.0, 3.4e38, 1e-3, 1e7, 9.223372e18, 2.0**31, 1.4e-45, 0.005, math.nan, math.inf, 1e10,
    0.3, None,
]  # fmt: skip
INTEGERS = [
    0,
    1,
    -1,
    127,
    128,
    2**31 - 1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    12345678901,
    99999999,
    100000000,
    None,
]
TIMES = [
    0, 1, -1, 1591014600_120000, 1616898600_000000, 1635647400_000000, 1635640200_000000, -62135596800_000000,
    253402300799_999999, 253402300800_000000, -62135596800_000001, -377705116800_000000, None,
]  # fmt: skip
DAYS = [0, 1, -1, 18414, -719162, -719163, 2932896, 2932897, None]

SOURCES = {
    "number text": pa.array(NUMBER_TEXTS),
    "time text": pa.array(TIME_TEXTS),
    "boolean": pa.array([True, False, None]),
    "tinyint": pa.array([0, 1, -1, 127, -128, None], pa.int8()),
    "bigint": pa.array(INTEGERS, pa.int64()),
    "float": pa.array(FLOATS32, pa.float32()),
    "double": pa.array(FLOATS),
    "decimal(10,2)": pa.array(
        [D(n).scaleb(-2) for n in (0, 150, -199, 9999999999, 12799, 12800, 5, 30, 104, 105, -105)] + [None],
        pa.decimal128(10, 2)
    ),
    "decimal(38,18)": pa.array([D(0), D("1e-18"), D("0.1234567"), D("-0.3"), D("12345678901234567890.5"), None],
    pa.decimal128(38, 18)), "decimal(38,0)": pa.array([D(0), D(2**126), D(-(2**63)), D(2**63), D(2**64), None],
    pa.decimal128(38, 0)), "date": pa.array(DAYS, pa.date32()),
    "timestamp": pa.array(TIMES, pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array(TIMES, pa.timestamp("us")),
    "binary": pa.array([b"abc", b"12", b"", None]),
}  # fmt: skip
TARGETS = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(3,1)": pa.decimal128(3, 1), "decimal(38,18)": pa.decimal128(38, 18), "decimal(5,0)": pa.decimal128(5, 0),
    "decimal(38,0)": pa.decimal128(38, 0), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip

REFUSED, ERROR, WORKS = "refused", "error", "works"
Answer = object

NUMBER_TARGETS = [name for name, data_type in TARGETS.items() if is_number(data_type)]
TIME_COUNTS = [value for value in TIMES if value]

# Sentence of docs/expressions.md: (source, target, value) for each value that differs; REFUSED or WORKS for all.
EXCEPTIONS: dict[str, list[tuple[str, str, Answer]]] = {
    "A float of 2^63 is too great for `bigint`, and so an error; Spark gives the greatest `bigint`.": [
        ("double", "bigint", 2.0**63), ("float", "bigint", SOURCES["float"][8].as_py()),
    ],
    "Floats as text, and as decimals, have the fewest digits that give the value back; Java 17 under Spark sometimes "
    "writes others (`2.0E23` is `1.9999999999999998E23` there).": [
        ("float", "string", 2.0**31), ("float", "string", SOURCES["float"][10].as_py()), ("double", "string", 5e-324),
        ("double", "string", 2e23), ("double", "decimal(38,0)", 2e23),
    ],
    "Hexadecimal floats (`0x1p3`) and digits other than 0 to 9 are errors; Spark reads the former as floats and the "
    "latter as decimals.": [
        ("number text", "float", "0x1p3"), ("number text", "double", "0x1p3"),
        *(("number text", target, "\u0663") for target in TARGETS if target.startswith("decimal")),
    ],
    "A time without a day (`12:30`) is an error; Spark takes today.": [("time text", "timestamp", "12:30")],
    "Offsets from UTC reach to 23:59; Spark's to 18:00.": [
        (source, target, "2020-01-02 03:04:05+19:00")
        for source, target in (("time text", "timestamp"), ("time text", "timestamp_ntz"))
    ],
    "A number cast to or from a time counts the unit of its type since 1970 (`timestamp[us]` microseconds, `date32` "
    "days); Spark counts seconds. Only an integer as wide as the time can be cast so.": [
        *(("bigint", "timestamp", value) for value in INTEGERS if value not in (0, None, 2**63 - 1, -(2**63))),
        ("bigint", "timestamp_ntz", WORKS),
        *((source, "timestamp", REFUSED) for source in ("tinyint", "float", "double")),
        *((source, "timestamp", REFUSED) for source in SOURCES if source.startswith("decimal")),
        ("date", "int", WORKS),
        *(("timestamp", "bigint", value) for value in TIME_COUNTS if value != -1),
        ("timestamp_ntz", "bigint", WORKS),
        *(("timestamp", target, REFUSED) for target in NUMBER_TARGETS if target != "bigint"),
    ],
}  # fmt: skip


def of_spark(frame: Any, target: str) -> list[Answer] | str:
    """Return what Spark gives for each row, ERROR where it fails; or REFUSED."""
    cast = f"try_cast(x as {target})"
    shown = {"date": f"unix_date({cast})", "timestamp": f"unix_micros({cast})"}
    shown["timestamp_ntz"] = f"unix_micros(cast(concat(cast({cast} as string), 'Z') as timestamp))"
    try:
        result = frame.coalesce(1).selectExpr("x is null as n", f"{shown.get(target, cast)} as r").toArrow()
    except Exception as error:
        if "DATATYPE_MISMATCH" in str(error):
            return REFUSED
        raise
    return with_errors(result.column("n").to_pylist(), comparable(result.column("r")))


def with_errors(missing: list[bool], values: list[Answer]) -> list[Answer]:
    return [ERROR if value is None and not is_null else value for is_null, value in zip(missing, values, strict=True)]


def of_ours(array: pa.Array, target: pa.DataType) -> list[Answer] | str:
    """Return what `try_cast` gives, after checking that `cast` and on_error="null" say the same."""
    rows = pa.record_batch({"x": array})
    try:
        lowered = lower(col("x").try_cast(target), rows.schema)
        strict = lower(col("x").cast(target), rows.schema)
    except ExpressionTypeError:
        return REFUSED
    result = lowered.evaluate(rows, Way.QUICK)
    assert result.type == target
    by_on_error = lower(col("x").cast(target), rows.schema, null_on_error=True).evaluate(rows, Way.FORGIVING)
    assert comparable(by_on_error) == comparable(result)
    failed = pc.and_(array.is_valid(), result.is_null())
    good = pc.invert(failed)
    for way in (Way.QUICK, Way.CAREFUL):
        assert comparable(strict.evaluate(rows.filter(good), way)) == comparable(result.filter(good))
        for row, has_failed in enumerate(failed.to_pylist()):
            if has_failed:
                with pytest.raises(pa.ArrowInvalid):
                    strict.evaluate(rows.slice(row, 1), way)
    return with_errors(array.is_null().to_pylist(), comparable(result))


def comparable(array: Any) -> list[Answer]:
    """Times as counts, which reach further than Python's; floats so that NaN equals itself, and -0.0 not 0.0."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    return [repr(value) if isinstance(value, float) else value for value in array.to_pylist()]


def frame_of(spark: Any, array: pa.Array) -> Any:
    if not pa.types.is_timestamp(array.type) or array.type.tz is not None:
        return spark.createDataFrame(pa.table({"x": array}))
    texts = spark.createDataFrame(pa.table({"text": write_timestamps(array)}))  # Arrow's would get the session's zone
    return texts.selectExpr("cast(text as timestamp_ntz) as x")


def differences(
    spark: Any, sources: dict[str, pa.Array], targets: dict[str, pa.DataType]
) -> list[tuple[str, str, Answer]]:
    found: list[tuple[str, str, Answer]] = []
    for (source, array), (target, data_type) in itertools.product(sources.items(), targets.items()):
        theirs = of_spark(frame_of(spark, array), target)
        ours = of_ours(array, data_type)
        if theirs == REFUSED or ours == REFUSED:
            if theirs != ours:
                found.append((source, target, REFUSED if ours == REFUSED else WORKS))
            continue
        shown = comparable(array) if pa.types.is_temporal(array.type) else array.to_pylist()
        found += [
            (source, target, value) for value, one, other in zip(shown, ours, theirs, strict=True) if one != other
        ]
    return found


def test_each_cast_gives_what_spark_gives_but_for_the_written_exceptions(make_spark_session: Any) -> None:
    found = differences(make_spark_session("local[4]"), SOURCES, TARGETS)
    written = [entry for entries in EXCEPTIONS.values() for entry in entries]
    assert set(map(str, found)) == set(map(str, written))


def test_each_exception_is_in_the_documentation() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "expressions.md").read_text(encoding="utf-8").split())
    for sentence in EXCEPTIONS:
        assert sentence in page


ZONE = "Europe/Berlin"
LOCAL_TEXTS = [
    "2021-03-28 01:59:59", "2021-03-28 02:30:00", "2021-03-28 03:00:00", "2021-10-31 02:30:00", "2021-10-31 03:00:00",
    "1850-01-01", "2021-10-31 02:30:00Z", "2021-10-31 02:30:00 America/New_York", "2021-07-01 00:00:00.5+02:00", None,
]  # fmt: skip
INSTANTS = [0, -1, 1616893199_000000, 1616893200_000000, 1635640200_000000, 1635643800_000000, -3786829999_000000, None]
LOCAL = [0, -1, 1616898600_000000, 1616900400_000000, 1635647400_000000, 1635649200_500000, None]


def test_the_zone_of_a_type_is_what_the_session_zone_is_in_spark(make_spark_session: Any) -> None:
    spark = make_spark_session("local[4]")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        zoned = pa.timestamp("us", ZONE)
        sources = {"text": pa.array(LOCAL_TEXTS), "naive": pa.array(LOCAL, pa.timestamp("us"))}
        sources["day"] = pa.array([0, -1, 18714, 18931, None], pa.date32())
        assert differences(spark, sources, {"timestamp": zoned}) == []
        targets = {"string": pa.string(), "date": pa.date32(), "timestamp_ntz": pa.timestamp("us")}
        assert differences(spark, {"zoned": pa.array(INSTANTS, zoned)}, targets) == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_literals_without_a_zone_mean_local_time_as_in_spark(make_spark_session: Any) -> None:
    spark = make_spark_session("local[4]")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    rows = pa.record_batch({"t": pa.array(INSTANTS, pa.timestamp("us", ZONE))})
    day, local = datetime.date(2021, 3, 28), datetime.datetime(2021, 10, 31, 2, 30)
    pairs = [
        (col("t") >= "2021-03-28 02:30:00", "t >= '2021-03-28 02:30:00'"),
        (col("t") >= "2021-10-31 02:30:00", "t >= '2021-10-31 02:30:00'"),
        (col("t") >= local, "t >= timestamp_ntz'2021-10-31 02:30:00'"),
        (col("t") == local, "t = timestamp_ntz'2021-10-31 02:30:00'"),
        (col("t") > day, "t > date'2021-03-28'"),
        (lit(day) > col("t"), "date'2021-03-28' > t"),
        (col("t").between(day, local), "t between date'2021-03-28' and timestamp_ntz'2021-10-31 02:30:00'"),
        (col("t").isin(local, day), "t in (cast(timestamp_ntz'2021-10-31 02:30:00' as timestamp), date'2021-03-28')"),
        (coalesce(col("t"), local), "coalesce(t, timestamp_ntz'2021-10-31 02:30:00')"),
        (
            when(col("t") > day, col("t")).otherwise(day),
            "case when t > date'2021-03-28' then t else date'2021-03-28' end",
        ),
    ]
    try:
        frame = spark.createDataFrame(pa.table({"t": rows.column("t")})).coalesce(1)
        result = frame.selectExpr(*(f"{sql} as c{index}" for index, (_, sql) in enumerate(pairs))).toArrow()
        for index, (ours, sql) in enumerate(pairs):
            column = lower(ours, rows.schema).evaluate(rows, Way.CAREFUL)
            assert comparable(column) == comparable(result.column(index)), sql
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_bytes_that_are_no_text_are_an_error_and_spark_keeps_them(make_spark_session: Any) -> None:
    array = pa.array([b"abc", b"\xff"])
    assert of_ours(array, pa.string()) == ["abc", ERROR]
    frame = make_spark_session("local[4]").createDataFrame(pa.table({"x": array}))
    assert frame.selectExpr("hex(cast(x as string)) as r").toArrow().column(0).to_pylist() == ["616263", "FF"]
