"""Arrow data and messages as they should not be, or seldom are: what fuzzing (tests/fuzz) has found stays found."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from jetfast.kernels.columns import Batch, concatenate
from jetfast.kernels.partitioning import hash_columns


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def message_of(rows: pa.RecordBatch) -> bytearray:
    return bytearray(b"".join(Batch.from_arrow(rows).encode()))


def test_codes_of_null_rows_are_not_read_in_a_dictionary_of_nulls() -> None:
    codes = pa.Array.from_buffers(pa.int8(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(b"\x00\x77\x00")])
    rows = batch_of(a=pa.DictionaryArray.from_arrays(codes, pa.nulls(1), safe=False))
    batch = Batch.from_arrow(rows)
    for made in (batch, batch.slice(1), batch.take(np.array([1, 0], dtype=np.int32)), concatenate([batch, batch])):
        sent = Batch.decode(rows.schema, b"".join(made.encode()))
        for arrow in (made.to_arrow(), sent.to_arrow()):
            arrow.validate(full=True)
            assert arrow.column(0).null_count >= 1
            assert arrow.column(0).to_pylist() == [None] * made.row_count


def test_views_of_null_rows_are_not_read_when_batches_are_joined() -> None:
    garbage = b"\xff\xff\xff\x7f" * 4
    long = (20).to_bytes(4, "little") + b"abcd" + bytes(8)
    text = pa.py_buffer(b"abcdefghijklmnopqrst")
    views = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(long + garbage), text])
    batch = Batch.from_arrow(batch_of(a=views))
    joined = concatenate([batch, batch, batch]).to_arrow().column(0)
    assert joined.to_pylist() == ["abcdefghijklmnopqrst", None] * 3


@pytest.mark.parametrize("data_type", [pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.timestamp("us")])
def test_buffers_need_not_be_aligned(data_type: pa.DataType) -> None:
    aligned = pa.array([1, 2, None, 4, 5, 6, 7, 8, 9], pa.int64()).cast(data_type)
    values = aligned.buffers()[1]
    shifted = pa.py_buffer(b"\0" + values.to_pybytes()).slice(1)
    array = pa.Array.from_buffers(data_type, len(aligned), [aligned.buffers()[0], shifted])
    batch = Batch.from_arrow(batch_of(a=array)).slice(1)
    assert batch.to_arrow().column(0).equals(aligned.slice(1))
    assert batch.take(np.arange(8, dtype=np.int32)).to_arrow().column(0).equals(aligned.slice(1))
    if data_type != pa.float64():
        assert (hash_columns([array]) == hash_columns([aligned])).all()


def test_offsets_and_codes_need_not_be_aligned() -> None:
    words = pa.array(["a", "bc", "", "d"])
    shifted = pa.py_buffer(b"\0\0\0" + words.buffers()[1].to_pybytes()).slice(3)
    text = pa.Array.from_buffers(pa.string(), 4, [None, shifted, words.buffers()[2]])
    codes = pa.Array.from_buffers(
        pa.int32(), 4, [None, pa.py_buffer(b"\0" + np.arange(4, dtype=np.int32).tobytes()).slice(1)]
    )
    rows = batch_of(a=text, b=pa.DictionaryArray.from_arrays(codes, words))
    back = Batch.from_arrow(rows).slice(1).take(np.array([2, 0], dtype=np.int32)).to_arrow()
    assert back.to_pydict() == {"a": ["d", "bc"], "b": ["d", "bc"]}


def test_a_message_without_the_bytes_of_a_nested_column_is_refused() -> None:
    rows = batch_of(a=pa.array([[1, 2], [3]]))
    message = message_of(rows)
    message[10 * 8 : 11 * 8] = bytes(8)
    with pytest.raises(ValueError, match="column 'a': has no bytes"):
        Batch.decode(rows.schema, message)


def test_a_nested_column_of_another_type_is_refused() -> None:
    sent = batch_of(a=pa.array([[1, 2], [3]], pa.list_(pa.int8())))
    wanted = pa.schema({"a": pa.list_(pa.int64())})
    with pytest.raises(ValueError, match="column 'a' cannot be read from the message: it has the types"):
        Batch.decode(wanted, message_of(sent))


def _offset_beyond(message: bytearray) -> None:
    position = message.index(np.array([0, 2, 3, 6], dtype=np.int32).tobytes())
    message[position + 12 : position + 16] = (2**30).to_bytes(4, "little")


def _offset_backwards(message: bytearray) -> None:
    position = message.index(np.array([0, 2, 3, 6], dtype=np.int32).tobytes())
    message[position + 4 : position + 8] = (5).to_bytes(4, "little")


@pytest.mark.parametrize("damage", [_offset_beyond, _offset_backwards])
def test_damaged_offsets_of_a_nested_column_are_refused(damage: Callable[[bytearray], None]) -> None:
    rows = batch_of(a=pa.array([["v", "w"], ["x"], ["y", "z", "!"]]))
    message = message_of(rows)
    damage(message)
    with pytest.raises(ValueError, match="column 'a' cannot be read from the message"):
        Batch.decode(rows.schema, message)


def test_a_message_of_more_rows_than_row_numbers_is_refused() -> None:
    rows = batch_of(a=pa.nulls(1))
    message = message_of(rows)
    for word in (3, 6):  # of the batch, of the column
        message[word * 8 : word * 8 + 8] = (2**31).to_bytes(8, "little")
    with pytest.raises(ValueError, match="impossible number of rows"):
        Batch.decode(rows.schema, message)
