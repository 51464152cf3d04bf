"""Keys to dense slots."""

from jetfast.kernels.columns import Batch
from jetfast.kernels.keys import KeyIndex

from .batches import BATCH_ROWS, make_events
from .inputs import KINDS, make_input


class AssignSlots:
    """64 batches of 8192 rows a call, all keys known."""

    params = [[100, 10_000, 1_000_000], list(KINDS)]
    param_names = ["keys", "input"]
    timeout = 300

    def setup(self, keys: int, kind: str) -> None:
        made = make_input(make_events(64 * BATCH_ROWS, keys), kind)
        self.batches = [Batch.from_arrow(batch) for batch in made.batches]
        self.schema, self.keys = made.schema, made.keys
        self.index = self.filled()

    def filled(self) -> KeyIndex:
        index = KeyIndex(self.schema, self.keys)
        for batch in self.batches:
            index.assign_slots(batch)
        return index

    def time_known_keys(self, keys: int, kind: str) -> None:
        for batch in self.batches:
            self.index.assign_slots(batch)

    def time_new_keys(self, keys: int, kind: str) -> None:
        self.filled()

    def track_bytes_per_key(self, keys: int, kind: str) -> float:
        return self.index.nbytes / len(self.index)

    track_bytes_per_key.unit = "bytes"
