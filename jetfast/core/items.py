"""What travels between processors: batches of rows, and the control items between them.

A batch is `jetfast.core.batch.Batch`. Control items:

    Watermark(value_us)      no row with a time below it will follow, except late ones
    IDLE                     nothing will come from here for now; do not wait for its watermark
    ACTIVE                   awake again
    Barrier(snapshot_id)     the state before it belongs to the snapshot, what follows does not
    DONE                     nothing will ever follow

A processor yields batches or runs of them (to port 0), `Emit(port, batch)` (to another port) and, if it makes event
time, watermarks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from jetfast.core.batch import Batch, BatchRun
from jetfast.types import Signal

MAIN_PORT = 0


class Emit(NamedTuple):
    """Rows for one output port of the vertex; a plain batch goes to MAIN_PORT."""

    port: int
    batch: Batch
    owner: int | None = None
    """Who owns the keys of all rows, by `ProcessorContext.partition_owners` of the port; None: rows are divided."""


class EmitRun(NamedTuple):
    """Batches of one row or more for one output port and owner (`Emit.owner`)."""

    port: int
    batches: BatchRun
    owner: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """Event time has reached `value` (int64 microseconds)."""

    value: int
    held: int = field(default=0, compare=False)
    """How long it has been kept back for inputs that lag, in sixteenths of `max_watermark_retention`."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Snapshot barrier. After a terminal one nothing is read any more."""

    snapshot_id: int
    terminal: bool = False


IDLE = Signal.IDLE
ACTIVE = Signal.ACTIVE
DONE = Signal.DONE

ControlItem = Watermark | Barrier | Signal
Item = Batch | ControlItem
Output = Batch | BatchRun | Emit | EmitRun | Watermark | Signal
"""What a processor gives. The batches of a run have one row or more each: they are sent together."""


def one_by_one(output: Iterable[Output]) -> Iterator[Batch | Emit | Watermark | Signal]:
    """Give each of the batches of runs by itself, and the rest as it is."""
    for item in output:
        if isinstance(item, BatchRun):
            yield from item
        elif isinstance(item, EmitRun):
            yield from (Emit(item.port, batch, item.owner) for batch in item.batches)
        else:
            yield item
