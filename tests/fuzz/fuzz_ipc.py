"""Damaged Arrow IPC and damaged messages between members: an error or other values is fine, a crash is not.

    python tests/fuzz/fuzz_ipc.py --seconds 30 [--seed N] [--first ITERATION] [--door ipc|file|message]

Three doors, with the same damage: `ipc` reads with pyarrow, has it check in full (pyarrow reads damaged buffers without
a word) and gives what passes to Batch.from_arrow; `file` reads with the reader of jf.files; `message` gives bytes to
Batch.decode, which checks all by itself. Whatever comes in is sliced, taken, hashed, split, keyed, sent and exported.
Works in a child process; when that dies, the seed and iteration to run again are printed and the exit code is 1.
"""

import argparse
import contextlib
import faulthandler
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from jetfast.connectors.columnar_files import IpcReader
from jetfast.connectors.file_formats import ReadOptions
from jetfast.connectors.file_readers import look_at_file
from jetfast.kernels.columns import Batch, ReceivedColumns, SentColumns, concatenate
from jetfast.kernels.keys import KeyIndex
from jetfast.kernels.partitioning import Splitter, check_key_types, hash_columns

DOORS = ("ipc", "file", "message")
TELLING_WORDS = [0, 1, 2, 7, 8, 9, 63, 64, 65, 1000, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -1, -8, -(2**63)]
# What Arrow or Python refuses in its own words is fine too: sizes that overflow, too much memory, a type not supported.
REFUSALS = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError)

_FIXED = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("s"),
    pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.duration("ms"), pa.decimal32(5, 2), pa.decimal64(16, 0),
    pa.decimal128(18, 4), pa.decimal128(38, 10), pa.decimal256(50, 3), pa.binary(0), pa.binary(3), pa.binary(16),
]  # fmt: skip
_TEXT = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()]
_CODES = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]


def random_array(rng: random.Random, row_count: int, depth: int = 0) -> pa.Array:
    """An array of any type, often a slice of a longer one."""
    before = rng.choice([0, 0, 1, 3, 9])
    return _whole_array(rng, before + row_count + rng.choice([0, 2]), depth).slice(before, row_count)


def _mask(rng: random.Random, row_count: int) -> np.ndarray | None:
    share = rng.choice([0, 0, 0.2, 0.9])
    return np.array([rng.random() < share for _ in range(row_count)], dtype=bool) if share else None


def _whole_array(rng: random.Random, row_count: int, depth: int) -> pa.Array:
    kind = rng.randrange(12 if depth < 2 else 7)
    mask = _mask(rng, row_count)
    validity = None if mask is None else pa.array(~mask).buffers()[1]
    if kind < 3:
        data_type = rng.choice(_FIXED)
        values = rng.randbytes(row_count * data_type.bit_width // 8)
        if pa.types.is_decimal(data_type) or pa.types.is_date64(data_type) or pa.types.is_time(data_type):
            values = bytes(len(values))  # else they are out of range
        return pa.Array.from_buffers(data_type, row_count, [validity, pa.py_buffer(values)])
    if kind < 5:
        longest = rng.choice([3, 12, 40])
        words = ["".join(rng.choices("abcé", k=rng.randrange(longest + 1))) for _ in range(row_count)]
        data_type = rng.choice(_TEXT)
        items = [word.encode() if "binary" in str(data_type) else word for word in words]
        return pa.array([None if mask is not None and mask[i] else item for i, item in enumerate(items)], data_type)
    if kind == 5:
        bits = [rng.random() < 0.5 for _ in range(row_count)]
        return pa.array(bits, pa.bool_(), mask=mask)
    if kind == 6:
        return pa.nulls(row_count)
    if kind < 9:
        entries = random_array(rng, rng.choice([1, 3, 100]), 2)
        codes = np.array([rng.randrange(len(entries)) for _ in range(row_count)], dtype=np.int64)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=mask).cast(rng.choice(_CODES)), entries)
    if kind < 11:
        lengths = [rng.randrange(3) for _ in range(row_count)]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        items = random_array(rng, int(offsets[-1]), depth + 1)
        return pa.ListArray.from_arrays(pa.array(offsets), items, mask=None if mask is None else pa.array(mask))
    children = [random_array(rng, row_count, depth + 1) for _ in range(rng.randrange(1, 3))]
    return pa.StructArray.from_arrays(children, [f"f{index}" for index in range(len(children))])


def random_rows(rng: random.Random) -> pa.RecordBatch:
    row_count = rng.choice([0, 1, 5, 17, 70])
    columns = [random_array(rng, row_count) for _ in range(rng.randrange(1, 5))]
    return pa.RecordBatch.from_arrays(columns, [f"c{index}" for index in range(len(columns))])


def damaged(rng: random.Random, intact: bytes) -> bytearray:
    """A few random changes: bits, bytes, words that sizes and offsets may be, a cut, a block moved."""
    data = bytearray(intact)
    for _ in range(rng.choice([1, 1, 2, 3, 8])):
        if len(data) < 16:
            break
        kind = rng.randrange(6)
        position = rng.randrange(len(data))
        if kind == 0:
            data[position] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[position] = rng.randrange(256)
        elif kind == 2:
            position &= ~7
            word = struct.pack("<q", rng.choice(TELLING_WORDS))
            data[position : position + 8] = word[: len(data) - position]
        elif kind == 3:
            position &= ~3
            word = struct.pack("<i", rng.choice([0, 1, -1, 13, 100, 2**31 - 1, -(2**31)]))
            data[position : position + 4] = word[: len(data) - position]
        elif kind == 4:
            source = rng.randrange(len(data))
            size = rng.randrange(1, 17)
            block = data[source : source + size]
            data[position : position + len(block)] = block
        elif rng.random() < 0.3:
            del data[position:]
    return data


def exercise(batch: Batch, rng: random.Random) -> None:
    """Everything that may happen to a batch; errors are allowed, for values may be odd."""
    if batch.row_count > 10_000 or not batch.column_names:
        return
    names = batch.column_names
    start = rng.randrange(batch.row_count + 1)
    part = batch.slice(start)
    rows = np.array([rng.randrange(batch.row_count) for _ in range(batch.row_count)], dtype=np.int32)
    taken = batch.take(rows)
    keys = [name for name in names if names.count(name) == 1 and is_key(batch.schema, name)]
    if keys:
        hash_columns([batch.to_arrow().column(name) for name in keys])
        owners = np.arange(271, dtype=np.int32) % 3
        for owned in Splitter(batch.schema, keys, owners, 3).split(batch):
            assert owned is None or len(owned) <= len(batch)
        index = KeyIndex(batch.schema, keys)
        slots = index.assign_slots(taken)
        assert len(slots) == len(taken)
        index.keys_of(np.unique(slots))
    joined = concatenate([part, taken, batch])
    assert joined.row_count == part.row_count + 2 * batch.row_count
    sent = Batch.decode(batch.schema, b"".join(part.encode()))
    assert sent.row_count == part.row_count
    for made in (part, taken, joined, sent):
        made.to_arrow().validate()


def is_key(schema: pa.Schema, name: str) -> bool:
    try:
        check_key_types(schema, [name])
    except TypeError:
        return False
    return True


class Fuzzer:
    """Intact data of many shapes, and one damaged variant an iteration."""

    def __init__(self, seed: int, door: str | None) -> None:
        self.seed = seed
        self.doors = DOORS if door is None else (door,)
        rng = random.Random(seed)
        self.rows = [random_rows(rng) for _ in range(80)]
        self.taken_in = 0
        self.directory = tempfile.TemporaryDirectory(prefix="jetfast-fuzz-", dir=_memory_directory())
        self.path = str(Path(self.directory.name) / "rows.arrow")

    def run(self, iteration: int) -> None:
        rng = random.Random(f"{self.seed}:{iteration}")
        rows = rng.choice(self.rows)
        door = rng.choice(self.doors)
        with contextlib.suppress(*REFUSALS):
            getattr(self, f"through_{door}")(rows, rng)

    def through_message(self, rows: pa.RecordBatch, rng: random.Random) -> None:
        sent, received = SentColumns(), ReceivedColumns()
        names = [name for name in rows.schema.names if rows.schema.names.count(name) == 1]
        whole = Batch.from_arrow(rows).that_comes_again(rng.sample(names, rng.randint(0, len(names))))
        for part in (whole, whole, whole.slice(rows.num_rows // 2), whole):
            message = b"".join(part.encode(sent))
            sent.settle()
            try:
                batch = Batch.decode(rows.schema, damaged(rng, message) if rng.random() < 0.5 else message, received)
            except ValueError:
                continue
            self.taken_in += 1
            exercise(batch, rng)

    def through_ipc(self, rows: pa.RecordBatch, rng: random.Random) -> None:
        is_stream = rng.random() < 0.5
        data = pa.py_buffer(bytes(damaged(rng, _ipc_bytes(rows, is_stream))))
        if is_stream:
            with pa.ipc.open_stream(data) as reader:
                batches = list(reader)
        else:
            with pa.ipc.open_file(data) as reader:
                batches = [reader.get_batch(index) for index in range(min(reader.num_record_batches, 4))]
        for read in batches:
            read.validate(full=True)
            self.taken_in += 1
            exercise(Batch.from_arrow(read), rng)

    def through_file(self, rows: pa.RecordBatch, rng: random.Random) -> None:
        Path(self.path).write_bytes(damaged(rng, _ipc_bytes(rows, rng.random() < 0.5)))
        if look_at_file(fs.LocalFileSystem(), self.path, "ipc", ReadOptions()).schema != rows.schema:
            return  # FilesReader refuses it
        reader = IpcReader(fs.LocalFileSystem(), self.path, rows.schema, (0, 0, 0, 0), 65536, ReadOptions().bounds)
        try:
            while (part := reader.read()) is not None:
                self.taken_in += 1
                exercise(Batch.from_arrow(part.batch), rng)
                del part
        finally:
            reader.close()


def _ipc_bytes(rows: pa.RecordBatch, is_stream: bool) -> bytes:
    sink = pa.BufferOutputStream()
    writer: Any = (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(sink, rows.schema)
    with writer:
        for start in (0, rows.num_rows // 2):
            writer.write_batch(rows.slice(start))
    return bytes(sink.getvalue())


def _memory_directory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def work(arguments: argparse.Namespace) -> None:
    """Iterate; the number of the one under way is where the parent finds it after a crash."""
    faulthandler.enable()
    fuzzer = Fuzzer(arguments.seed, arguments.door)
    with open(arguments.progress, "r+b") as file, mmap.mmap(file.fileno(), 8) as progress:
        start = time.monotonic()
        iteration = arguments.first
        while time.monotonic() < start + arguments.seconds:
            progress[:] = struct.pack("<q", iteration)
            fuzzer.run(iteration)
            iteration += 1
    done = iteration - arguments.first
    seconds = time.monotonic() - start
    print(f"fuzz_ipc: seed {arguments.seed}, {done} iterations in {seconds:.0f} s, {done / seconds:.0f} a second, "
          f"{fuzzer.taken_in} damaged batches were taken in")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="iteration to begin with")
    parser.add_argument("--door", choices=DOORS)
    parser.add_argument("--progress", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.progress:
        work(arguments)
        return 0
    with tempfile.NamedTemporaryFile() as progress:
        progress.write(bytes(8))
        progress.flush()
        result = subprocess.run([sys.executable, *sys.argv, "--progress", progress.name])
        if result.returncode == 0:
            return 0
        iteration = struct.unpack("<q", Path(progress.name).read_bytes())[0]
    door = f" --door {arguments.door}" if arguments.door else ""
    print(f"fuzz_ipc: failed with exit code {result.returncode}; again: python tests/fuzz/fuzz_ipc.py "
          f"--seed {arguments.seed} --first {iteration} --seconds 0.001{door}")  # fmt: skip
    return 1


if __name__ == "__main__":
    sys.exit(main())
