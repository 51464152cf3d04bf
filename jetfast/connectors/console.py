"""Rows as lines of a table on standard output, for looking at."""

import sys
from dataclasses import dataclass
from typing import Any, TextIO

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.readable import readable_values
from jetfast.errors import JobDefinitionError
from jetfast.types import printable

CELL_WIDTH_MAX = 40


def console(limit: int | None = 100) -> "ConsoleSink":
    """A sink that prints rows on the standard output of member 0, as they come, under one heading.

    On a LocalCluster that is the output of this process; on other clusters it is in the member's log.

    limit : rows that are printed at most, the others are only counted; None: all
    """
    if limit is not None and limit < 0:
        raise JobDefinitionError(f"console: limit must not be negative, got {limit}")
    return ConsoleSink(limit)


@dataclass(frozen=True)
class ConsoleSink:
    """See `console`."""

    limit: int | None
    stream: TextIO | None = None
    """Where to print instead of standard output; for tests."""
    name: str = "console"
    cooperative: bool = False  # a terminal may block
    sink_delivery: Delivery = Delivery.REPEATING
    counts: bool = False
    parallelism_one: bool = True
    target: str | None = None

    def check(self, schema: pa.Schema) -> None:
        """Every type can be printed."""

    def check_target(self) -> None:
        """Printing needs nothing."""

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> "ConsoleWriter":
        return ConsoleWriter(schema, self.limit, self.stream or sys.stdout)


class ConsoleWriter:
    """Prints rows in columns whose widths the first batch decides."""

    def __init__(self, schema: pa.Schema, limit: int | None, stream: TextIO) -> None:
        self.schema = schema
        self.names = tuple(map(printable, schema.names))
        self.limit = limit
        self.stream = stream
        self.row_count = 0
        self.printed_rows = 0
        self.widths: list[int] = []

    def write(self, batch: Batch) -> None:
        self.row_count += batch.row_count
        wanted = batch.row_count if self.limit is None else min(batch.row_count, self.limit - self.printed_rows)
        if wanted <= 0:
            return
        self.printed_rows += wanted
        columns = batch.slice(0, wanted).to_arrow().columns
        cells = [[_cell(value) for value in readable_values(column)] for column in columns]
        if not self.widths:
            self._print_heading(cells)
        lines = [self._line(row) for row in zip(*cells, strict=True)]
        self.stream.write("".join(lines))
        self.stream.flush()

    def flush(self) -> None:
        self.stream.flush()

    def finish(self) -> None:
        if not self.widths:
            self._print_heading([[] for _ in self.schema])
        hidden = self.row_count - self.printed_rows
        self.stream.write(f"{self.row_count} rows" + (f", {hidden} of them not shown\n" if hidden else "\n"))
        self.stream.flush()

    def abort(self) -> None:
        """What has been printed stays."""

    def _print_heading(self, cells: list[list[str]]) -> None:
        self.widths = [
            max([len(name), *(len(cell) for cell in column)]) for name, column in zip(self.names, cells, strict=True)
        ]
        rule = "  ".join("-" * width for width in self.widths)
        self.stream.write(self._line(self.names) + rule + "\n")

    def _line(self, cells: tuple[str, ...]) -> str:
        padded = []
        for cell, width, field in zip(cells, self.widths, self.schema, strict=True):
            numeric = (
                pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
            )
            padded.append(cell.rjust(width) if numeric else cell.ljust(width))
        return "  ".join(padded).rstrip() + "\n"


def _cell(value: Any) -> str:
    text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = printable(text[: CELL_WIDTH_MAX + 1])
    return text if len(text) <= CELL_WIDTH_MAX else text[: CELL_WIDTH_MAX - 1] + "…"
