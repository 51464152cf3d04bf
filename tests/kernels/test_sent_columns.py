"""A column that comes again crosses a channel once, and is the same memory at its other end each time."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.columns import Batch, ReceivedColumns, SentColumns
from tests.kernels.arrow_strategies import columns_of

PLACES = 64
BYTES_MAX = 16 * 1024 * 1024
STALE_MESSAGES = 64


def batch_of(**columns: pa.Array) -> Batch:
    return Batch.from_arrow(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))


def numbers(start: int, count: int = 1000) -> Batch:
    """A column that comes again."""
    return batch_of(n=pa.array(np.arange(start, start + count))).that_comes_again(["n"])


class Channel:
    """Both ends, and what lies between them."""

    def __init__(self) -> None:
        self.sent, self.received = SentColumns(), ReceivedColumns()

    def encode(self, batch: Batch, leaves: bool = True) -> bytes:
        message = b"".join(batch.encode(self.sent))
        if leaves:
            self.sent.settle()
        return message

    def decode(self, schema: pa.Schema, message: bytes | bytearray) -> Batch:
        return Batch.decode(schema, message, self.received)

    def carry(self, batch: Batch) -> tuple[Batch, int]:
        """The batch at the other end, and the bytes of its message."""
        message = self.encode(batch)
        return self.decode(batch.schema, message), len(message)


def memory_of(batch: Batch, column: int = 0) -> list[int | None]:
    buffers = batch.to_arrow().column(column).buffers()
    return [None if buffer is None else buffer.address for buffer in buffers]


def same(found: Batch, wanted: Batch) -> None:
    arrow = found.to_arrow()
    arrow.validate(full=True)
    assert arrow.schema.equals(wanted.schema)
    assert str(arrow.to_pylist()) == str(wanted.to_arrow().to_pylist())  # as text: NaN is equal to itself


@settings(max_examples=30, deadline=None)
@given(columns_of(), st.data())
def test_columns_of_all_types_come_again_as_they_were(rows: pa.RecordBatch, data: st.DataObject) -> None:
    channel = Channel()
    whole = Batch.from_arrow(rows).that_comes_again(data.draw(st.lists(st.sampled_from(rows.schema.names))))
    starts = st.integers(0, rows.num_rows)
    parts = [
        whole.slice(start, data.draw(st.integers(0, rows.num_rows - start))) for start in data.draw(st.lists(starts))
    ]
    for part in (whole, *parts, whole, *parts):
        same(channel.carry(part)[0], part)


TYPES = {
    "bool": pa.array([True, None, False] * 500),
    "int16": pa.array([1, None, 3] * 500, pa.int16()),
    "float64": pa.array([0.5, None, -0.0] * 500),
    "string": pa.array(["a", None, "grüße"] * 500),
    "large binary": pa.array([b"a", None, b""] * 500, pa.large_binary()),
    "view": pa.array(["a", None, "x" * 50] * 500, pa.string_view()),
    "dictionary": pa.array(["a", None, "b"] * 500).dictionary_encode(),
}


@pytest.mark.parametrize("name", TYPES)
def test_what_comes_again_is_not_sent_again_and_is_the_same_memory(name: str) -> None:
    channel = Channel()
    batch = batch_of(a=TYPES[name]).that_comes_again(["a"]).slice(1, 1400)
    (first, long), (second, short), (other, _) = (channel.carry(part) for part in (batch, batch, batch.slice(1)))
    for found, wanted in ((first, batch), (second, batch), (other, batch.slice(1))):
        same(found, wanted)
    assert memory_of(first)[:2] == memory_of(second)[:2] != memory_of(other)[:2]
    assert short < 300 < long


def test_codes_that_come_again_go_with_any_dictionary_that_has_them() -> None:
    channel = Channel()
    codes = pa.array(np.zeros(1000, dtype=np.int64))

    def repeated(*words: str) -> Batch:
        values = pa.DictionaryArray.from_arrays(codes, pa.array(words, pa.string()), safe=False)
        return batch_of(a=values).that_comes_again(["a"])

    sizes = []
    for words in (["x"], ["y"], ["z", "w"]):
        found, size = channel.carry(repeated(*words))
        assert found.to_arrow().column(0).to_pylist() == [words[0]] * 1000
        sizes.append(size)
    assert max(sizes[1:]) < 300 < sizes[0]
    with pytest.raises(ValueError, match="codes in the message that are not in its dictionary"):
        channel.carry(repeated())


def test_a_column_whose_maker_says_nothing_is_sent_each_time() -> None:
    channel = Channel()
    batch = batch_of(a=pa.array(range(1000)))
    sizes = [channel.carry(batch)[1] for _ in range(3)]
    assert min(sizes) > 8000


def test_messages_that_do_not_leave_change_nothing() -> None:
    channel = Channel()
    refused = [len(channel.encode(numbers(0), leaves=False)) for _ in range(100)]
    assert min(refused) > 8000
    same(channel.carry(numbers(1))[0], numbers(1))
    one, other = numbers(2), numbers(3)
    channel.encode(one, leaves=False)
    for batch, is_known in ((other, False), (one, False), (one, True), (other, True)):
        found, size = channel.carry(batch)
        same(found, batch)
        assert (size < 300) == is_known


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 90), st.booleans()), max_size=12))
def test_each_message_is_what_was_sent_however_columns_take_turns(turns: list[tuple[int, int, bool]]) -> None:
    """More columns than there are places, some of which are not used for so long that others take their places."""
    channel = Channel()
    columns = [numbers(number, 10) for number in range(100)]
    for first, count, leaves in turns:
        for number in range(first, first + count):
            batch = columns[number % 100]
            message = channel.encode(batch, leaves)
            if leaves:
                same(channel.decode(batch.schema, message), batch)


def test_there_are_so_many_places_and_a_stale_column_gives_up_its_own() -> None:
    channel = Channel()
    names = [str(number) for number in range(PLACES)]
    many = batch_of(**{name: pa.array(np.arange(1000)) for name in names}).that_comes_again(names)
    channel.carry(many)
    one_more = numbers(0)
    sizes = [channel.carry(one_more)[1] for _ in range(STALE_MESSAGES + 1)]
    assert [size < 300 for size in sizes] == [False] * STALE_MESSAGES + [True]
    same(channel.carry(many)[0], many)
    assert channel.carry(many)[1] < 64 * 300


def test_columns_of_so_many_bytes_are_kept() -> None:
    channel = Channel()
    quarter = BYTES_MAX // 8 // 4
    columns = [numbers(number, quarter) for number in range(5)]
    for column in columns:
        channel.carry(column)
    assert [channel.carry(column)[1] < 300 for column in columns] == [True] * 4 + [False]
    too_large = numbers(0, BYTES_MAX // 8 + 1)
    assert all(channel.carry(too_large)[1] > BYTES_MAX for _ in range(2))


PLACE_WORD = 5 * 8
ROWS_WORDS = 3 * 8, 6 * 8


def with_word(message: bytes, position: int, value: int) -> bytes:
    return message[:position] + value.to_bytes(8, "little", signed=True) + message[position + 8 :]


def test_what_was_never_kept_is_refused() -> None:
    channel = Channel()
    schema = numbers(0).schema
    kept = channel.encode(numbers(0))
    with pytest.raises(ValueError, match="column 'n': is a kept one in the message, and there is none in its place"):
        channel.decode(schema, with_word(kept, PLACE_WORD, -1))
    channel.decode(schema, kept)
    for place in (-2, -65, -(2**63)):
        with pytest.raises(ValueError, match="there is none in its place"):
            channel.decode(schema, with_word(kept, PLACE_WORD, place))
    with pytest.raises(ValueError, match="there is none in its place"):
        Batch.decode(schema, with_word(kept, PLACE_WORD, -1))
    for place in (PLACES + 1, 2**63 - 1):
        with pytest.raises(ValueError, match="column 'n': has no place to be kept in"):
            channel.decode(schema, with_word(kept, PLACE_WORD, place))
    with pytest.raises(ValueError, match="column 'n': cannot be kept"):
        Batch.decode(schema, kept)


def test_a_kept_column_of_another_type_or_length_is_refused() -> None:
    channel = Channel()
    batch = numbers(0)
    channel.carry(batch)
    again = channel.encode(batch)
    for position in ROWS_WORDS:
        again = with_word(again, position, 999)
    with pytest.raises(ValueError, match="another type or number of rows than the kept one"):
        channel.decode(batch.schema, again)
    for other in (pa.float64(), pa.timestamp("us"), pa.decimal128(10, 2)):
        with pytest.raises(ValueError, match="another type or number of rows than the kept one"):
            channel.decode(pa.schema({"n": other}), channel.encode(batch))


def test_more_bytes_than_a_channel_keeps_are_refused() -> None:
    channel = Channel()
    half = numbers(0, BYTES_MAX // 8 // 2 + 1)
    message = channel.encode(half)
    channel.decode(half.schema, message)
    channel.decode(half.schema, message)  # in its own place there is room
    with pytest.raises(ValueError, match="column 'n': has no place to be kept in"):
        channel.decode(half.schema, with_word(message, PLACE_WORD, 2))


def test_nulls_and_nested_columns_are_never_kept() -> None:
    for column in (pa.nulls(1000), pa.array([[1, 2]] * 1000)):
        channel = Channel()
        batch = batch_of(a=column).that_comes_again(["a"])
        for _ in range(2):
            same(channel.carry(batch)[0], batch)
        message = channel.encode(batch)
        assert message[PLACE_WORD : PLACE_WORD + 8] == bytes(8)
        with pytest.raises(ValueError, match="column 'a': cannot be kept"):
            channel.decode(batch.schema, with_word(message, PLACE_WORD, 1))


@settings(max_examples=30, deadline=None)
@given(columns_of(), st.data())
def test_damaged_messages_of_a_channel_are_errors_or_other_values_never_a_crash(
    rows: pa.RecordBatch, data: st.DataObject
) -> None:
    channel = Channel()
    batch = Batch.from_arrow(rows).that_comes_again(rows.schema.names)
    for part in (batch, batch.slice(rows.num_rows // 2), batch, batch):
        message = bytearray(channel.encode(part))
        header_words = int.from_bytes(message[8:16], "little")
        for _ in range(data.draw(st.integers(0, 2))):
            word = data.draw(st.integers(0, header_words - 1)) * 8
            value = data.draw(st.sampled_from([0, 1, 2, 7, 64, 65, 1000, 2**31, 2**62, -1, -2, -64, -(2**63)]))
            message[word : word + 8] = value.to_bytes(8, "little", signed=True)
        try:
            decoded = channel.decode(rows.schema, message)
        except ValueError:
            continue
        decoded.take(np.arange(decoded.row_count, dtype=np.int32))
