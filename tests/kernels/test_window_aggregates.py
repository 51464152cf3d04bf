"""Aggregates of a window: every type that has one, what it gives for nulls and NaN, and when it does not fit."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from jetfast.core.aggregate import AggregateKind, result_type
from jetfast.kernels.columns import Batch
from jetfast.kernels.windows import AGGREGATE_KINDS, WindowTable, aggregate_result_type
from jetfast.types import MAX_TIME
from tests.kernels.reference_windows import aggregate


def one_window(values: pa.Array, kinds: Sequence[str], keys: Sequence[int] | None = None) -> dict[str, Any]:
    """Aggregates of one column in one window, one global key (or `keys`), as a column of results each."""
    times_column = pa.array(range(len(values)), pa.int64()).cast(pa.timestamp("us"))
    key_column = pa.array(keys if keys is not None else [0] * len(values), pa.int64())
    batch = pa.record_batch([key_column, times_column, values], names=["k", "t", "v"])
    aggregates = [(kind, kind, None if kind == "count" else "v") for kind in kinds]
    table = WindowTable(batch.schema, ["k"], "t", aggregates, 1_000_000, 1_000_000)
    table.accumulate(Batch.from_arrow(batch))
    table.advance(MAX_TIME)
    result = table.emit()
    assert result is not None
    result.to_arrow().validate(full=True)
    return {kind: result.to_arrow().column(kind) for kind in kinds}


NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal128(38, 6)),
]
ORDERED = [
    *(pa.bool_(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.duration("us")),
]


@pytest.mark.parametrize("data_type", NUMBERS, ids=str)
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_every_number_type_has_every_aggregate(data_type: pa.DataType, encoded: bool) -> None:
    numbers = [1, 100, None, 7, 7, 0] if str(data_type).startswith("uint") else [-100, 1, 100, None, 7, 7, 0]
    if pa.types.is_decimal(data_type):
        column = pa.array([None if number is None else Decimal(number) for number in numbers], data_type)
    else:
        column = pa.array(
            [None if number is None else data_type.to_pandas_dtype()(number) for number in numbers], data_type
        )
    if encoded:
        column = pa.DictionaryArray.from_arrays(
            pa.array([None if number is None else place for place, number in enumerate(numbers)], pa.int32()), column
        )
    results = one_window(column, AGGREGATE_KINDS)
    for kind, result in results.items():
        assert result.type == aggregate_result_type(kind, None if kind == "count" else column.type)
        exact = aggregate(kind, [None if number is None else Fraction(number) for number in numbers])
        assert float(result[0].as_py()) == pytest.approx(float(exact), rel=1e-6 if kind == "mean" else 1e-12)


@pytest.mark.parametrize("data_type", ORDERED, ids=str)
def test_times_and_booleans_have_a_least_and_a_greatest(data_type: pa.DataType) -> None:
    if pa.types.is_boolean(data_type):
        column, least, greatest = pa.array([None, True, False]), False, True
    elif data_type == pa.date64():
        column, least, greatest = (
            pa.array([86_400_000, None, -86_400_000], pa.int64()).cast(data_type),
            -86_400_000,
            86_400_000,
        )
    else:
        storage = pa.int32() if data_type.bit_width == 32 else pa.int64()
        column, least, greatest = pa.array([7, None, 2, 90_000], storage).cast(data_type), 2, 90_000
    results = one_window(column, ["min", "max", "count_values"])
    assert results["min"].type == results["max"].type == data_type
    storage = pa.bool_() if pa.types.is_boolean(data_type) else pa.int32() if data_type.bit_width == 32 else pa.int64()
    assert results["min"].view(storage).to_pylist() == [least]
    assert results["max"].view(storage).to_pylist() == [greatest]
    assert results["count_values"].to_pylist() == [len(column) - 1]


@pytest.mark.parametrize("data_type", [*NUMBERS, *ORDERED], ids=str)
def test_a_window_of_nulls_gives_null_and_counts_no_value(data_type: pa.DataType) -> None:
    kinds = AGGREGATE_KINDS if data_type in NUMBERS else ("count", "count_values", "min", "max")
    for kind, result in one_window(pa.nulls(3, data_type), kinds).items():
        assert result.to_pylist() == [{"count": 3, "count_values": 0}.get(kind)]


def test_values_of_any_type_can_be_counted() -> None:
    for column in (
        pa.array(["a", None, "b"]),
        pa.array([[1], None, []]),
        pa.array([{"x": 1}, None, {"x": 2}]),
        pa.array(["a", None, "a"]).dictionary_encode(),
    ):
        assert one_window(column, ["count", "count_values"])["count_values"].to_pylist() == [2]
    assert one_window(pa.nulls(3), ["count", "count_values"])["count_values"].to_pylist() == [0]


@pytest.mark.parametrize("kind", ["var_samp", "stddev_samp"])
def test_sample_variance_of_one_value_is_null_as_in_spark(kind: str) -> None:
    assert one_window(pa.array([5.0, None]), [kind])[kind].to_pylist() == [None]
    assert one_window(pa.array([5.0]), ["var_pop", "stddev_pop"])["var_pop"].to_pylist() == [0.0]


def test_nan_is_greater_than_every_number() -> None:
    results = one_window(pa.array([math.inf, math.nan, 1.0]), ["min", "max"])
    assert results["min"].to_pylist() == [1.0]
    assert math.isnan(results["max"][0].as_py())
    assert math.isnan(one_window(pa.array([math.nan]), ["min"])["min"][0].as_py())


def test_decimal_means_are_rounded_half_up_away_from_zero() -> None:
    for sign in (1, -1):
        column = pa.array(
            [Decimal(sign), Decimal(0), Decimal(0), Decimal(0), Decimal(0), Decimal(0)], pa.decimal128(38, 4)
        )
        assert one_window(column, ["mean"])["mean"].to_pylist() == [sign * Decimal("0.16666667")]
        column = pa.array([sign * Decimal("0.01"), *[Decimal(0)] * 15], pa.decimal64(10, 2))  # 0.000625
        assert one_window(column, ["mean"])["mean"].to_pylist() == [sign * Decimal("0.000625")]
        column = pa.array([sign * Decimal("0.01"), *[Decimal(0)] * 31], pa.decimal64(10, 2))  # 0.0003125
        assert one_window(column, ["mean"])["mean"].to_pylist() == [sign * Decimal("0.000313")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            pa.array([2**63 - 1, 1]),
            r"aggregate 'sum': sum of 'v' does not fit int64 for key k=0 in the window \[1970-01-01T",
        ),
        (pa.array([-(2**63), -1]), "does not fit int64"),
        (pa.array([2**63], pa.uint64()), "does not fit int64"),
        (pa.array([Decimal(9 * 10**37)] * 2, pa.decimal128(38, 0)), r"does not fit decimal128\(38, 0\)"),
        (pa.array([Decimal(9 * 10**37)] * 4, pa.decimal128(38, 0)), r"does not fit decimal128\(38, 0\)"),  # past 2^128
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_naming_key_and_window(values: pa.Array, message: str) -> None:
    with pytest.raises(OverflowError, match=message):
        one_window(values, ["sum"])


def test_sums_may_pass_the_limits_on_the_way() -> None:
    assert one_window(pa.array([2**63 - 1, 5, -6]), ["sum", "mean"])["sum"].to_pylist() == [2**63 - 2]
    big = Decimal(9 * 10**37)
    assert one_window(pa.array([big, big, -big, -big, Decimal(1)], pa.decimal128(38, 0)), ["sum"])[
        "sum"
    ].to_pylist() == [1]


@pytest.mark.parametrize("kind", [kind.value for kind in AggregateKind])
def test_kinds_and_result_types_are_those_of_the_api(kind: str) -> None:
    assert kind in AGGREGATE_KINDS
    for data_type in (*NUMBERS, *ORDERED, pa.string(), pa.decimal256(40, 2), pa.month_day_nano_interval()):
        try:
            wanted = result_type(AggregateKind(kind), data_type)
        except TypeError as error:
            schema = pa.schema([("t", pa.date32()), ("v", data_type)])
            with pytest.raises(TypeError, match=re.escape(str(error))):
                WindowTable(schema, [], "t", [("a", kind, "v")], 10, 10)
        else:
            table = WindowTable(pa.schema([("t", pa.date32()), ("v", data_type)]), [], "t", [("a", kind, "v")], 10, 10)
            assert table.output_schema.field("a").type == wanted
