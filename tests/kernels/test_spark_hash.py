"""assign_partitions against PySpark itself: random rows of every type that Spark can hold, alone and together."""

import os
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import assign_partitions, hash_columns
from tests.kernels.arrow_strategies import KEY_TYPES, arrays, raw_storage

pytestmark = pytest.mark.spark

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@pytest.fixture(scope="module")
def spark() -> Iterator[object]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    yield session
    session.stop()


def as_spark_takes_it(array: pa.Array) -> pa.Array:
    """The same values in a type that Spark reads from Arrow; the cast is written down in csrc/jetfast/hash.hpp."""
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        entries = as_spark_takes_it(array.dictionary)
        codes = array.indices.to_pylist()
        indices = pa.array(codes, pa.int64())
        return entries.take(indices)
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
    if data_type in wider:
        return array.cast(wider[data_type])
    if data_type == pa.string_view():
        return array.cast(pa.string())
    if data_type == pa.binary_view():
        return array.cast(pa.binary())
    if pa.types.is_decimal(data_type):
        return array.cast(pa.decimal128(data_type.precision, data_type.scale))
    if data_type == pa.date64():
        return array.cast(pa.date32())
    storage = raw_storage(data_type)
    if storage is None or pa.types.is_date(data_type):
        return array
    values = array.view(storage).to_pylist()
    target, per_second = (pa.time64("ns"), 10**9) if pa.types.is_time(data_type) else (pa.duration("us"), 10**6)
    if pa.types.is_timestamp(data_type):
        target = pa.timestamp("us", data_type.tz)
    scaled = [None if value is None else value * per_second // _PER_SECOND[data_type.unit] for value in values]
    return pa.array(scaled, pa.int64()).view(target)


def spark_hashes(spark: object, columns: list[pa.Array]) -> list[tuple[int, int]]:
    """hash(...) and pmod(hash(...), 271) of each row."""
    names = [f"c{index}" for index in range(len(columns))]
    table = pa.table([as_spark_takes_it(column) for column in columns], names)
    expression = f"hash({', '.join(names)})"
    result = spark.createDataFrame(table).selectExpr(f"{expression} AS h", f"pmod({expression}, 271) AS p").toArrow()
    return list(zip(result.column("h").to_pylist(), result.column("p").to_pylist(), strict=True))


@pytest.mark.parametrize("data_type", KEY_TYPES, ids=str)
def test_each_type_hashes_as_in_spark(spark: object, data_type: pa.DataType) -> None:
    @seed(271)
    @settings(max_examples=2, deadline=None)
    @given(st.integers(60, 100).flatmap(lambda rows: arrays(data_type, rows)))
    def check(array: pa.Array) -> None:
        expected = spark_hashes(spark, [array])
        assert hash_columns(array).tolist() == [value for value, _ in expected]
        assert assign_partitions(array).tolist() == [partition for _, partition in expected]

    check()


def test_several_columns_chain_as_in_spark(spark: object) -> None:
    @seed(271)
    @settings(max_examples=12, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        row_count = data.draw(st.integers(1, 60))
        types = data.draw(st.lists(st.sampled_from(KEY_TYPES), min_size=2, max_size=8))
        columns = [data.draw(arrays(data_type, row_count)) for data_type in types]
        expected = spark_hashes(spark, columns)
        assert hash_columns(columns).tolist() == [value for value, _ in expected]
        rows = Batch.from_arrow(pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))]))
        assert assign_partitions(rows).tolist() == [partition for _, partition in expected]

    check()


def test_nan_and_both_zeros_hash_as_in_spark(spark: object) -> None:
    patterns = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001, 1 << 63, 0], dtype=np.uint64)
    narrow = np.array([0x7FC00000, 0xFFC00001, 0x7F800001, 1 << 31, 0], dtype=np.uint32)
    for array in (pa.array(patterns.view(np.float64)), pa.array(narrow.view(np.float32))):
        assert hash_columns(array).tolist() == [value for value, _ in spark_hashes(spark, [array])]


def test_many_rows_hash_as_in_spark(spark: object) -> None:
    generator = np.random.default_rng(7)
    columns = [
        pa.array(generator.integers(-(2**63), 2**63 - 1, 20_000), mask=generator.random(20_000) < 0.1),
        pa.array([generator.bytes(length).hex() for length in generator.integers(0, 30, 20_000)]),
        pa.array(generator.integers(-(2**31), 2**31 - 1, 20_000), pa.int32()),
    ]
    for chosen in ([columns[0]], [columns[1]], [columns[2]], columns):
        assert hash_columns(chosen).tolist() == [value for value, _ in spark_hashes(spark, chosen)]
