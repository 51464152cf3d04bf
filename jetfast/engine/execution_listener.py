"""What an execution tells whoever started it: its end, and how snapshot rounds go."""

from typing import NamedTuple, Protocol

from jetfast.core.processor import AnnouncedPartitions
from jetfast.engine.snapshot_store import StateTotals


class SnapshotReport(NamedTuple):
    """What one member has done in phase 1 of a snapshot."""

    snapshot_id: int
    vertices: dict[str, StateTotals]
    """What it has stored, by vertex; vertices that saved nothing are left out."""
    errors: list[str]
    """What failed, by step and processor; empty: nothing."""
    pause_us: int
    """The longest time that a tasklet stood still to freeze its state."""
    align_us: int
    """The longest time from a tasklet's first barrier to its last."""


class ExecutionListener(Protocol):
    """Called by any thread of the execution; must not block for long.

    With a guarantee other than NONE:

        first_edges_read() at most once all edges that must end before others are read have ended on this member
        input_taken() at most once      all processors of this member have taken in all their input, and stay
        for each snapshot               snapshot_saved(report), and after `end_snapshot` snapshot_ended(snapshot_id)

    With any guarantee:

        partitions_found(...)           a source has partitions that every member must know, by `add_partitions`

    A member without processors answers like the others.
    """

    def finished(self, error: BaseException | None) -> None:
        """Called once, last, when every processor has been closed: None if all came to their end."""

    def partitions_found(self, vertex: str, announced: AnnouncedPartitions) -> None:
        """Hand partitions of a source to all members, in one order for all."""

    def first_edges_read(self) -> None:
        """Snapshots need not wait for this member any more; called only if the job has such edges."""

    def input_taken(self) -> None:
        """Nothing more can be read here: a FINAL snapshot may be asked for."""

    def snapshot_saved(self, report: SnapshotReport) -> None:
        """Phase 1 is over here: every tasklet has saved and prepared, or has failed to."""

    def snapshot_ended(self, snapshot_id: int) -> None:
        """Phase 2 is over here."""
