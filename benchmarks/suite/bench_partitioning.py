"""Hashing keys and splitting batches by partition."""

import numpy as np
import pyarrow as pa

from jetfast import assign_partitions
from jetfast.core.routing import partition_owners
from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import Splitter

from .batches import BATCH_ROWS, make_events


class AssignPartitions:
    """Spark's hash of one key column; 64 batches a call."""

    params = ["int64", "int32", "string", "dictionary", "two columns", "int64 with nulls"]
    param_names = ["key"]

    def setup(self, key: str) -> None:
        keys = make_events(64 * BATCH_ROWS, 10_000).keys
        whole = pa.array(keys)
        columns: dict[str, list[pa.Array]] = {
            "int64": [whole],
            "int32": [whole.cast(pa.int32())],
            "string": [whole.cast(pa.string())],
            "dictionary": [whole.cast(pa.string()).dictionary_encode()],
            "two columns": [whole, whole.cast(pa.int32())],
            "int64 with nulls": [pa.array(keys, mask=np.arange(len(keys)) % 8 == 0)],
        }
        self.batches = [
            [column.slice(start, BATCH_ROWS) for column in columns[key]] for start in range(0, len(keys), BATCH_ROWS)
        ]

    def time_assign(self, key: str) -> None:
        for batch in self.batches:
            assign_partitions(batch)


class Split:
    """One batch of 8192 rows and 3 columns into parts; 256 batches a call."""

    params = [2, 8, 64]
    param_names = ["parts"]

    def setup(self, parts: int) -> None:
        batches = make_events(256 * BATCH_ROWS, 10_000).record_batches()
        self.batches = [Batch.from_arrow(batch) for batch in batches]
        self.splitter = Splitter(batches[0].schema, ["key"], partition_owners(271, 1, parts), parts)

    def time_split(self, parts: int) -> None:
        for batch in self.batches:
            self.splitter.split(batch)
