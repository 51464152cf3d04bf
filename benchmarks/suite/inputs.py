"""The same events with other columns: what NULLs, text keys and several key columns cost beside one int64 key."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .batches import BATCH_ROWS, Events

NULL_SHARE = 0.12
KINDS = ("int64", "nulls", "utf8", "two columns")


@dataclass(frozen=True)
class Input:
    """Batches and their key columns."""

    schema: pa.Schema
    keys: list[str]
    batches: list[pa.RecordBatch]
    key_nulls: np.ndarray | None = None  # bool, shape (rows,): the key is NULL
    value_nulls: np.ndarray | None = None


def make_input(events: Events, kind: str, batch_rows: int = BATCH_ROWS) -> Input:
    """Return the events as one of KINDS.

    nulls : 12 % of keys and 12 % of values are NULL, independently
    utf8 : keys of 12 characters
    two columns : both int64; as many pairs as there were keys
    """
    table = events.table()
    keys = ["key"]
    key_nulls = value_nulls = None
    if kind == "nulls":
        random = np.random.default_rng(2)
        key_nulls, value_nulls = (random.random(len(events)) < NULL_SHARE for _ in range(2))
        table = table.set_column(0, "key", pa.array(events.keys, mask=key_nulls))
        table = table.set_column(2, "value", pa.array(events.values, mask=value_nulls))
    elif kind == "utf8":
        names = pa.array([f"user-{key:07d}" for key in range(int(events.keys.max()) + 1)])
        table = table.set_column(0, "key", names.take(pa.array(events.keys)))
    elif kind == "two columns":
        table = table.set_column(0, "key", pa.array(events.keys // 100)).append_column(
            "key2", pa.array(events.keys % 100)
        )
        keys = ["key", "key2"]
    elif kind != "int64":
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    return Input(table.schema, keys, table.to_batches(max_chunksize=batch_rows), key_nulls, value_nulls)


def int64_keys(results: pa.RecordBatch, kind: str, null_key: int) -> np.ndarray:
    """The keys of results as the events had them; `null_key` stands for NULL."""
    key = results.column("key")
    if kind == "utf8":
        return pc.utf8_slice_codeunits(key, 5).cast(pa.int64()).to_numpy()
    if kind == "two columns":
        return key.to_numpy() * 100 + results.column("key2").to_numpy()
    return key.fill_null(null_key).to_numpy()
