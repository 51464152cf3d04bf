"""PyArrow: splitting a batch by a hash of its key, grouping by key and frame."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.numpy import part_ids


def split_by_sort(batch: pa.RecordBatch, parts: int) -> list[pa.RecordBatch]:
    """Hash by numpy (pyarrow has none), sort indices, take, cut into slices."""
    ids = part_ids(batch.column(0).to_numpy(), parts)
    taken = batch.take(pc.array_sort_indices(pa.array(ids)))
    counts = np.bincount(ids, minlength=parts)
    starts = np.cumsum(counts) - counts
    return [taken.slice(start, count) for start, count in zip(starts.tolist(), counts.tolist(), strict=True)]


def split_by_filter(batch: pa.RecordBatch, parts: int) -> list[pa.RecordBatch]:
    """Hash by numpy, one filter for each part."""
    ids = pa.array(part_ids(batch.column(0).to_numpy(), parts))
    return [batch.filter(pc.equal(ids, part)) for part in range(parts)]


SPLIT = {"sort": split_by_sort, "filter": split_by_filter}


def frames(table: pa.Table, slide_us: int) -> pa.Table:
    """Count and sum by key and frame."""
    frame = pc.divide(table["time"].cast(pa.int64()), slide_us)
    return (
        table.append_column("frame", frame)
        .group_by(["key", "frame"], use_threads=False)
        .aggregate([("value", "count"), ("value", "sum")])
    )


FRAMES = {"group_by": frames}


def frames_arrays(found: pa.Table) -> dict[str, npt.NDArray]:
    names = {"key": "key", "frame": "frame", "count": "value_count", "sum": "value_sum"}
    return {name: found[column].to_numpy() for name, column in names.items()}
