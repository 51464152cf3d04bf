"""Looks at a file of any format, and opens it to be read from any place in it."""

from typing import Any, NamedTuple

import pyarrow as pa

from jetfast.connectors.columnar_files import IpcReader, ParquetReader, open_ipc, open_parquet
from jetfast.connectors.file_formats import FileReader, Place, ReadOptions
from jetfast.connectors.text_files import CsvReader, JsonReader, header_of
from jetfast.connectors.text_types import infer_csv, infer_json


class FileFacts(NamedTuple):
    """What a look at a file tells."""

    schema: pa.Schema | None
    """Columns and types; None for text without a single row, which tells no types."""
    rows: int | None
    """Number of rows, if the format keeps it."""


def look_at_file(filesystem: Any, path: str, file_format: str, options: ReadOptions) -> FileFacts:
    """Return columns and types of a file, and its rows if the format keeps their number.

    Text: types are inferred from the first SAMPLE_BYTES. Times become microseconds; a column that is null throughout
    the sample becomes text.
    """
    rows = None
    if file_format == "parquet":
        with filesystem.open_input_file(path) as stream:
            file = open_parquet(stream, options.bounds)
            schema, rows = file.schema_arrow, file.metadata.num_rows
    elif file_format in ("ipc", "ipc_stream"):
        reader = open_ipc(filesystem, path, options.bounds)
        schema = reader.schema
        reader.close()
    elif file_format == "csv":
        return FileFacts(infer_csv(filesystem, path, options), None)
    else:
        return FileFacts(infer_json(filesystem, path, options.bounds), None)
    return FileFacts(schema.remove_metadata(), rows)


def csv_header(filesystem: Any, path: str, options: ReadOptions) -> list[str]:
    """Return the column names of a CSV file. Raises ValueError if it is empty or names a column twice."""
    return header_of(filesystem, path, options)[0]


def open_file(
    filesystem: Any,
    path: str,
    file_format: str,
    schema: pa.Schema,
    place: Place,
    batch_rows: int,
    options: ReadOptions,
    all_fields: bool,
) -> FileReader:
    """Open a file to read the columns of `schema`, in its order, from `place`.

    all_fields : the schema holds every field, so that a JSON record with another one is malformed
    """
    if file_format == "parquet":
        return ParquetReader(filesystem, path, schema, place, batch_rows, options.bounds)
    if file_format in ("ipc", "ipc_stream"):
        return IpcReader(filesystem, path, schema, place, batch_rows, options.bounds)
    if file_format == "csv":
        return CsvReader(filesystem, path, schema, place, batch_rows, options)
    return JsonReader(filesystem, path, schema, place, batch_rows, options, all_fields)
