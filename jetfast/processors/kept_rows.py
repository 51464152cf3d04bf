"""Rows of one side of a join that rows of the other may still meet, by slot of their key and by time."""

import pyarrow as pa

from jetfast.kernels.joins import TimeChains
from jetfast.processors.row_store import RowStore

COMPACT_ROWS = 65_536
"""So many rows that nothing can meet any more are kept at least before they are let go."""


class KeptRows:
    """The rows, and chains of their numbers by slot and time."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = RowStore(schema)
        self.chains = TimeChains()
