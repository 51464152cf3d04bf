"""What a process of a hunted job does for the hunter: notes what happens there, and dies at a crash point when told to.

All of it goes through a folder that the hunter and the processes of one job share:

    notes              a line of JSON for each thing that happened; the hunter reads it as it grows
    order.json         the present order: die at this crash point, on coming there once more than `passes` times
    taken-<number>     made by the one process that obeys it, before it dies
    rows               how many rows the source has: it is without end before, and keeps to its rate

Notes bear the time of the clock that all processes of a host share (CLOCK_MONOTONIC).
"""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jetfast.core.crash_points import CrashPoint, set_crash_hook
from jetfast.core.processor import ProcessorContext


def end_source(folder: Path, rows: int) -> None:
    """Let the source end after so many rows, and be read up to there as fast as can be. More than it has given out."""
    written = folder / "rows.tmp"
    written.write_text(str(rows))
    written.rename(folder / "rows")


class Order(msgspec.Struct, frozen=True):
    """One process is to die."""

    number: int
    """Of the job; each is obeyed once."""
    point: CrashPoint
    passes: int
    """How often a process comes to the point before it dies there."""

    def place(self, folder: Path) -> None:
        """Give the order to all processes of the job; it takes the place of the one before."""
        written = folder / "order.tmp"
        written.write_bytes(msgspec.json.encode(self))
        written.rename(folder / "order.json")


class Watched:
    """Belongs to one process. Watches over it from when it is made, or unpickled there with the job's graph."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.execution_id = 0
        """The execution that reads rows here; 0 before its first."""
        self._first_results_due = False
        self._number = 0
        self._passed = 0
        set_crash_hook(self.reach)

    def __reduce__(self) -> tuple[Callable[[Path], "Watched"], tuple[Path]]:
        return Watched, (self.folder,)

    @property
    def rows(self) -> int | None:
        """How many rows the source has; None: not said yet."""
        try:
            return int((self.folder / "rows").read_text())
        except FileNotFoundError:
            return None

    def note(self, what: str, **details: Any) -> None:
        """Write one line; a process that is killed writes all of it or nothing."""
        line = json.dumps({"what": what, "time_s": time.monotonic(), "pid": os.getpid(), **details}) + "\n"
        notes = os.open(self.folder / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(notes, line.encode())
        finally:
            os.close(notes)

    def begin(self, context: ProcessorContext) -> None:
        """Rows are read here by an execution; only the first call for each has an effect."""
        if context.execution_id > self.execution_id:
            self.execution_id = context.execution_id
            self._first_results_due = True
            self.note(
                "reads", execution_id=context.execution_id, member=context.member, member_count=context.member_count
            )

    def see_results(self) -> None:
        """Results are on their way to the sink."""
        if self._first_results_due:
            self._first_results_due = False
            self.note("results", execution_id=self.execution_id)

    def reach(self, point: CrashPoint) -> None:
        """Crash hook: die, if that was ordered and no other process has."""
        if point == "after_execution_record":
            self.note("decided")
        order = self._order()
        if order is None or order.point != point:
            return
        if order.number != self._number:
            self._number, self._passed = order.number, 0
        self._passed += 1
        if self._passed <= order.passes:
            return
        try:
            os.close(os.open(self.folder / f"taken-{order.number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        self.note("dies", point=point, order=order.number)
        os.kill(os.getpid(), signal.SIGKILL)

    def _order(self) -> Order | None:
        try:
            return msgspec.json.decode((self.folder / "order.json").read_bytes(), type=Order)
        except FileNotFoundError:
            return None
