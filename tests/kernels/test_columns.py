"""The batch: every Arrow layout in and out, slices, take, concatenate, and malformed input."""

import datetime
import decimal
import gc
import itertools

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.columns import (
    Batch,
    arena_statistics,
    batches_from_arrow,
    concatenate,
    pooled_memory,
    release_pooled,
)
from tests.kernels.arrow_strategies import COLUMN_TYPES, arrays, columns_of

FAST = settings(max_examples=60, deadline=None)


def same(batch: Batch, expected: pa.RecordBatch) -> None:
    result = batch.to_arrow()
    result.validate(full=True)
    assert result.schema.equals(expected.schema)
    assert result.num_rows == expected.num_rows == batch.row_count == len(batch)
    for name, column in zip(expected.schema.names, expected.columns, strict=True):
        assert result.column(name).to_pylist() == column.to_pylist(), name


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


@FAST
@given(columns_of())
def test_every_layout_comes_back_as_it_went_in(rows: pa.RecordBatch) -> None:
    same(Batch.from_arrow(rows), rows)


@pytest.mark.parametrize("data_type", COLUMN_TYPES, ids=str)
def test_columns_without_rows_need_no_buffers(data_type: pa.DataType) -> None:
    rows = batch_of(a=pa.nulls(0, data_type))
    same(Batch.from_arrow(rows), rows)
    same(Batch.empty(rows.schema), rows)
    same(concatenate([Batch.empty(rows.schema)] * 3), rows)
    same(Batch.empty(rows.schema).take(np.array([], dtype=np.int32)), rows)


@FAST
@given(columns_of(), st.data())
def test_a_slice_holds_its_rows(rows: pa.RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, rows.num_rows))
    count = data.draw(st.integers(0, rows.num_rows - start))
    batch = Batch.from_arrow(rows).slice(start, count)
    same(batch, rows.slice(start, count))
    inner = data.draw(st.integers(0, count))
    same(batch.slice(inner), rows.slice(start + inner, count - inner))


@FAST
@given(columns_of(), st.data())
def test_take_gives_the_rows_in_the_order_asked_for(rows: pa.RecordBatch, data: st.DataObject) -> None:
    length = 0 if rows.num_rows == 0 else data.draw(st.integers(0, 20))
    indices = [data.draw(st.integers(0, rows.num_rows - 1)) for _ in range(length)]
    result = Batch.from_arrow(rows).take(np.array(indices, dtype=np.int32)).to_arrow()
    result.validate(full=True)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        values = column.to_pylist()
        assert result.column(name).to_pylist() == [values[i] for i in indices]


@FAST
@given(columns_of(), st.lists(st.integers(0, 40), max_size=4))
def test_concatenate_undoes_cutting(rows: pa.RecordBatch, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, rows.num_rows) for cut in cuts), rows.num_rows]
    batch = Batch.from_arrow(rows)
    pieces = [batch.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    same(concatenate(pieces), rows)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([pa.string(), pa.int32(), pa.large_string(), pa.string_view()]), st.data())
def test_concatenate_brings_different_dictionaries_together(value_type: pa.DataType, data: st.DataObject) -> None:
    parts = [data.draw(arrays(pa.dictionary(pa.int8(), value_type))) for _ in range(3)]
    batch = concatenate([Batch.from_arrow(batch_of(a=part)) for part in parts])
    result = batch.to_arrow()
    result.validate(full=True)
    assert result.column(0).to_pylist() == [value for part in parts for value in part.to_pylist()]


def test_dictionaries_that_outgrow_their_codes_are_an_error_that_says_so() -> None:
    type_ = pa.dictionary(pa.int8(), pa.string())
    parts = [Batch.from_arrow(batch_of(a=pa.array([f"{part}-{i}" for i in range(100)], type_))) for part in range(2)]
    with pytest.raises(ValueError, match="column 'a' has 200 different values"):
        concatenate(parts)
    same_values = [
        Batch.from_arrow(batch_of(a=pa.array([str((i + 50 * part) % 100) for i in range(100)], type_)))
        for part in range(2)
    ]
    assert concatenate(same_values).to_arrow().column(0).to_pylist()[98:102] == ["98", "99", "50", "51"]


def test_equal_dictionaries_are_kept_once() -> None:
    def part() -> Batch:
        return Batch.from_arrow(batch_of(a=pa.array(["x", "y"]).dictionary_encode()))

    assert len(concatenate([part(), part(), part()]).to_arrow().column(0).dictionary) == 2


def test_a_missing_null_count_is_counted() -> None:
    bits = pa.py_buffer(bytes([0b0101_0110]))
    values = pa.py_buffer(np.arange(8, dtype=np.int64).tobytes())
    array = pa.Array.from_buffers(pa.int64(), 6, [bits, values], null_count=-1, offset=1)
    result = Batch.from_arrow(batch_of(a=array)).to_arrow().column(0)
    assert result.to_pylist() == [1, 2, None, 4, None, 6]
    assert result.null_count == 2


@FAST
@given(st.integers(1, 9), st.integers(0, 20), st.data())
def test_tables_come_chunk_by_chunk(rows_max: int, row_count: int, data: st.DataObject) -> None:
    values = list(range(row_count))
    cuts = sorted({data.draw(st.integers(0, row_count)) for _ in range(3)} | {0, row_count})
    chunked = pa.chunked_array([pa.array(values[a:b], pa.int64()) for a, b in itertools.pairwise(cuts)], pa.int64())
    table = pa.table({"a": chunked, "b": pa.array([str(v) for v in values], pa.string())})
    batches = list(batches_from_arrow(table, rows_max))
    assert all(0 < batch.row_count <= rows_max for batch in batches)
    assert [v for batch in batches for v in batch.to_arrow().column("a").to_pylist()] == values
    assert [v for batch in batches for v in batch.to_arrow().column("b").to_pylist()] == [str(v) for v in values]


def test_polars_frames_come_in_and_batches_go_to_polars() -> None:
    frame = polars.DataFrame({"a": [1, None, 3], "b": ["x", "a longer string than twelve", None], "c": [[1], [], None]})
    batch = concatenate(list(batches_from_arrow(frame)))
    assert polars.DataFrame(batch).equals(frame)
    assert polars.DataFrame(batch.slice(1, 2)).equals(frame.slice(1, 2))


def test_extension_types_become_what_they_store() -> None:
    storage = pa.array([b"0123456789abcdef", None], pa.binary(16))
    rows = batch_of(a=pa.ExtensionArray.from_storage(pa.uuid(), storage))
    same(Batch.from_arrow(rows), batch_of(a=storage))
    same(next(batches_from_arrow(pa.table(rows))), batch_of(a=storage))


def test_run_ends_are_decoded() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["x", None]))
    expected = batch_of(a=pa.array(["x", "x", None, None, None]), b=pa.array([1, 2, 3, 4, 5]))
    rows = batch_of(a=runs, b=expected.column(1))
    same(Batch.from_arrow(rows), expected)
    same(next(batches_from_arrow(pa.table(rows))), expected)
    same(Batch.from_arrow(rows.slice(1, 3)), expected.slice(1, 3))


def test_select_renames_and_orders() -> None:
    batch = Batch.from_arrow(batch_of(a=pa.array([1, 2]), b=pa.array(["x", "y"])))
    same(batch.select(["b", "a"], ["c", "d"]), batch_of(c=pa.array(["x", "y"]), d=pa.array([1, 2])))
    same(batch.select(["a", "a"], ["p", "q"]), batch_of(p=pa.array([1, 2]), q=pa.array([1, 2])))
    assert batch.select([]).row_count == 2
    with pytest.raises(ValueError, match="no column 'z'; the columns are a, b"):
        batch.select(["z"])
    with pytest.raises(ValueError, match="1 columns need as many names, got 2"):
        batch.select(["a"], ["c", "d"])


def test_with_columns_replaces_and_appends() -> None:
    batch = Batch.from_arrow(batch_of(a=pa.array([1, 2]), b=pa.array(["x", "y"])))
    other = Batch.from_arrow(batch_of(c=pa.array([True, None]), a=pa.array([0.5, 1.5])))
    same(batch.with_columns(other), batch_of(a=pa.array([0.5, 1.5]), b=pa.array(["x", "y"]), c=pa.array([True, None])))
    with pytest.raises(ValueError, match="1 rows cannot be put beside 2 rows"):
        batch.with_columns(other.slice(1))


@pytest.mark.parametrize(
    ("value", "data_type", "microseconds"),
    [
        (-1, pa.timestamp("ns"), -1),
        (-1000, pa.timestamp("ns"), -1),
        (-1001, pa.timestamp("ns"), -2),
        (1999, pa.timestamp("ns"), 1),
        (-3, pa.timestamp("us", "Asia/Tokyo"), -3),
        (-3, pa.timestamp("ms"), -3_000),
        (3, pa.timestamp("s"), 3_000_000),
        (-1, pa.date32(), -86_400_000_000),
        (86_400_000, pa.date64(), 86_400_000_000),
    ],
)
def test_timestamps_are_floored_to_microseconds(value: int, data_type: pa.DataType, microseconds: int) -> None:
    raw = pa.array([None, value, value], pa.int32() if data_type == pa.date32() else pa.int64())
    batch = Batch.from_arrow(batch_of(t=raw.view(data_type)))
    times, validity = batch.timestamps("t")
    assert times.dtype == np.int64
    assert times[1:].tolist() == [microseconds, microseconds]
    assert validity is not None
    assert validity.tolist() == [False, True, True]
    assert batch.slice(1).timestamps("t")[1] is None
    assert batch.slice(0, 0).timestamps("t")[0].tolist() == []


def test_times_beyond_64_bits_of_microseconds_are_an_error() -> None:
    batch = Batch.from_arrow(batch_of(t=pa.array([0, 2**62], pa.int64()).view(pa.timestamp("s"))))
    with pytest.raises(ValueError, match="row 1 of column 't' does not fit"):
        batch.timestamps("t")
    with pytest.raises(ValueError, match="must be a date or timestamp, it is int64"):
        Batch.from_arrow(batch_of(t=pa.array([1]))).timestamps("t")


def test_timestamps_keep_the_batch_alive() -> None:
    times = Batch.from_arrow(batch_of(t=pa.array(range(1000), pa.timestamp("us")))).timestamps("t")[0]
    gc.collect()
    assert times.sum() == 999 * 500
    with pytest.raises(ValueError, match="read-only"):
        times[0] = 1


def test_memory_is_recycled() -> None:
    release_pooled()
    batch = Batch.from_arrow(batch_of(a=pa.array(range(1000)), b=pa.array([None, "x"] * 500)))
    rows = np.arange(1000, dtype=np.int32)
    del batch, rows
    batch = Batch.from_arrow(batch_of(a=pa.array(range(1000)), b=pa.array([None, "x"] * 500)))
    before = arena_statistics()
    for _ in range(50):
        batch.take(np.arange(1000, dtype=np.int32))
    after = arena_statistics()
    assert after["allocations"] - before["allocations"] <= 2
    assert after["reuses"] - before["reuses"] >= 98
    assert after["bytes_in_use"] == before["bytes_in_use"]
    release_pooled()
    assert arena_statistics()["bytes_pooled"] == 0


def test_pooled_memory_is_recycled_when_its_last_view_is_gone() -> None:
    release_pooled()
    memory = pooled_memory(5000)
    memory[:] = bytes(range(250)) * 20
    part = memory[4900:].toreadonly()
    before = arena_statistics()["bytes_in_use"]
    del memory
    assert bytes(part) == bytes(range(150, 250))
    assert arena_statistics()["bytes_in_use"] == before
    del part
    assert arena_statistics()["bytes_in_use"] == before - 8192
    assert len(pooled_memory(0)) == 0
    with pytest.raises(ValueError, match="-1"):
        pooled_memory(-1)


def test_exported_memory_outlives_the_batch() -> None:
    exported = [
        Batch.from_arrow(batch_of(a=pa.array(range(1000)), b=pa.array([str(i) for i in range(1000)])))
        .take(np.arange(1000, dtype=np.int32)[::-1].copy())
        .to_arrow()
        for _ in range(3)
    ]
    gc.collect()
    release_pooled()
    for rows in exported:
        assert rows.column(0).to_pylist() == list(range(999, -1, -1))
        assert rows.column(1).to_pylist() == [str(i) for i in range(999, -1, -1)]


def test_nbytes_counts_the_rows_of_a_slice() -> None:
    batch = Batch.from_arrow(batch_of(a=pa.array(range(1000)), b=pa.array(["four"] * 1000)))
    assert batch.nbytes == 8000 + 4 * 1001 + 4000
    assert batch.slice(10, 10).nbytes == 80 + 4 * 11 + 40
    dictionary = Batch.from_arrow(batch_of(a=pa.array([f"{i:04}" for i in range(1000)]).dictionary_encode()))
    assert dictionary.nbytes == 4000 + 4 * 1001 + 4000
    assert dictionary.slice(0, 10).nbytes == 40 + (4 * 1001 + 4000) // 100
    nested = Batch.from_arrow(batch_of(a=pa.array([[1, 2]] * 100)))
    assert 1600 <= nested.nbytes <= 2200
    assert nested.slice(0, 10).nbytes < 300


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="__arrow_c_array__, got int"):
        Batch.from_arrow(3)
    with pytest.raises(ValueError, match="take batches_from_arrow for tables"):
        Batch.from_arrow(pa.table({"a": [1]}))
    with pytest.raises(ValueError, match="must come as an Arrow struct"):
        Batch.from_arrow(pa.array([1, 2]))
    with pytest.raises(ValueError, match="null rows"):
        Batch.from_arrow(pa.array([{"a": 1}, None]))
    with pytest.raises(ValueError, match="or __arrow_c_array__, got int"):
        next(batches_from_arrow(3))
    with pytest.raises(TypeError, match="made by"):
        Batch()
    with pytest.raises(ValueError, match="at least one"):
        concatenate([])
    batch = Batch.from_arrow(batch_of(a=pa.array([1, 2])))
    with pytest.raises(ValueError, match="where batch 0 has"):
        concatenate([batch, batch.select(["a"], ["b"])])
    for start, count in [(-1, 1), (3, 0), (1, 2), (0, -1)]:
        with pytest.raises(ValueError, match="not in a batch of 2 rows"):
            batch.slice(start, count)
    for rows in ([0, 2], [-1]):
        with pytest.raises(ValueError, match=f"row {rows[-1]} is not in a batch of 2 rows"):
            batch.take(np.array(rows, dtype=np.int32))
    with pytest.raises(ValueError, match="int32"):
        batch.take(np.array([0], dtype=np.int64))


class Mismatched:
    """Offers the schema of one record batch with the rows of another."""

    def __init__(self, declared: pa.RecordBatch, given: pa.RecordBatch) -> None:
        self.declared, self.given = declared, given

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self.declared.__arrow_c_array__()[0], self.given.__arrow_c_array__()[1]


@pytest.mark.parametrize(
    ("declared", "given", "message"),
    [
        (pa.array([1]), pa.array(["x"]), "column 'a': has 3 buffers where its type has 2"),
        (pa.array(["x"]), pa.array([1]), "column 'a': has 2 buffers where its type has 3"),
        (pa.array(["x"]), pa.array([[1]]), "column 'a': has 1 children where its type has none"),
        (
            pa.array([1]),
            pa.array(["x"]).dictionary_encode(),
            "column 'a': has a dictionary that its type does not have",
        ),
        (pa.array(["x"]).dictionary_encode(), pa.array([1]), "column 'a': lacks its dictionary"),
        (pa.array([1]), pa.nulls(1), "column 'a': has 0 buffers"),
    ],
)
def test_arrays_that_contradict_their_schema_are_refused(declared: pa.Array, given: pa.Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Batch.from_arrow(Mismatched(batch_of(a=declared), batch_of(a=given)))


def test_a_batch_with_another_number_of_columns_than_its_schema_is_refused() -> None:
    two = batch_of(a=pa.array([1]), b=pa.array([2]))
    with pytest.raises(ValueError, match="the batch has 2 columns, its schema 1"):
        Batch.from_arrow(Mismatched(batch_of(a=pa.array([1])), two))
    with pytest.raises(ValueError, match="the batch has 1 columns, its schema 2"):
        Batch.from_arrow(Mismatched(two, batch_of(a=pa.array([1]))))


def test_a_stream_that_fails_says_why() -> None:
    def broken() -> object:
        yield pa.record_batch({"a": [1]})
        raise RuntimeError("the well ran dry")

    batches = batches_from_arrow(pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), broken()))
    assert next(batches).row_count == 1
    with pytest.raises(ValueError, match="the well ran dry"):
        next(batches)


def test_decimals_and_dates_of_each_width_come_back() -> None:
    rows = batch_of(
        a=pa.array([decimal.Decimal("1.5"), None], pa.decimal32(5, 1)),
        b=pa.array([decimal.Decimal("-1.5"), None], pa.decimal64(15, 1)),
        c=pa.array([decimal.Decimal("1" * 37), None], pa.decimal128(38, 0)),
        d=pa.array([decimal.Decimal("-" + "9" * 76), None], pa.decimal256(76, 0)),
        e=pa.array([datetime.date(1, 1, 1), None], pa.date32()),
    )
    same(Batch.from_arrow(rows), rows)


@FAST
@given(columns_of(), st.sampled_from([0, 1, 8]), st.data())
def test_a_message_holds_the_rows_it_was_made_from(rows: pa.RecordBatch, shift: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, rows.num_rows))
    batch = Batch.from_arrow(rows).slice(start)
    pieces = batch.encode()
    assert all(len(piece) > 0 for piece in pieces)
    message = b"".join(pieces)
    buffer = memoryview(bytearray(shift) + message)[shift:]  # alignment is the receiver's luck
    decoded = Batch.decode(rows.schema, buffer)
    same(decoded, rows.slice(start))
    same(Batch.decode(rows.schema, b"".join(decoded.encode())), rows.slice(start))


@settings(max_examples=150, deadline=None)
@given(columns_of(), st.data())
def test_a_damaged_message_is_an_error_or_other_values_never_a_crash(rows: pa.RecordBatch, data: st.DataObject) -> None:
    message = bytearray(b"".join(Batch.from_arrow(rows).encode()))
    header_bytes = int.from_bytes(message[8:16], "little") * 8
    for _ in range(data.draw(st.integers(1, 3))):
        word = data.draw(st.integers(0, header_bytes // 8 - 1)) * 8
        value = data.draw(st.sampled_from([0, 1, 2, 7, 8, 64, 1000, 2**31, 2**62, -1, -(2**63)]))
        message[word : word + 8] = value.to_bytes(8, "little", signed=True)
    if data.draw(st.booleans()):
        del message[data.draw(st.integers(0, len(message))) :]
    try:
        decoded = Batch.decode(rows.schema, message)
    except ValueError:
        return
    decoded.take(np.arange(decoded.row_count, dtype=np.int32))


def test_messages_of_another_schema_are_refused() -> None:
    message = b"".join(Batch.from_arrow(batch_of(a=pa.array([1, 2]))).encode())
    with pytest.raises(ValueError, match="the message has 1 columns, the schema 2"):
        Batch.decode(pa.schema({"a": pa.int64(), "b": pa.int64()}), message)
    with pytest.raises(ValueError, match="column 'a': has another layout"):
        Batch.decode(pa.schema({"a": pa.string()}), message)
    with pytest.raises(ValueError, match="column 'a': has a buffer of a wrong size"):
        Batch.decode(pa.schema({"a": pa.int32()}), message)
    with pytest.raises(ValueError, match="column 'a': reaches beyond the end"):
        Batch.decode(pa.schema({"a": pa.int64()}), message[:-1])
    with pytest.raises(ValueError, match="shorter than a header"):
        Batch.decode(pa.schema({"a": pa.int64()}), b"")
    with pytest.raises(ValueError, match="does not begin as a message"):
        Batch.decode(pa.schema({"a": pa.int64()}), bytes(64))


def test_only_the_rows_of_a_slice_are_sent() -> None:
    values = [f"a rather long value number {i}" for i in range(10_000)]
    plain = pa.array(values)
    for column in (plain, plain.cast(pa.string_view()), plain.dictionary_encode(), pa.array([[v] for v in values])):
        batch = Batch.from_arrow(batch_of(a=column)).slice(5000, 3)
        message = b"".join(batch.encode())
        assert len(message) < 1000
        assert Batch.decode(batch.schema, message).to_arrow().column(0).to_pylist() == column[5000:5003].to_pylist()


def test_a_decoded_batch_keeps_its_message() -> None:
    rows = batch_of(a=pa.array(range(1000)), b=pa.array([str(i) for i in range(1000)]))
    message = bytearray(b"".join(Batch.from_arrow(rows).encode()))
    decoded = Batch.decode(rows.schema, message)
    with pytest.raises(BufferError):
        message.clear()
    exported = decoded.to_arrow()
    del decoded
    with pytest.raises(BufferError):
        message.clear()
    assert exported.equals(rows)
    del exported
    message.clear()


def test_batches_can_be_pickled() -> None:
    import pickle

    rows = batch_of(a=pa.array([1, None]), b=pa.array(["x", "y"]).dictionary_encode())
    same(pickle.loads(pickle.dumps(Batch.from_arrow(rows))), rows)
