"""Where records of text end, against Python's csv module, and what is malformed."""

import csv
import io

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jetfast.connectors.text_records import Block, Records, is_closed, last_record_end, parse_each, split_records

FIELDS = st.text(st.sampled_from('a,"\n'), max_size=6)
TABLES = st.lists(st.lists(FIELDS, min_size=2, max_size=2), min_size=1, max_size=12)
RAW = st.text(st.sampled_from('ab,"\n'), max_size=40)


def quoted(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL).writerows(rows)
    return text.getvalue().encode()


def lexed_records(data: str) -> list[str]:
    """Split one character at a time: a quote opens only at the beginning of a field."""
    records, record, state = [], "", "field start"
    for index, character in enumerate(data):
        record += character
        if state == "quoted":
            if character == '"':
                state = "closed"
            continue
        if state == "closed" and character == '"' and data[index - 1] == '"':
            state = "quoted"
        elif character == "\n":
            records.append(record)
            record, state = "", "field start"
        elif character == ",":
            state = "field start"
        elif character == '"' and state == "field start":
            state = "quoted"
        else:
            state = "plain"
    return [*records, record] if record else records


@given(RAW)
@settings(max_examples=400)
@example('"a\nb""\nc"')
@example('x"\n"\n')
@example('"a"b"\n')
def test_records_end_where_a_lexer_says(text: str) -> None:
    assert [record.decode() for record in split_records(text.encode(), ",")] == lexed_records(text)


@given(RAW)
@settings(max_examples=400)
@example('"a\nb""\nc"')
def test_the_last_whole_record_ends_where_a_lexer_says(text: str) -> None:
    whole = [record for record in lexed_records(text) if record.endswith("\n") and is_closed(record.encode(), ",")]
    assert last_record_end(text.encode(), ",") == sum(map(len, whole))


@given(TABLES, st.integers(1, 40))
@settings(max_examples=200)
def test_blocks_hold_whole_records_and_everything(rows: list[list[str]], block_bytes: int) -> None:
    data = quoted(rows)
    records = Records(io.BytesIO(data), 0, 0, ",")
    blocks = list(iter(lambda: records.next_block(block_bytes), None))
    assert b"".join(block.data for block in blocks) == data
    assert [row for block in blocks for row in csv.reader(io.StringIO(block.data.decode(), newline=""))] == rows
    for block in blocks:
        assert block.offset == data.index(block.data, block.offset)
        assert block.line == data[: block.offset].count(b"\n")


@given(TABLES, st.integers(1, 30))
@settings(max_examples=100)
def test_blocks_from_the_offset_of_one_are_the_same(rows: list[list[str]], block_bytes: int) -> None:
    data = quoted(rows)
    records = Records(io.BytesIO(data), 0, 0, ",")
    blocks = list(iter(lambda: records.next_block(block_bytes), None))
    for index, block in enumerate(blocks):
        again = Records(io.BytesIO(data[block.offset :]), block.offset, block.line, ",")
        assert list(iter(lambda again=again: again.next_block(block_bytes), None)) == blocks[index:]


def test_without_a_delimiter_quotes_mean_nothing() -> None:
    assert last_record_end(b'{"a": "\n{"', None) == 8
    assert split_records(b'"\n"\r\nx', None) == [b'"\n', b'"\r\n', b"x"]


def test_the_last_record_needs_no_newline() -> None:
    records = Records(io.BytesIO(b"a,b\nc,d"), 0, 0, ",")
    assert records.next_block(100) == Block(b"a,b\nc,d", 0, 0)
    assert records.next_block(100) is None


def test_a_quote_that_is_never_closed_is_an_error_not_the_whole_file() -> None:
    records = Records(io.BytesIO(b'a,b\nc,"d\n' + b"e,f\n" * 1000), 0, 0, ",", 1000)
    assert records.next_block(10) == Block(b"a,b\n", 0, 0)
    with pytest.raises(ValueError, match="the record on line 1 does not end within 1000 bytes"):
        records.next_block(10)


@pytest.mark.parametrize(
    ("data", "closed"),
    [(b'a,"b"\n', True), (b'a,"b\n', False), (b'a,b"\n', True), (b'"a""', False), (b'x\n"', False), (b"", True)],
)
def test_an_open_quote_is_seen(data: bytes, closed: bool) -> None:
    assert is_closed(data, ",") is closed


def parse_numbers(data: bytes) -> pa.Table:
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        pyarrow.csv.ReadOptions(use_threads=False, column_names=["x", "y"]),
        convert_options=pyarrow.csv.ConvertOptions(column_types={"x": pa.int64(), "y": pa.int64()}),
    )


@given(st.lists(st.sampled_from([b"1,2\n", b"3,x\n", b"4\n", b"5,6,7\n", b"8,9\n"]), min_size=1, max_size=40))
@settings(max_examples=100)
def test_each_malformed_record_stands_alone_and_the_others_keep_their_lines(lines: list[bytes]) -> None:
    tables, row_lines, malformed = parse_each(list(enumerate(lines)), parse_numbers, str)
    good = [index for index, line in enumerate(lines) if line in (b"1,2\n", b"8,9\n")]
    assert row_lines == good
    assert sum(table.num_rows for table in tables) == len(good)
    assert [record.line for record in malformed] == [index for index in range(len(lines)) if index not in good]
    assert [record.text.encode() + b"\n" for record in malformed] == [lines[record.line] for record in malformed]


def test_records_that_can_be_read_only_apart_are_all_kept() -> None:
    def parse(data: bytes) -> pa.Table:
        if b"a" in data and b"b" in data:
            raise ValueError("types differ in row 99")
        return pa.table({"x": data.decode().split()})

    records = [(i, b"a\n" if i < 7 else b"b\n") for i in range(9)]
    tables, lines, malformed = parse_each(records, parse, str)
    assert [value for table in tables for value in table["x"].to_pylist()] == ["a"] * 7 + ["b"] * 2
    assert (lines, malformed) == (list(range(9)), [])


def test_a_parser_that_blames_the_wrong_row_loses_no_record() -> None:
    def parse(data: bytes) -> pa.Table:
        if b"x" in data:
            raise ValueError("Row #1: something")
        return pa.table({"x": data.decode().split()})

    tables, lines, malformed = parse_each([(i, b"x\n" if i == 5 else b"1\n") for i in range(40)], parse, str)
    assert [record.line for record in malformed] == [5]
    assert len(lines) == sum(table.num_rows for table in tables) == 39
