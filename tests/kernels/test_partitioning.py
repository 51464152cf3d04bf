"""Hashes and partitions equal Spark's; splitting a batch keeps every row, in order, at its owner."""

import datetime
import itertools
import os
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import Splitter, assign_partitions, check_key_types, hash_columns, simd
from tests.kernels import reference_hash
from tests.kernels.arrow_strategies import KEY_TYPES, UNHASHABLE_TYPES, arrays, columns_of, floats_with_nan


@settings(max_examples=150, deadline=None)
@given(columns_of(KEY_TYPES))
def test_hashes_equal_the_reference(rows: pa.RecordBatch) -> None:
    expected = reference_hash.hash_rows(rows.columns)
    assert hash_columns(rows).tolist() == expected
    assert hash_columns(rows.columns).tolist() == expected
    assert hash_columns(Batch.from_arrow(rows)).tolist() == expected
    assert assign_partitions(rows.columns).tolist() == [value % 271 for value in expected]


@pytest.mark.parametrize("data_type", KEY_TYPES, ids=str)
def test_each_type_hashes_like_the_reference(data_type: pa.DataType) -> None:
    @settings(max_examples=10, deadline=None)
    @given(arrays(data_type))
    def check(array: pa.Array) -> None:
        assert hash_columns(array).tolist() == reference_hash.hash_rows([array])

    check()


@settings(max_examples=30, deadline=None)
@given(st.lists(floats_with_nan(64)), st.lists(floats_with_nan(32)))
def test_every_nan_is_one_key_and_so_are_both_zeros(doubles: list[float], floats: list[float]) -> None:
    for array in (pa.array(doubles, pa.float64()), pa.array(np.array(floats, dtype=np.float32))):
        assert hash_columns(array).tolist() == reference_hash.hash_rows([array])
    zeros = hash_columns(pa.array([0.0, -0.0]))
    assert zeros[0] == zeros[1]


@pytest.mark.parametrize(
    ("array", "expected"),
    [  # printed by PySpark 4.3.0: SELECT hash(...)
        (pa.array([1, 0, -1, None], pa.int32()), [-559580957, 933211791, -1604776387, 42]),
        (pa.array([1, 0, -1, 2**63 - 1], pa.int64()), [-1712319331, -1670924195, -939490007, -1604625029]),
        (pa.array(["", "Spark", "Murmur3", "ñ", "a"]), [142593372, 228093765, 1880613938, -2048832643, 1485273170]),
        (pa.array([True, False]), [-559580957, 933211791]),
        (pa.array([b"\x80\xff\x01", b"abc"]), [-1935714940, 1322437556]),
        (pa.array([float("nan"), -0.0]), [-1281358385, -1670924195]),
        (pa.array([1.5], pa.float32()), [-221251528]),
        (pa.array([Decimal("1.5")], pa.decimal128(2, 1)), [-18083236]),
        (pa.array([Decimal("12345678901234567890.5")], pa.decimal128(38, 10)), [-1366861748]),
        (pa.array([Decimal(-128)], pa.decimal128(38, 0)), [775851899]),
        (pa.array([Decimal(128)], pa.decimal128(20, 0)), [-544401882]),
        (pa.array([datetime.date(2013, 1, 1)]), [-1477305664]),
        (pa.array([1356998400000001], pa.timestamp("us")), [-2047543415]),
        (pa.array([45296789123], pa.time64("us")), [1418776165]),  # TIME is nanoseconds inside Spark
        (pa.array([5], pa.time64("ns")), [1607884268]),
        (pa.array([5], pa.time64("us")), [-1149851212]),
        (pa.array([93784000005], pa.duration("us")), [1767191497]),
    ],
)
def test_golden_hashes(array: pa.Array, expected: list[int]) -> None:
    assert hash_columns(array).tolist() == expected


def test_golden_hash_of_several_columns() -> None:
    """SELECT hash(1, 'a', cast(null as string), 2.5D)."""
    columns = [pa.array([1], pa.int32()), pa.array(["a"]), pa.nulls(1, pa.string()), pa.array([2.5])]
    assert hash_columns(columns).tolist() == [389417474]


def test_null_leaves_the_hash_of_the_columns_before() -> None:
    keys = pa.array([1, 2, None], pa.int64())
    nulls = pa.nulls(3)
    assert hash_columns([keys, nulls]).tolist() == hash_columns(keys).tolist()
    assert hash_columns([nulls, keys]).tolist() == hash_columns(keys).tolist()
    assert hash_columns(nulls).tolist() == [42, 42, 42]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_nulls_of_long_columns_leave_the_hash_alone(dtype: type) -> None:
    generator = np.random.default_rng(3)
    values = generator.integers(0, 1000, 5000, dtype=dtype)
    for offset in (0, 3):
        first, second = (generator.random(5000) < 0.3 for _ in range(2))
        both = [pa.array(values, mask=first).slice(offset), pa.array(values, mask=second).slice(offset)]
        plain = pa.array(values[offset:])
        once, twice = hash_columns(plain), hash_columns([plain, plain])
        expected = np.select(
            [first[offset:] & second[offset:], first[offset:] | second[offset:]], [np.int32(42), once], default=twice
        )
        assert np.array_equal(hash_columns(both), expected)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_chunks_may_be_cut_differently_in_each_column(data: st.DataObject) -> None:
    row_count = data.draw(st.integers(0, 20))
    columns, whole = [], []
    for _ in range(2):
        array = data.draw(arrays(data.draw(st.sampled_from(KEY_TYPES)), row_count))
        cut = data.draw(st.integers(0, row_count))
        columns.append(pa.chunked_array([array.slice(0, cut), array.slice(cut)], array.type))
        whole.append(array)
    assert hash_columns(columns).tolist() == hash_columns(whole).tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=70),
    st.one_of(st.sampled_from([1, 2, 3, 256, 271, 1000, 2**30, 2**31 - 1]), st.integers(1, 2**31 - 1)),
)
def test_partitions_are_the_positive_remainder(keys: list[int], partition_count: int) -> None:
    array = pa.array(keys, pa.int32())
    expected = [value % partition_count for value in hash_columns(array).tolist()]
    assert assign_partitions(array, partition_count).tolist() == expected


def test_numpy_and_chunked_and_empty_columns_are_accepted() -> None:
    keys = np.arange(100, dtype=np.int64)
    expected = assign_partitions(pa.array(keys)).tolist()
    assert assign_partitions(keys).tolist() == expected
    assert assign_partitions(pa.chunked_array([keys[:30], keys[30:]])).tolist() == expected
    assert assign_partitions(pa.table({"k": keys})).tolist() == expected
    assert assign_partitions(pa.chunked_array([], pa.int64())).tolist() == []
    assert assign_partitions(pa.array([], pa.string())).dtype == np.int32


@pytest.mark.parametrize("data_type", UNHASHABLE_TYPES, ids=str)
def test_types_that_spark_cannot_hash_are_refused_by_name(data_type: pa.DataType) -> None:
    with pytest.raises(TypeError, match=r"column 'k' of type .* cannot be a key.*(cast it to|take its parts)"):
        check_key_types(pa.schema({"k": data_type}), ["k"])
    with pytest.raises(TypeError, match="column 1 of type .* cannot be a key"):
        hash_columns([pa.array([1]), pa.nulls(1, data_type)])
    with pytest.raises(TypeError, match="column 'k'"):
        hash_columns(pa.table({"k": pa.nulls(1, data_type)}))
    with pytest.raises(TypeError, match="column 'k'"):
        Splitter(pa.schema({"k": data_type}), ["k"], np.zeros(271, dtype=np.int32), 1)


def test_wrong_arguments_say_what_was_needed() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        hash_columns([])
    with pytest.raises(ValueError, match="column 1 has 2 rows, the columns before it 1"):
        hash_columns([pa.array([1]), pa.array([1, 2])])
    with pytest.raises(TypeError, match="column 0 must be an Arrow array, chunked array or numpy array, got int"):
        hash_columns([3])
    for partition_count in (0, -1, 2**31):
        with pytest.raises(ValueError, match="partition_count must be at least 1"):
            assign_partitions(pa.array([1]), partition_count)
    schema = pa.schema({"k": pa.int64()})
    with pytest.raises(ValueError, match="no column 'z'; the columns are k"):
        check_key_types(schema, ["z"])
    with pytest.raises(ValueError, match=r"owners must be in \[0, 2\), got 0 to 2"):
        Splitter(schema, ["k"], np.array([0, 1, 2], dtype=np.int32), 2)
    with pytest.raises(ValueError, match="owners must be int32"):
        Splitter(schema, ["k"], np.array([0, 1]), 2)
    splitter = Splitter(schema, ["k"], np.zeros(1, dtype=np.int32), 1)
    with pytest.raises(ValueError, match="has 0 columns"):
        splitter.split(Batch.empty(schema).select([]))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_split_gives_each_owner_its_rows_in_order(data: st.DataObject) -> None:
    rows = data.draw(columns_of())
    keys = [field.name for field in rows.schema if field.type in KEY_TYPES]
    owner_count = data.draw(st.integers(1, 6))
    owners = np.array(data.draw(st.lists(st.integers(0, owner_count - 1), min_size=271, max_size=271)), dtype=np.int32)
    parts = Splitter(rows.schema, keys, owners, owner_count).split(Batch.from_arrow(rows))
    partition_ids = [0] * rows.num_rows
    if keys and rows.num_rows:
        partition_ids = [value % 271 for value in reference_hash.hash_rows([rows.column(key) for key in keys])]
    assert len(parts) == owner_count
    for owner, part in enumerate(parts):
        expected = [row for row, partition in enumerate(partition_ids) if owners[partition] == owner]
        if not expected:
            assert part is None
            continue
        result = part.to_arrow()
        result.validate(full=True)
        for name in rows.schema.names:
            values = rows.column(name).to_pylist()
            assert result.column(name).to_pylist() == [values[row] for row in expected]


@pytest.mark.parametrize("row_count", [1, 7, 8, 63, 64, 65, 1000, 8192, 65536, 70001])
@pytest.mark.parametrize("owner_count", [1, 2, 8, 300])
def test_split_of_every_size_keeps_all_rows(row_count: int, owner_count: int) -> None:
    generator = np.random.default_rng(row_count * owner_count)
    rows = pa.record_batch(
        {
            "k": pa.array(generator.integers(-(2**62), 2**62, row_count)),
            "v": pa.array(generator.random(row_count), mask=generator.random(row_count) < 0.1),
            "row": pa.array(np.arange(row_count, dtype=np.int32)),
            "flag": pa.array(generator.random(row_count) < 0.5),
        }
    )
    owners = (np.arange(1000) % owner_count).astype(np.int32)
    parts = Splitter(rows.schema, ["k"], owners, owner_count).split(Batch.from_arrow(rows))
    destination = owners[assign_partitions(rows.column("k"), 1000)]
    for owner, part in enumerate(parts):
        expected = rows.filter(pa.array(destination == owner))
        assert (0 if part is None else part.row_count) == expected.num_rows
        if part is not None:
            assert part.to_arrow().equals(expected)


@pytest.mark.parametrize("column", ["scattered", "gathered", "nested"])
@pytest.mark.parametrize("keys", [["k"], ["k", "v"], []])
def test_batches_that_are_split_together_are_split_as_each_alone(column: str, keys: list[str]) -> None:
    count = 40_000
    values = {
        "scattered": pa.array(np.arange(count) * 0.5),
        "gathered": pa.array(np.arange(count) % 5 == 0),
        "nested": pa.array(np.arange(count)).cast(pa.string()),
    }[column]
    rows = pa.record_batch({"k": np.arange(count), "v": values})
    if column == "nested":
        rows = rows.append_column("n", pa.array([[key] for key in range(count)]))
    cuts = [0, 300, 300, 301, 9000, 17_000, 39_990, 40_000]
    batches = [Batch.from_arrow(rows.slice(start, end - start)) for start, end in itertools.pairwise(cuts)]
    splitter = Splitter(rows.schema, keys, np.arange(271, dtype=np.int32) % 3, 3)
    alone = [splitter.split(batch) for batch in batches]
    together = splitter.split_all(batches)
    for owner in range(3):
        expected = [parts[owner].to_arrow() for parts in alone if parts[owner] is not None]
        got = [part.to_arrow() for part in together[owner] or ()]
        assert pa.Table.from_batches(got, rows.schema) == pa.Table.from_batches(expected, rows.schema)
        assert all(part.num_rows for part in got)
    assert splitter.split_all([]) == [None, None, None]


def test_owners_without_rows_write_over_nothing_of_the_others() -> None:
    owner_count = 12
    owners = np.arange(271, dtype=np.int32) % owner_count
    for distinct in range(1, 30):
        rows = pa.record_batch({"k": np.arange(70) % distinct, "x": np.arange(70)})
        expected = owners[assign_partitions(rows["k"])]
        parts = Splitter(rows.schema, ["k"], owners, owner_count).split(Batch.from_arrow(rows))
        for owner, part in enumerate(parts):
            found = rows.slice(0, 0) if part is None else part.to_arrow()
            assert found.equals(rows.filter(pa.array(expected == owner)))


def test_batches_that_all_go_to_one_owner_are_theirs() -> None:
    rows = pa.record_batch({"k": [7] * 100})
    batches = [Batch.from_arrow(rows), Batch.from_arrow(rows.slice(3))]
    parts = Splitter(rows.schema, ["k"], np.arange(271, dtype=np.int32) % 3, 3).split_all(batches)
    assert sorted(0 if run is None else run.row_count for run in parts) == [0, 0, 197]


def run_with_simd(value: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JETFAST_SIMD": value},
        capture_output=True,
        text=True,
        check=False,
    )


LEVELS = ["plain", "avx2", "avx512"]
COMPARE = """
import numpy as np, pyarrow as pa
from jetfast.kernels.partitioning import assign_partitions, hash_columns, simd, Splitter
from jetfast.kernels.columns import Batch
from tests.kernels import reference_hash
assert simd()[0] == {level!r}, simd()
generator = np.random.default_rng(1)
for count in (0, 1, 7, 8, 15, 16, 17, 31, 33, 100, 1000):
    for dtype in (np.int32, np.int64):
        limits = np.iinfo(dtype)
        keys = pa.array(generator.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True))
        expected = reference_hash.hash_rows([keys, keys])
        assert hash_columns([keys, keys]).tolist() == expected
        for partition_count in (1, 2, 271, 2**31 - 1):
            assert assign_partitions([keys, keys], partition_count).tolist() == [v % partition_count for v in expected]
    for owner_count in (2, 3, 8, 16, 17, 271):
        rows = pa.record_batch({{"k": generator.integers(0, 1000, count), "v": np.arange(count)}})
        owners = (np.arange(271) % owner_count).astype(np.int32)
        destination = owners[assign_partitions(rows.column("k"))]
        for owner, part in enumerate(Splitter(rows.schema, ["k"], owners, owner_count).split(Batch.from_arrow(rows))):
            expected = rows.filter(pa.array(destination == owner))
            assert (part is None and expected.num_rows == 0) or part.to_arrow().equals(expected)
"""


@pytest.mark.parametrize("level", LEVELS[: LEVELS.index(simd()[1]) + 1])
def test_each_vector_variant_of_this_machine_gives_the_same(level: str) -> None:
    result = run_with_simd(level, COMPARE.format(level=level))
    assert result.returncode == 0, result.stderr


def test_an_unknown_vector_variant_is_an_error_at_import() -> None:
    result = run_with_simd("sse9", "import jetfast.kernels.partitioning")
    assert result.returncode != 0
    assert "ValueError: JETFAST_SIMD must be plain, avx2 or avx512, got 'sse9'" in result.stderr
