"""Arrow files with damage that pyarrow reads without a word: refused before a kernel sees it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from jetfast.connectors.columnar_files import IpcReader
from jetfast.connectors.file_bounds import DEFAULT_BOUNDS


@pytest.mark.parametrize("name", ["offsets", "codes"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_damaged_offsets_and_codes_of_a_file_are_an_error(name: str, is_stream: bool, tmp_path: Path) -> None:
    words = [f"word {index}" for index in range(7)]
    codes = pa.array([6, 5, 4, 3, 2, 1, 0], pa.int32())
    columns = {"offsets": pa.array(words), "codes": pa.DictionaryArray.from_arrays(codes, pa.array(words))}
    rows = pa.RecordBatch.from_arrays([columns[name]], [name])
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data = bytearray(sink.getvalue().to_pybytes())
    if name == "offsets":
        position = data.index(np.cumsum([6] * 6).astype(np.int32).tobytes())
    else:
        position = data.index(np.arange(7, dtype=np.int32)[::-1].tobytes())
    data[position : position + 4] = (2**30).to_bytes(4, "little")
    path = tmp_path / "rows.arrow"
    path.write_bytes(data)
    reader = IpcReader(fs.LocalFileSystem(), str(path), rows.schema, (0, 0, 0, 0), 65536, DEFAULT_BOUNDS)
    with pytest.raises(pa.ArrowInvalid):
        reader.read()
    reader.close()
