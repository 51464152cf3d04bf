"""Files that ask for too much memory or stack: each is read in a process of its own that may use 1.5 GB, and lives."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetfast.connectors.file_bounds import Bounds, check_schema
from jetfast.connectors.files import files
from jetfast.connectors.text_records import Records, first_values
from jetfast.errors import JobDefinitionError
from tests.connectors.reading import check_resuming, read_partition

MEMORY = 1536 << 20
READ = """
import json, resource, sys
import pyarrow as pa
import jetfast as jf
from jetfast.errors import JetfastError
from tests.connectors.reading import context

path, memory, options = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
answer = {"rows": 0, "rejected": [], "bytes_max": 0, "error": None, "columns": 0}
try:
    source = jf.files(path, **options)
    answer["columns"] = len(source.schema)
    for partition in source.partitions():
        reader = source.open_reader(partition, None, context())
        while (rows := reader.read()) is not None:
            answer["rows"] += rows.batch.row_count
            answer["bytes_max"] = max(answer["bytes_max"], rows.batch.nbytes)
            if rows.rejected is not None:
                answer["rejected"] += [row["reason"] for row in rows.rejected.to_arrow().to_pylist()]
except JetfastError as error:
    answer["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(answer))
"""


def read_in_child(path: Path, options: str = "{}") -> dict[str, Any]:
    """Read a file in a process with little memory. It must end by itself, with an answer."""
    command = [sys.executable, "-c", READ, str(path), str(MEMORY), options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("options", ["{}", "{'schema': pa.schema([('id', pa.int64())])}"])
def test_a_line_of_nested_brackets_is_rejected_and_others_are_read(tmp_path: Path, options: str) -> None:
    path = tmp_path / "x.jsonl"
    lines = [b'{"id":1,"a":[1]}', b'{"id":2,"a":' + DEEP + b"}", b'{"id":3,"a":[3]}']
    path.write_bytes(b"\n".join(lines) + b"\n")
    answer = read_in_child(path, options)
    assert (answer["rows"], answer["error"]) == (2, None)
    assert answer["rejected"] == ["it nests more than 64 lists and objects within each other"]


def test_brackets_on_many_lines_are_no_way_around(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"id":1}\n{"a":\n' + (b"[" * 60 + b"\n") * 1700 + (b"]" * 60 + b"\n") * 1700 + b"}\n")
    answer = read_in_child(path)
    assert (answer["rows"], answer["error"]) == (1, None)
    assert len(answer["rejected"]) == 3402


def test_a_file_of_deep_lines_only_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(DEEP + b"\n")
    assert "JobDefinitionError" in read_in_child(path)["error"]
    assert "it nests more than 64" in read_in_child(path)["error"]


def test_the_depth_is_an_option(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"id":1}\n{"a":{"b":{"c":1}}}\n')
    (partition,) = files(path).partitions()
    assert len(read_partition(files(path, depth_max=4), partition).rows) == 2
    assert len(read_partition(files(path, depth_max=3, schema=pa.schema([("id", pa.int64())])), partition).rows) == 2
    answer = read_partition(files(path, depth_max=2), partition)
    assert (answer.rows, [row["position"] for row in answer.rejected]) == ([{"id": 1}], [1])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".csv.gz", ".jsonl.gz"])
def test_too_many_columns_are_refused(tmp_path: Path, suffix: str) -> None:
    names = [f"c{number}" for number in range(300_000)]
    if suffix.startswith(".csv"):
        text = ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n"
    else:
        text = json.dumps(dict.fromkeys(names, 1)) + "\n"
    path = tmp_path / f"x{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode())
    answer = read_in_child(path)
    assert "it has more than 10000 columns; columns_max= of jf.files says how many it may have" in answer["error"]


def test_a_column_for_each_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f'{{"c{number}":1}}\n' for number in range(60_000)))
    assert "it has more than 10000 columns" in read_in_child(path)["error"]


@pytest.mark.parametrize(
    "options", ["{}", "{'schema': pa.schema([(f'c{number}', pa.int64()) for number in range(1000)])}"]
)
def test_missing_fields_take_bounded_memory(tmp_path: Path, options: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({f"c{number}": number for number in range(1000)}) + "\n" + "{}\n" * 150_000)
    answer = read_in_child(path, options)
    assert (answer["rows"], answer["error"], answer["columns"]) == (150_001, None, 1000)
    assert answer["bytes_max"] <= 256 << 20


def test_columns_max_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b,"c,d"\n1,2,3\n')
    (tmp_path / "x.jsonl").write_text('{"a":1,"b":[{"c":1},{"c":2}]}\n')
    pq.write_table(pa.table({"a": [1], "b": [{"c": 1}]}), tmp_path / "x.parquet")
    for name in ("x.csv", "x.jsonl", "x.parquet"):
        assert files(tmp_path / name, columns_max=4).schema.names[0] == "a"
        with pytest.raises(JobDefinitionError, match="it has more than 2 columns; columns_max= of jf.files"):
            files(tmp_path / name, columns_max=2).partitions()
    with pytest.raises(JobDefinitionError, match="columns_max must be a whole number of at least 1"):
        files(tmp_path / "x.csv", columns_max=0)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "csv.gz", "jsonl.gz"])
def test_a_line_that_is_too_long_is_rejected_and_others_are_read(tmp_path: Path, suffix: str) -> None:
    long = "x" * (40 << 20)
    if suffix.startswith("csv"):
        text = f"id,a\n1,a\n2,{long}\n3,c\n"
    else:
        text = f'{{"id":1,"a":"a"}}\n{{"id":2,"a":"{long}"}}\n{{"id":3,"a":"c"}}\n'
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(gzip.compress(text.encode(), 1) if suffix.endswith(".gz") else text.encode())
    answer = read_in_child(path)
    assert (answer["rows"], answer["error"]) == (2, None)
    assert answer["rejected"] == ["it is longer than 16777216 bytes"]
    (partition,) = files(path).partitions()
    whole = check_resuming(files(path), partition)
    assert [row["id"] for row in whole.rows] == [1, 3]
    assert [(row["position"], len(row["row"])) for row in whole.rejected] == [(1 + suffix.startswith("csv"), 1000)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_the_length_of_a_line_is_an_option(tmp_path: Path, suffix: str) -> None:
    words = ["a" * count for count in (1, 2000, 900, 1_100_000, 3)]
    path = tmp_path / f"x.{suffix}"
    path.write_text(
        "a,b\n" + "".join(f"{word},1\n" for word in words)
        if suffix == "csv"
        else "".join(json.dumps({"a": word, "b": 1}) + "\n" for word in words)
    )
    (partition,) = files(path).partitions()
    whole = check_resuming(files(path, line_size="1kB"), partition)
    assert [len(row["a"]) for row in whole.rows] == [1, 900, 3]
    assert [row["reason"] for row in whole.rejected] == ["it is longer than 1000 bytes"] * 2


def test_a_bomb_without_newlines_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(64):
            file.write(b"a" * (16 << 20))
    assert "its header is longer than 16777216 bytes" in read_in_child(path)["error"]


def test_a_small_parquet_file_with_a_long_word_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    word = pa.DictionaryArray.from_arrays(pa.array([0] * 65_536, pa.int32()), pa.array(["a" * 37_000]))
    pq.write_table(pa.table({"x": word}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1000
    answer = read_in_child(path)
    assert (answer["rows"], answer["error"]) == (65_536, None)
    assert answer["bytes_max"] <= 256 << 20


def test_a_wide_parquet_file_of_nulls_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    nulls = pa.nulls(65_536, pa.int64())
    pq.write_table(pa.table({f"c{number}": nulls for number in range(2000)}), path, compression="zstd")
    answer = read_in_child(path)
    assert (answer["rows"], answer["error"]) == (65_536, None)
    assert answer["bytes_max"] <= 256 << 20


def test_a_parquet_row_that_is_one_huge_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    items = pa.array([7], pa.int64()).take(pa.array(bytearray(40_000_000), pa.uint8()))
    pq.write_table(pa.table({"x": pa.ListArray.from_arrays([0, len(items)], items)}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    assert "batch_size= of jf.files says how many may be decoded at once" in read_in_child(path)["error"]


@pytest.mark.parametrize("rows", [10, 1024, 5000, 200_000])
@pytest.mark.parametrize("batch_size", ["1kB", "1MB", "256MiB"])
def test_parquet_rows_come_once_however_many_are_decoded_at_once(tmp_path: Path, rows: int, batch_size: str) -> None:
    path = tmp_path / "x.parquet"
    words = [f"word {row}" * (1 + 50 * (row % 10_000 > 9_900)) for row in range(rows)]
    table = pa.table({"id": range(rows), "word": words, "list": [[row] * (row % 3) for row in range(rows)]})
    pq.write_table(table, path, row_group_size=3000)
    if batch_size == "1kB":
        path.unlink()
        pq.write_table(table.slice(0, 2000), path, row_group_size=300)
    (partition,) = files(path).partitions()
    answer = read_partition(files(path, batch_size=batch_size), partition)
    assert answer.rows == pq.read_table(path).to_pylist()
    middle = len(answer.positions) // 2
    again = read_partition(files(path, batch_size=batch_size), partition, answer.positions[middle])
    assert again.rows == answer.rows[answer.counts[middle][0] :]


def nested(depth: int) -> pa.DataType:
    found: pa.DataType = pa.int64()
    for _ in range(depth):
        found = pa.list_(found)
    return found


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_types_that_nest_too_deep_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    table = pa.table({"x": pa.nulls(1, nested(20))})
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        with (pa.ipc.new_file if suffix == "arrow" else pa.ipc.new_stream)(path, table.schema) as writer:
            writer.write_table(table)
    assert files(path).schema == table.schema
    with pytest.raises(JobDefinitionError, match="its types nest more than 20 levels deep; depth_max= of jf.files"):
        files(path, depth_max=20).partitions()
    check_schema(table.schema, Bounds(depth=21))


LINES = st.lists(st.sampled_from(['{"a":1}', "{}", '{"a":[1,2,{}]}', '{"b":"{[{"}', "[[", "", '{"c":{"d":{}}}']))


@given(LINES, st.integers(1, 8), st.integers(1, 60))
def test_blocks_with_few_values_are_cut_alike_from_each_of_them(lines: list[str], values_max: int, size: int) -> None:
    data = "".join(line + "\n" for line in lines).encode()
    records = Records(io.BytesIO(data), 0, 0, None, values_max=values_max)
    blocks = list(iter(lambda: records.next_block(size), None))
    assert b"".join(block.data for block in blocks) == data
    for index, block in enumerate(blocks):
        values = block.data.count(b"{") + block.data.count(b"[")
        assert values <= values_max or block.data.count(b"\n") == 1
        again = Records(io.BytesIO(data[block.offset :]), block.offset, block.line, None, values_max=values_max)
        assert list(iter(lambda again=again: again.next_block(size), None)) == blocks[index:]


def test_one_line_stays_whole_however_many_values_it_has() -> None:
    assert first_values(b"[[[[]]]]\n{}\n", 2) == b"[[[[]]]]\n"
    assert first_values(b"[[[[]]]]", 2) == b"[[[[]]]]"


def test_more_parquet_rows_are_decoded_at_once_if_they_are_small_and_fewer_if_they_are_large(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    large = (256 << 20) // 4 // 100_000
    for word, expected in (("a", [1024, 8192, 65_536, 25_248]), ("a" * 100_000, [1024, large, 2000 - 1024 - large])):
        pq.write_table(pa.table({"x": [word] * (100_000 if word == "a" else 2000)}), path)
        (partition,) = files(path).partitions()
        counts = read_partition(files(path), partition).batch_rows
        assert counts[:2] == expected[:2]
        assert sum(counts) == sum(expected)
        assert max(counts) == max(expected)
