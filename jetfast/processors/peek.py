"""Passes rows on and prints the first of them: for looking into a pipeline."""

import sys
from typing import TextIO

from jetfast.core.batch import Batch
from jetfast.core.items import Output
from jetfast.core.processor import Processor, ProcessorContext
from jetfast.core.readable import readable_values
from jetfast.types import printable


class Peek(Processor):
    """Prints rows on the standard output of its member, each after the name of the step and number of the processor.

    Parameters
    ----------
    limit : so many rows of each processor
    stream : where to print instead of standard output; for tests
    """

    def __init__(self, limit: int, stream: TextIO | None = None) -> None:
        self.limit = limit
        self.stream = stream

    def open(self, context: ProcessorContext) -> None:
        self.label = f"{context.vertex}-{context.index}"
        self.left = self.limit

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        if self.left > 0:
            shown = batch.slice(0, min(self.left, batch.row_count)).to_arrow()
            self.left -= shown.num_rows
            columns = [readable_values(column) for column in shown.columns]
            lines = []
            for values in zip(*columns, strict=True):
                cells = ", ".join(f"{name}={value}" for name, value in zip(shown.schema.names, values, strict=True))
                lines.append(printable(f"{self.label}: {cells}") + "\n")
            (self.stream or sys.stdout).write("".join(lines))
        return (batch,)
