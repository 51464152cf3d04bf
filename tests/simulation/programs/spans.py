"""Windows of random programs, and the rows that lie in each, slowly."""

from collections.abc import Sequence
from dataclasses import dataclass

import jetfast as jf
from jetfast.core.windows import AnyWindow
from tests.simulation.programs.flow import Flow, Row

MILLISECOND = 1000
Span = tuple[int, int]
"""Start and end in microseconds."""


@dataclass(frozen=True)
class Framed:
    """Tumbling or sliding."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    @property
    def window(self) -> AnyWindow:
        if self.size_ms == self.slide_ms:
            return jf.tumbling(f"{self.size_ms}ms", offset=f"{self.offset_ms}ms")
        return jf.sliding(f"{self.size_ms}ms", f"{self.slide_ms}ms", offset=f"{self.offset_ms}ms")

    @property
    def shift_us(self) -> int:
        """Of the time of results."""
        return -1

    def spans(self, flow: Flow, rows: Sequence[Row] | None = None) -> dict[Span, list[Row]]:
        """Rows of a flow by the windows in which they lie."""
        held: dict[Span, list[Row]] = {}
        size, slide, offset = (each * MILLISECOND for each in (self.size_ms, self.slide_ms, self.offset_ms))
        for row in flow.rows if rows is None else rows:
            time = flow.moment(row)
            first_end = (time - offset) // slide * slide + offset + slide
            for end in range(first_end, first_end + size, slide):
                held.setdefault((end - size, end), []).append(row)
        return held


@dataclass(frozen=True)
class Session:
    """Of one key: rows that are near each other."""

    timeout_ms: int

    @property
    def window(self) -> AnyWindow:
        return jf.session(f"{self.timeout_ms}ms")

    @property
    def shift_us(self) -> int:
        """Of the time of results."""
        return 0

    def spans(self, flow: Flow, rows: Sequence[Row] | None = None) -> dict[Span, list[Row]]:
        """Rows of one key by their sessions."""
        timeout = self.timeout_ms * MILLISECOND
        found: list[tuple[int, int, list[Row]]] = []
        for row in sorted(flow.rows if rows is None else rows, key=flow.moment):
            time = flow.moment(row)
            if found and time <= found[-1][1]:
                start, _, held = found.pop()
                found.append((start, time + timeout, [*held, row]))
            else:
                found.append((time, time + timeout, [row]))
        return {(start, end): held for start, end, held in found}


FRAMED = [Framed(1000, 1000), Framed(700, 700, 200), Framed(2000, 500), Framed(900, 300, 50)]
WINDOWS: list[Framed | Session] = [*FRAMED, Session(200), Session(500)]
