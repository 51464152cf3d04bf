"""Batches: in from Arrow, out to it, cut, gathered, framed for the wire."""

import numpy as np

from jetfast.kernels.columns import Batch, arena_statistics, concatenate

from .batches import BATCH_ROWS, make_events
from .inputs import KINDS, make_input

BATCHES = 64


class Columns:
    """64 batches of 8192 rows a call."""

    params = list(KINDS)
    param_names = ["input"]

    def setup(self, kind: str) -> None:
        made = make_input(make_events(BATCHES * BATCH_ROWS, 10_000), kind)
        self.arrow = made.batches
        self.batches = [Batch.from_arrow(batch) for batch in self.arrow]
        self.half = np.arange(0, BATCH_ROWS, 2, dtype=np.int32)
        self.messages = [b"".join(batch.encode()) for batch in self.batches]

    def time_from_arrow(self, kind: str) -> None:
        for batch in self.arrow:
            Batch.from_arrow(batch)

    def time_to_arrow(self, kind: str) -> None:
        for batch in self.batches:
            batch.to_arrow()

    def time_slice(self, kind: str) -> None:
        for batch in self.batches:
            batch.slice(100, 1000)

    def time_take_half(self, kind: str) -> None:
        for batch in self.batches:
            batch.take(self.half)

    def time_concatenate(self, kind: str) -> None:
        concatenate(self.batches)

    def time_encode(self, kind: str) -> None:
        for batch in self.batches:
            batch.encode()

    def time_decode(self, kind: str) -> None:
        for batch, message in zip(self.batches, self.messages, strict=True):
            Batch.decode(batch.schema, message)

    def track_allocations_after_warm_up(self, kind: str) -> int:
        """From the system, while buffers are used again: none."""
        for _ in range(2):
            self.time_take_half(kind)
        before = arena_statistics()["allocations"]
        self.time_take_half(kind)
        return arena_statistics()["allocations"] - before

    track_allocations_after_warm_up.unit = "allocations"
