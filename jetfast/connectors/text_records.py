"""Text files as blocks of whole records: where a record ends, which line it stands on, which records are malformed.

A record of JSON lines is a line. A record of CSV may hold newlines between quotes. A quote opens only at the
beginning of a field (elsewhere it is a character like others), "" between quotes is one quote: the grammar of
pyarrow's parser.

Blocks are cut the same way from whatever offset reading begins, so a position may name a block and a row in it.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

BLOCK_BYTES = 1 << 20
RECORD_BYTES_MAX = 64 << 20
"""A record longer than this is taken for a quote that was never closed."""

_NEWLINE, _QUOTE = b"\n", b'"'


class ByteStream(Protocol):
    """What is needed of a file: `read(n)` gives fewer bytes at the end only."""

    def read(self, nbytes: int) -> bytes: ...


class Block(NamedTuple):
    """Whole records. `offset` and `line` (both from 0) are those of the first byte."""

    data: bytes
    offset: int
    line: int


class Malformed(NamedTuple):
    """One record that cannot be read."""

    line: int
    reason: str
    text: str


class Records:
    """Reads blocks from a stream that stands at `offset`, which is the beginning of a record on line `line`.

    delimiter : that of CSV; None: newlines end records, quotes mean nothing
    """

    def __init__(self, stream: ByteStream, offset: int, line: int, delimiter: str | None) -> None:
        self.stream = stream
        self.offset = offset
        self.line = line
        self.delimiter = delimiter
        self.rest = b""
        self.at_end = False

    def next_block(self, block_bytes: int) -> Block | None:
        """Return the next block, or None at the end. Raises ValueError for a record that does not end."""
        wanted = block_bytes
        while True:
            if len(self.rest) < wanted and not self.at_end:
                more = self.stream.read(wanted - len(self.rest))
                self.at_end = len(self.rest) + len(more) < wanted
                self.rest += more
            if not self.rest:
                return None
            end = len(self.rest) if self.at_end else last_record_end(self.rest, self.delimiter)
            if end:
                break
            if wanted >= RECORD_BYTES_MAX:
                raise ValueError(
                    f"the record on line {self.line} does not end within {RECORD_BYTES_MAX} bytes: a quote not closed?"
                )
            wanted *= 2
        block = Block(self.rest[:end], self.offset, self.line)
        self.rest = self.rest[end:]
        self.offset += end
        self.line += block.data.count(_NEWLINE)
        return block


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


def _record_ends(data: bytes, delimiter: str, records_max: int = sys.maxsize) -> list[int]:
    """Return the offset behind each record that ends in `data`, field by field."""
    stop = re.escape(delimiter.encode()) + _NEWLINE
    field = re.compile(rb'"[^"]*(?:""[^"]*)*(?:"[^' + stop + rb"]*|\Z)|[^" + stop + rb"]*")
    ends: list[int] = []
    position = 0
    while position < len(data) and len(ends) < records_max:
        match = field.match(data, position)
        assert match is not None  # it may be empty
        position = match.end() + 1  # behind the delimiter or the newline
        if position <= len(data) and data[position - 1] == _NEWLINE[0]:
            ends.append(position)
    return ends


Parse = Callable[[bytes], pa.Table]


def parse_each(
    records: Sequence[tuple[int, bytes]], parse: Parse, reason: Callable[[Exception], str]
) -> tuple[list[pa.Table], list[int], list[Malformed]]:
    """Parse what can be parsed of a block that has malformed records, halving it until each of them stands alone.

    Returns tables, the line of each of their rows, and the malformed records, all in order. A malformed record is
    one for which `parse` raises ValueError, as ArrowInvalid is.
    """
    tables: list[pa.Table] = []
    lines: list[int] = []
    malformed: list[Malformed] = []
    waiting = [(0, len(records))]
    while waiting:
        start, end = waiting.pop()
        if start == end:
            continue
        part = records[start:end]
        try:
            table = parse(b"".join(record for _, record in part))
        except ValueError as error:
            if end - start == 1:
                line, record = part[0]
                malformed.append(Malformed(line, reason(error), record.decode(errors="replace").rstrip("\r\n")))
            else:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
            continue
        tables.append(table)
        part_lines = [line for line, _ in part]
        # A lone carriage return ends a row for the parser: such rows share the line of their record.
        lines += part_lines if table.num_rows == len(part) else _spread(part, parse)
    return tables, lines, malformed


def _spread(part: Sequence[tuple[int, bytes]], parse: Parse) -> list[int]:
    return [line for line, record in part for _ in range(parse(record).num_rows)]
