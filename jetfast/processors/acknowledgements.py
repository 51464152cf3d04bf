"""Which messages have been received, which may be acknowledged, and which are known when they come again.

    receive --> pending --save--> due --phase 2, success--> acknowledged
                 (a failed round leaves what is due, due)

`known` holds ids: of each message that is received and not known to be acknowledged, and of those that a snapshot has
handed down, because they may come again to any processor of the next execution. Invariant: whatever is known at a
snapshot is in it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32


class Receipt(NamedTuple):
    """A delivery that is to be acknowledged."""

    partition: int
    """The queue that it came from, by its place among those of the processor."""
    message_id: str | None
    receipt: Any


class SavedId(NamedTuple):
    """An id in a snapshot."""

    message_id: str
    since_us: int | None
    """When its retention began; None: with the restore from this snapshot."""


class Acknowledgements:
    """The messages of one processor.

    index, parallelism : place of the processor among those that share what was handed down to all of them: each saves
        its share of it
    retention_us : how long an id is kept after the restart, or after an acknowledgement that was not confirmed
    """

    def __init__(self, index: int, parallelism: int, retention_us: int) -> None:
        self.index = index
        self.parallelism = parallelism
        self.retention_us = retention_us
        self.known: dict[str, int | None] = {}
        """By id: since when it is only remembered, microseconds; None: it is received, and not acknowledged."""
        self.handed_down: set[str] = set()
        """Those of them that all processors have from a snapshot, and none has received since."""
        self.pending: list[Receipt] = []
        self.due: list[Receipt] = []

    def receive(self, partition: int, ids: Sequence[str | None], receipts: Sequence[Any]) -> list[bool]:
        """Take deliveries in; return for each whether it is new. What is not new is acknowledged all the same."""
        new = []
        for message_id, receipt in zip(ids, receipts, strict=True):
            new.append(message_id is None or message_id not in self.known)
            if message_id is not None:
                self.known[message_id] = None
                self.handed_down.discard(message_id)
            self.pending.append(Receipt(partition, message_id, receipt))
        return new

    def save(self, now_us: int) -> Iterator[SavedId]:
        """Freeze: what was received so far belongs to the snapshot."""
        self.due += self.pending
        self.pending = []
        for message_id, since_us in list(self.known.items()):
            if since_us is None:
                yield SavedId(message_id, None)
            elif since_us + self.retention_us <= now_us:
                del self.known[message_id]
                self.handed_down.discard(message_id)
            elif message_id not in self.handed_down or crc32(message_id.encode()) % self.parallelism == self.index:
                yield SavedId(message_id, since_us)

    def acknowledged(self, receipts: Sequence[Receipt], confirmed: bool, now_us: int) -> None:
        """These were acknowledged: they are forgotten now if that is confirmed, else when they cannot come any more."""
        again = {receipt.message_id for receipt in self.pending}
        for _, message_id, _ in receipts:
            if message_id is None or message_id in again:
                continue
            if confirmed:
                self.known.pop(message_id, None)
            else:
                self.known[message_id] = now_us

    def restore(self, saved: SavedId, now_us: int) -> None:
        """Remember an id that a snapshot hands down."""
        since_us = now_us if saved.since_us is None else saved.since_us
        self.handed_down.add(saved.message_id)
        earlier_us = self.known.get(saved.message_id)
        self.known[saved.message_id] = since_us if earlier_us is None else max(since_us, earlier_us)
