"""Text files as blocks of whole records: where a record ends, which line it stands on, which records are malformed.

A record of JSON lines is a line. A record of CSV may hold newlines between quotes. A quote opens only at the
beginning of a field (elsewhere it is a character like others), "" between quotes is one quote: the grammar of
pyarrow's parser.

Blocks are cut the same way from whatever offset reading begins, so a position may name a block and a row in it.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from jetfast.connectors.file_bounds import DEFAULT_BOUNDS
from jetfast.connectors.file_marks import Trail
from jetfast.kernels.json_bounds import count_open

BLOCK_BYTES = 1 << 20
HEAD_CHARACTERS = 1000
"""Of a record that is too long so much is kept."""

_NEWLINE, _QUOTE = b"\n", b'"'


class ByteStream(Protocol):
    """What is needed of a file: `read(n)` gives fewer bytes at the end only."""

    def read(self, nbytes: int) -> bytes: ...


class Block(NamedTuple):
    """Whole records. `offset` and `line` (both from 0) are those of the first byte."""

    data: bytes
    offset: int
    line: int
    too_long: "Malformed | None" = None
    """Instead of data, one record that is too long to be read."""


class Malformed(NamedTuple):
    """One record that cannot be read."""

    line: int
    reason: str
    text: str


class Records:
    """Reads blocks from a stream that stands at `offset`, which is the beginning of a record on line `line`.

    delimiter : that of CSV; None: newlines end records, quotes mean nothing
    record_bytes : a longer record is passed over
    values_max : JSON objects and lists in a block at most, if it has more than one record; None: any number
    trail : goes along, behind the last block
    """

    def __init__(
        self,
        stream: ByteStream,
        offset: int,
        line: int,
        delimiter: str | None,
        record_bytes: int = DEFAULT_BOUNDS.line_bytes,
        values_max: int | None = None,
        trail: Trail | None = None,
    ) -> None:
        self.stream = stream
        self.offset = offset
        self.line = line
        self.delimiter = delimiter
        self.record_bytes = record_bytes
        self.values_max = values_max
        self.trail = trail
        self.rest = b""
        self.at_end = False

    def next_block(self, block_bytes: int) -> Block | None:
        """Return the next block, or None at the end. Raises ValueError for a quote that is not closed."""
        wanted = block_bytes
        while True:
            if len(self.rest) < wanted and not self.at_end:
                more = self.stream.read(wanted - len(self.rest))
                self.at_end = len(self.rest) + len(more) < wanted
                self.rest += more
            if not self.rest:
                return None
            # Only what a reader that begins here would see counts, or blocks would be cut in another way from here.
            whole = self.at_end and len(self.rest) < wanted
            seen = self.rest[:wanted]
            end = len(seen) if whole else last_record_end(seen, self.delimiter)
            if end:
                break
            if len(seen) > self.record_bytes:
                return self._pass_over(_NEWLINE in seen)
            wanted = min(wanted * 2, max(self.record_bytes + 1, wanted))
        data = self.rest[:end]
        if self.values_max is not None and self.values_max < end:
            data = first_values(data, self.values_max)
            end = len(data)
        block = Block(data, self.offset, self.line)
        self.rest = self.rest[end:]
        self.offset += end
        self.line += block.data.count(_NEWLINE)
        if self.trail is not None:
            self.trail.add(data)
        return block

    def _pass_over(self, has_newline: bool) -> Block:
        """Go behind a record that is too long, without keeping it."""
        if has_newline:
            raise ValueError(
                f"the record on line {self.line} does not end within {self.record_bytes} bytes: a quote not closed?"
            )
        offset, line, size = self.offset, self.line, 0
        head = self.rest[:HEAD_CHARACTERS].decode(errors="replace")
        while True:
            end = self.rest.find(_NEWLINE) + 1
            size += end or len(self.rest)
            if self.trail is not None:
                self.trail.add(self.rest[:end] if end else self.rest)
            self.rest = self.rest[end:] if end else b""
            if end or self.at_end:
                break
            self.rest = self.stream.read(BLOCK_BYTES)
            self.at_end = len(self.rest) < BLOCK_BYTES
        self.offset += size
        self.line += 1
        return Block(b"", offset, line, Malformed(line, too_long(self.record_bytes), head))


def too_long(record_bytes: int) -> str:
    """Return the reason to reject a record that has more bytes."""
    return f"it is longer than {record_bytes} bytes"


def check_lengths(data: bytes, delimiter: str | None, record_bytes: int) -> None:
    """Raise ValueError if one of these records is too long."""
    if len(data) > record_bytes and any(
        len(record.rstrip(b"\r\n")) > record_bytes for record in split_records(data, delimiter)
    ):
        raise ValueError(too_long(record_bytes))


def first_values(data: bytes, values_max: int) -> bytes:
    """Return the first lines, in which at most `values_max` JSON objects and lists begin; one line at least."""
    if count_open(data) <= values_max:
        return data
    octets = np.frombuffer(data, np.uint8)
    beyond = int(np.flatnonzero((octets == ord("{")) | (octets == ord("[")))[values_max])
    newline = data.rfind(_NEWLINE, 0, beyond)
    if newline < 0:
        newline = data.find(_NEWLINE)
    return data if newline < 0 else data[: newline + 1]


def last_record_end(data: bytes, delimiter: str | None) -> int:
    """Return the offset behind the last record that ends in `data`, which begins with a record; 0 if none ends."""
    newline = data.rfind(_NEWLINE)
    if newline < 0 or delimiter is None or _QUOTE not in data:
        return newline + 1
    quotes = _paired_quotes(data, delimiter)
    if quotes is None:
        ends = _record_ends(data, delimiter)
        return ends[-1] if ends else 0
    while newline >= 0:
        before = int(np.searchsorted(quotes, newline))
        if before % 2 == 0:
            break
        newline = data.rfind(_NEWLINE, 0, int(quotes[before - 1]))  # it is between quotes: go before the last one
    return newline + 1


def first_record_end(data: bytes, delimiter: str) -> int:
    """Return the offset behind the first record; 0 if it does not end in `data`."""
    ends = _record_ends(data, delimiter, records_max=1)
    return ends[0] if ends else 0


def split_records(data: bytes, delimiter: str | None) -> list[bytes]:
    """Return the records of a block, each with its newline."""
    if delimiter is None or _QUOTE not in data:
        return data.splitlines(keepends=True) if b"\r" not in data else _split_at(data, _newline_ends(data))
    return _split_at(data, _record_ends(data, delimiter))


def is_closed(data: bytes, delimiter: str) -> bool:
    """False if the last of these records opens a quote and does not close it."""
    if _QUOTE not in data:
        return True
    quotes = _paired_quotes(data, delimiter)
    if quotes is not None:
        return len(quotes) % 2 == 0
    return _record_ends(data + _NEWLINE, delimiter)[-1:] == [len(data) + 1]


def _newline_ends(data: bytes) -> list[int]:
    return (np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE[0]) + 1).tolist()


def _split_at(data: bytes, ends: list[int]) -> list[bytes]:
    if not ends or ends[-1] < len(data):
        ends = [*ends, len(data)]
    return [data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True) if start < end]


def _paired_quotes(data: bytes, delimiter: str) -> "np.ndarray | None":
    """Return the offsets of all quotes if they pair up: odd ones open or reopen, even ones close. None if some do not.

    They do in well-formed text, where every opening quote follows a delimiter, a line end or a quote, and every closing
    quote is followed by one of these; then counting them tells whether a newline lies between quotes.
    """
    octets = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(octets == _QUOTE[0])
    edges = np.zeros(256, np.bool_)
    edges[[_NEWLINE[0], ord("\r"), ord(delimiter), _QUOTE[0]]] = True
    opening, closing = quotes[0::2], quotes[1::2]
    before = octets[opening[1:] - 1] if opening[0] == 0 else octets[opening - 1]
    after = octets[closing[:-1] + 1] if len(closing) and closing[-1] == len(data) - 1 else octets[closing + 1]
    return quotes if edges[before].all() and edges[after].all() else None


def count_fields(record: bytes, delimiter: str, fields_max: int) -> int:
    """Return how many fields a record has, fields_max + 1 if there are more."""
    return sum(1 for _ in islice(_fields(record, delimiter), fields_max + 1))


def _record_ends(data: bytes, delimiter: str, records_max: int = sys.maxsize) -> list[int]:
    """Return the offset behind each record that ends in `data`, field by field."""
    ends = (end for end in _fields(data, delimiter) if end <= len(data) and data[end - 1] == _NEWLINE[0])
    return list(islice(ends, records_max))


def _fields(data: bytes, delimiter: str) -> Iterator[int]:
    """Yield the offset behind the delimiter or the newline of each field."""
    stop = re.escape(delimiter.encode()) + _NEWLINE
    field = re.compile(rb'"[^"]*(?:""[^"]*)*(?:"[^' + stop + rb"]*|\Z)|[^" + stop + rb"]*")
    position = 0
    while position < len(data):
        match = field.match(data, position)
        assert match is not None  # it may be empty
        position = match.end() + 1
        yield position


Parse = Callable[[bytes], pa.Table]


_ROW_OF_CSV = re.compile(r"Row #(\d+)")  # from 1
_ROW_OF_JSON = re.compile(r"in row (\d+)$")  # from 0
_PART_RECORDS_MIN = 16


def parse_each(
    records: Sequence[tuple[int, bytes]], parse: Parse, reason: Callable[[Exception], str]
) -> tuple[list[pa.Table], list[int], list[Malformed]]:
    """Parse what can be parsed of (line, record) pairs, when some are malformed.

    Returns a table of the good ones (several where the types inferred for them differ, none if there are none), the
    line of each of their rows, and the malformed records, in order. A record is malformed if `parse`, given it alone,
    raises ValueError, as ArrowInvalid is.
    """
    parts = [list(range(len(records)))]
    errors: dict[int, ValueError] = {}
    while True:
        count = len(errors)
        good = [index for part in parts for index in part]
        if _error_of(records, good, parse) is None:
            parts = [good]
            break
        parts = _without_malformed(records, good, parse, errors)
        if len(errors) == count:
            break  # each part can be read, but not all together: their types differ
    good = [index for part in parts for index in part]
    malformed = [
        Malformed(records[index][0], reason(error), records[index][1].decode(errors="replace").rstrip("\r\n"))
        for index, error in sorted(errors.items())
    ]
    tables = [parse(b"".join(records[index][1] for index in part)) for part in parts if part]
    lines = [records[index][0] for index in good]
    if sum(table.num_rows for table in tables) != len(good):
        # A lone carriage return ends a row for the parser: such rows share the line of their record.
        lines = [records[index][0] for index in good for _ in range(parse(records[index][1]).num_rows)]
    return tables, lines, malformed


def _without_malformed(
    records: Sequence[tuple[int, bytes]], indexes: list[int], parse: Parse, errors: dict[int, ValueError]
) -> list[list[int]]:
    """Return `indexes` in parts, without those of malformed records, whose errors go into `errors`.

    A part can be read, unless it stood before a malformed record: of that, only the one column is known to be good.

    Parts are tried, short ones where errors are dense. The parser says which row of a part it could not read; that
    is only believed if the record cannot be read alone either.
    """
    good: list[list[int]] = []
    position, length = 0, len(indexes)
    while position < len(indexes):
        part = indexes[position : position + length]
        error = _error_of(records, part, parse)
        if error is None:
            good.append(part)
            position += len(part)
            length *= 2
            continue
        row = 0 if len(part) == 1 else _row_of(error)
        alone = error if len(part) == 1 else None
        if row is not None and 0 <= row < len(part):
            alone = alone or _error_of(records, [part[row]], parse)
        if row is None or alone is None:
            length = (len(part) + 1) // 2
            continue
        errors[part[row]] = alone
        good.append(part[:row])
        position += row + 1
        length = max(_PART_RECORDS_MIN, 2 * row)
    return good


def _error_of(records: Sequence[tuple[int, bytes]], indexes: list[int], parse: Parse) -> ValueError | None:
    try:
        parse(b"".join(records[index][1] for index in indexes))
    except ValueError as error:
        return error.with_traceback(None)  # the frames would keep what was parsed
    return None


def _row_of(error: ValueError) -> int | None:
    """Return the row, from 0, that the parser complains about, if it says so."""
    text = str(error)
    csv_row = _ROW_OF_CSV.search(text)
    if csv_row is not None:
        return int(csv_row[1]) - 1
    json_row = _ROW_OF_JSON.search(text)
    return None if json_row is None else int(json_row[1])
