"""Compressed Arrow IPC files that ask for too much memory are refused before Arrow decodes them; others are read."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, fs

from jetfast.connectors.columnar_files import open_ipc
from jetfast.connectors.file_bounds import DEFAULT_BOUNDS, Bounds
from jetfast.connectors.files import files
from jetfast.connectors.ipc_messages import Table
from jetfast.errors import JobFailedError
from tests.connectors.reading import check_resuming, read_partition
from tests.connectors.test_file_bounds import read_in_child

ZEROS = 480 << 20
LIMIT = "more than 268435456; batch_size= of jf.files says how many may be decoded at once"
FORMS = pytest.mark.parametrize("suffix", ["arrow", "arrows"])
CODECS = pytest.mark.parametrize("codec", ["zstd", "lz4"])


def write(path: Path, schema: pa.Schema, batches: list[pa.RecordBatch], **options: Any) -> bytes:
    """Write a file or, if the suffix is .arrows, a stream."""
    new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with new(path, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path.read_bytes()


def zeros(count: int) -> pa.Array:
    return pa.array(np.zeros(count, np.int8))


def long_words(count: int, length: int) -> pa.Array:
    """Return words of zeros, without a copy of each."""
    offsets = pa.array(np.arange(count + 1, dtype=np.int64) * length)
    buffers = [None, offsets.buffers()[1], zeros(count * length).buffers()[1]]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def error_of(path: Path, **options: Any) -> str:
    source = files(path, **options)
    (partition,) = source.partitions()
    with pytest.raises(JobFailedError) as raised:
        read_partition(source, partition)
    return str(raised.value)


@FORMS
@CODECS
def test_a_small_file_that_decompresses_to_gigabytes_is_refused(tmp_path: Path, suffix: str, codec: str) -> None:
    path = tmp_path / f"x.{suffix}"
    bomb = pa.record_batch([zeros(ZEROS)] * 4, ["a", "b", "c", "d"])
    write(path, bomb.schema, [bomb.slice(0, 10), bomb], compression=codec)
    assert path.stat().st_size < ZEROS // 50
    error = read_in_child(path)["error"]
    assert f"x.{suffix}' cannot be read further at row 10" in error
    assert f"record batch 1 takes {4 * ZEROS} bytes when it is decompressed, {LIMIT}" in error


def test_a_feather_file_of_fifteen_kilobytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.feather"
    feather.write_feather(pa.table({"x": zeros(ZEROS)}), path, "zstd", chunksize=ZEROS)
    assert path.stat().st_size < 50_000
    assert f"record batch 0 takes {ZEROS} bytes when it is decompressed, {LIMIT}" in read_in_child(path)["error"]


@FORMS
@CODECS
def test_dictionaries_that_together_take_too_much_are_refused(tmp_path: Path, suffix: str, codec: str) -> None:
    path = tmp_path / f"x.{suffix}"
    words = long_words(1, 200 << 20)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), words)
    batch = pa.record_batch([column] * 8, list("abcdefgh"))
    write(path, batch.schema, [batch], compression=codec)
    answer = read_in_child(path)
    assert answer["rows"] == 0
    assert f"the dictionaries up to dictionary batch 1 take {(400 << 20) + 32} bytes decompressed" in answer["error"]


def dictionary_batches(sizes: list[int]) -> list[pa.RecordBatch]:
    """Return a batch for each dictionary. Each dictionary begins with the words of the one before."""
    return [
        pa.record_batch(
            [pa.DictionaryArray.from_arrays(pa.array([size - 1], pa.int16()), long_words(size, 1000))], ["x"]
        )
        for size in sizes
    ]


@pytest.mark.parametrize("deltas", [True, False])
def test_deltas_add_to_a_dictionary_and_others_replace_it(tmp_path: Path, deltas: bool) -> None:
    path = tmp_path / "x.arrows"
    batches = dictionary_batches([100, 200, 300, 400])
    write(path, batches[0].schema, batches, compression="zstd", emit_dictionary_deltas=deltas)
    (partition,) = files(path).partitions()
    whole = check_resuming(files(path, batch_size="500kB"), partition)
    assert whole.rows == [{"x": b"\0" * 1000}] * 4
    error = error_of(path, batch_size="310kB")
    assert "x.arrows' cannot be read further at row 3: ValueError: the dictionaries up to dictionary batch 3" in error


def test_the_bound_is_an_option(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    batch = pa.record_batch([zeros(100_000)], ["x"])
    write(path, batch.schema, [batch], compression="zstd")
    (partition,) = files(path).partitions()
    assert len(read_partition(files(path, batch_size="100kB"), partition).rows) == 100_000
    assert "record batch 0 takes 100000 bytes when it is decompressed, more than 99000" in error_of(
        path, batch_size="99kB"
    )
    write(path, batch.schema, [batch])  # not compressed: the file holds all bytes that are decoded
    assert len(read_partition(files(path, batch_size="99kB"), partition).rows) == 100_000


@FORMS
@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (1 << 62, f"record batch 0 takes {1 << 62} bytes"),
        (-2, "record batch 0 is damaged: a buffer declares -2 bytes"),
        (-(1 << 63), f"record batch 0 is damaged: a buffer declares {-(1 << 63)} bytes"),
    ],
)
def test_a_damaged_declared_length_is_refused(tmp_path: Path, suffix: str, declared: int, expected: str) -> None:
    path = tmp_path / f"x.{suffix}"
    batch = pa.record_batch([zeros(77_777)], ["x"])
    data = write(path, batch.schema, [batch], compression="zstd")
    length = struct.pack("<q", 77_777) + b"\x28\xb5\x2f\xfd"  # and the magic number of zstd
    assert data.count(length) == 1
    path.write_bytes(data.replace(length, struct.pack("<q", declared) + length[8:]))
    assert expected in error_of(path)


def record_batch_table(data: bytes, message: int) -> tuple[int, Table, Table]:
    """Return where a message's metadata begin, the table Message, and its table RecordBatch."""
    view = memoryview(data)[message + 8 :]
    root = Table.root(view)
    return message + 8, root, root.table(2)


def find_record_batch(data: bytes) -> int:
    """Return where the message of the first record batch of a stream begins."""
    schema = pa.ipc.read_message(pa.py_buffer(data))
    return len(schema.serialize())


@pytest.mark.parametrize(("field", "value"), [(0, -8), (0, 1 << 40), (8, -1), (8, 1 << 40), (8, 7)])
def test_a_buffer_beyond_its_message_is_refused(tmp_path: Path, field: int, value: int) -> None:
    path = tmp_path / "x.arrows"
    batch = pa.record_batch([zeros(77_777)], ["x"])
    data = bytearray(write(path, batch.schema, [batch], compression="zstd"))
    start, _, table = record_batch_table(bytes(data), find_record_batch(bytes(data)))
    buffers = bytes(table.structs(2, 16))
    assert data.count(buffers) == 1
    position = data.index(buffers) + 16 + field  # of the second buffer; the first is the empty validity
    data[position : position + 8] = struct.pack("<q", value)
    assert start < position
    path.write_bytes(data)
    assert "the metadata of record batch 0, or of a dictionary before it, are damaged" in error_of(path)


def test_a_file_of_arrow_0_17_is_bounded(tmp_path: Path) -> None:
    """It has the codec in the custom metadata, not in the field `compression` of RecordBatch."""
    path = tmp_path / "x.arrows"
    batch = pa.record_batch([zeros(77_777)], ["x"])
    options = pa.ipc.IpcWriteOptions(compression="zstd", metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.ipc.new_stream(path, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    data = bytearray(path.read_bytes())
    start, _, table = record_batch_table(bytes(data), find_record_batch(bytes(data)))
    slot = start + table.vtable + 4 + 2 * 3
    assert data[slot : slot + 2] != b"\0\0"
    data[slot : slot + 2] = b"\0\0"
    path.write_bytes(data)
    (partition,) = files(path).partitions()
    assert len(read_partition(files(path), partition).rows) == 77_777
    assert "record batch 0 takes 77777 bytes when it is decompressed" in error_of(path, batch_size="77kB")


@FORMS
def test_no_damage_of_metadata_is_more_than_an_error(tmp_path: Path, suffix: str) -> None:
    """Each byte is changed in turn. The file is read or refused."""
    path = tmp_path / f"x.{suffix}"
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a" * 40, "b" * 40]))
    batch = pa.record_batch([column, pa.array([1, 2, 3])], ["x", "y"])
    data = write(path, batch.schema, [batch], compression="zstd")
    read = 0
    for position in range(len(data)):
        for value in (0, 0x7F, 0xFF):
            path.write_bytes(data[:position] + bytes([value]) + data[position + 1 :])
            try:
                file = open_ipc(fs.LocalFileSystem(), str(path), Bounds(batch_bytes=10_000))
            except (ValueError, OSError, pa.ArrowException):
                continue
            try:
                while (rows := file.next_batch()) is not None:
                    read += rows.num_rows
            except (ValueError, OSError, KeyError, pa.ArrowException):
                pass
            finally:
                file.close()
    assert read > 0


COLUMNS = {
    "number": pa.int64(),
    "word": pa.string(),
    "view": pa.string_view(),
    "flag": pa.bool_(),
    "list": pa.list_(pa.int32()),
    "struct": pa.struct([("a", pa.float64()), ("b", pa.string())]),
    "code": pa.dictionary(pa.int32(), pa.string()),
    "decimal": pa.decimal128(10, 2),
    "nothing": pa.null(),
}
ROW = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "word": st.none() | st.text(max_size=20),
        "view": st.none() | st.text(max_size=40),
        "flag": st.none() | st.booleans(),
        "list": st.none() | st.lists(st.integers(0, 9), max_size=5),
        "struct": st.none() | st.fixed_dictionaries({"a": st.floats(allow_nan=False), "b": st.text(max_size=3)}),
        "code": st.none() | st.sampled_from(["x", "y", "z"]),
        "decimal": st.none() | st.decimals(-1000, 1000, places=2),
        "nothing": st.none(),
    }
)


@given(
    parts=st.lists(st.lists(ROW, max_size=6), max_size=4),
    repeat=st.sampled_from([1, 50]),
    codec=st.sampled_from([None, "lz4", "zstd"]),
    suffix=st.sampled_from(["arrow", "arrows"]),
    legacy=st.booleans(),
    local=st.booleans(),
)
def test_ordinary_files_are_read_as_pyarrow_reads_them(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[list[dict[str, Any]]],
    repeat: int,
    codec: str | None,
    suffix: str,
    legacy: bool,
    local: bool,
) -> None:
    directory = tmp_path_factory.mktemp("ipc")
    path = directory / f"x.{suffix}"
    schema = pa.schema(list(COLUMNS.items()))
    words = pa.array(["x", "y", "z"])
    batches = []
    for part in parts:
        batch = pa.RecordBatch.from_pylist(part * repeat, schema)
        codes = [None if row["code"] is None else "xyz".index(row["code"]) for row in part * repeat]
        code = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), words)
        batches.append(batch.set_column(schema.names.index("code"), schema.field("code"), code))
    write(path, schema, batches, compression=codec, use_legacy_format=legacy and suffix == "arrow")
    filesystem = fs.LocalFileSystem() if local else fs.SubTreeFileSystem(str(directory), fs.LocalFileSystem())
    file = open_ipc(filesystem, str(path) if local else path.name, DEFAULT_BOUNDS)
    read = list(iter(file.next_batch, None))
    for batch in read:
        batch.validate(full=True)
    assert read == batches
    file.close()


@FORMS
@CODECS
def test_reading_resumes_in_a_compressed_file(tmp_path: Path, suffix: str, codec: str) -> None:
    path = tmp_path / f"x.{suffix}"
    table = pa.table({"id": range(1000), "word": [f"word {row % 7}" for row in range(1000)]})
    write(path, table.schema, table.to_batches(130), compression=codec)
    (partition,) = files(path).partitions()
    assert check_resuming(files(path, batch_rows=50), partition).rows == table.to_pylist()
