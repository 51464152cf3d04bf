"""The formats of files, by name and by suffix, and what a reader of one gives: Parquet, CSV, JSON lines, Arrow IPC.

A place is four int64 numbers that only the reader of the format understands; `START` is the beginning. Text files are
counted in lines from 0 (the header is line 0), others in rows from 0.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.connectors.file_bounds import DEFAULT_BOUNDS, Bounds
from jetfast.connectors.file_marks import Marks
from jetfast.connectors.text_records import Malformed

Place = tuple[int, int, int, int]
START: Place = (0, 0, 0, 0)

FORMATS = ("parquet", "csv", "json", "ipc", "ipc_stream")
_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".arrows": "ipc_stream",
}
_PART_SUFFIXES = {"parquet": ".parquet", "csv": ".csv", "json": ".jsonl", "ipc": ".arrow", "ipc_stream": ".arrows"}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_FORMAT_NAMES = {"jsonl": "json", "ndjson": "json", "arrow": "ipc", "feather": "ipc", "arrows": "ipc_stream"}


def format_of(path: str) -> str | None:
    """Return the format that the suffix tells, or None."""
    name = path.lower()
    for suffix, compression_name in _COMPRESSIONS.items():
        if name.endswith(suffix) and compression_name:
            inner = _SUFFIXES.get("." + name.removesuffix(suffix).rpartition(".")[2])
            return inner if inner in ("csv", "json") else None
    return _SUFFIXES.get("." + name.rpartition(".")[2])


def compression_of(path: str) -> str | None:
    """Return the codec that the suffix tells, or None."""
    return next((codec for suffix, codec in _COMPRESSIONS.items() if path.lower().endswith(suffix)), None)


def format_named(name: str) -> str | None:
    """Return the format that a user calls `name`, or None."""
    name = name.lower().lstrip(".")
    name = _FORMAT_NAMES.get(name, name)
    return name if name in FORMATS else None


def may_grow(file_format: str) -> bool:
    """May rows be appended to a file of a format while a job reads it?"""
    return file_format in ("csv", "json")


def default_suffix(file_format: str) -> str:
    """Return the suffix of part files of a format."""
    return _PART_SUFFIXES[file_format]


@dataclass(frozen=True)
class ReadOptions:
    """How files are read. Of CSV only `null_values` stand for null, in every column, unless they are quoted."""

    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)
    bounds: Bounds = DEFAULT_BOUNDS


class FileRows(NamedTuple):
    """Some rows of a file and the place behind them."""

    batch: pa.RecordBatch
    place: Place
    first_row: int
    malformed: list[Malformed]
    row_numbers: npt.NDArray[np.int64] | None = None


class FileReader(Protocol):
    """Reads one file from one place to its end."""

    @property
    def marks(self) -> Marks:
        """Of the file up to the place of the rows that were read last; before the first, up to where reading begins."""

    def read(self) -> FileRows | None:
        """The next rows, None at the end. Raises OSError, ValueError and pyarrow's errors for what cannot be read."""

    def close(self) -> None: ...
