"""Input files that are not what they were when a position was saved."""

import gzip
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jetfast.connectors.file_marks import HEAD_BYTES, TAIL_BYTES, Marks, Trail, find_change
from jetfast.connectors.files import Files, files
from jetfast.errors import JobDefinitionError, JobFailedError
from tests.connectors.reading import Answer, read_partition, write_all

SUFFIXES = [".csv", ".jsonl", ".csv.gz", ".jsonl.gz", ".parquet", ".arrow", ".arrows"]
MARKS_BYTES = 32
ROWS = 300_000
"""More than the marks cover, and several blocks."""


def table_of(rows: int, first: int = 0) -> pa.Table:
    return pa.table({"id": range(first, first + rows), "word": [f"word {row}" for row in range(first, first + rows)]})


def write(path: Path, table: pa.Table) -> None:
    write_all(files(path, overwrite=True), table.schema, [table])


def read(source: Files, position: bytes | None = None) -> Answer:
    (partition,) = source.partitions()
    return read_partition(source, partition, position)


@pytest.fixture(scope="module", params=SUFFIXES)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / f"x{request.param}"
    write(path, table_of(ROWS))
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path))


def middle_of(answer: Answer) -> tuple[bytes, int]:
    """A position that is not at the end, and how many rows come before it."""
    middle = len(answer.positions) // 2
    return answer.positions[middle], answer.counts[middle][0]


def test_a_file_that_was_copied_back_is_the_same(path: Path, tmp_path: Path) -> None:
    whole = read(files(path))
    for position, (count, _) in zip(whole.positions, whole.counts, strict=True):
        os.replace(shutil.copy(path, tmp_path / "copy"), path)
        assert read(files(path), position).rows == whole.rows[count:]


def truncate(path: Path) -> None:
    write(path, table_of(1000))


def change_beginning(path: Path) -> None:
    write(path, table_of(ROWS, first=1))


def change_all_but_the_size(path: Path) -> None:
    table = table_of(ROWS)
    write(path, table.set_column(0, "id", pa.array([row ^ 1 for row in range(ROWS)])))


@pytest.mark.parametrize("change", [truncate, change_beginning, change_all_but_the_size])
def test_a_file_that_is_another_one_is_refused(
    path: Path, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    whole = read(files(path))
    position, count = middle_of(whole)
    change(path)
    with pytest.raises(JobFailedError, match=r"is not the file any more that was read before: .*on_changed_input="):
        read(files(path), position)
    with pytest.raises(JobFailedError, match="is not the file any more that was read before"):
        read(files(path), whole.positions[-1])
    with caplog.at_level(logging.WARNING, "jetfast"):
        again = read(files(path, on_changed_input="reread"), position)
    assert again.rows == read(files(path)).rows
    assert "is read from its beginning" in caplog.text
    if change is change_all_but_the_size:
        ignored = read(files(path, on_changed_input="ignore"), position)
        assert len(ignored.rows) == ROWS - count
        assert "reading continues at the saved position" in caplog.text


def test_what_follows_the_position_may_change(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    write(path, table_of(ROWS))
    position, count = middle_of(read(files(path)))
    text = path.read_bytes()
    path.write_bytes(text[:-10_000] + text[-10_000:].replace(b"word", b"WORD"))
    again = read(files(path), position)
    assert len(again.rows) == ROWS - count
    assert again.rows[-1]["word"] == f"WORD {ROWS - 1}"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".csv.gz"])
def test_appended_rows_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    write(path, table_of(ROWS))
    whole = read(files(path))
    line = b'{"id":-1,"word":"new"}\n' if "json" in suffix else b"-1,new\n"
    with open(path, "ab") as file:
        file.write(gzip.compress(line) if suffix.endswith(".gz") else line)
    for position, (count, _) in zip(whole.positions, whole.counts, strict=True):
        assert read(files(path), position).rows == [*whole.rows[count:], {"id": -1, "word": "new"}]


def test_positions_of_earlier_versions_are_accepted_and_a_shorter_file_is_seen(path: Path) -> None:
    whole = read(files(path))
    position, count = middle_of(whole)
    assert read(files(path), position[:-MARKS_BYTES]).rows == whole.rows[count:]
    truncate(path)
    if path.name.split(".")[1] in ("csv", "jsonl"):
        with pytest.raises(JobFailedError, match="it ends after .* bytes, of which .* had been read"):
            read(files(path), position[:-MARKS_BYTES])


def test_another_inode_only_adds_to_the_message(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    write(path, table_of(10))
    whole = read(files(path))
    other = tmp_path / "other.csv"
    write(other, table_of(5))
    os.replace(other, path)
    with pytest.raises(JobFailedError, match=r"; another file has taken its place \(its inode differs\)"):
        read(files(path), whole.positions[-1])


def test_only_known_choices_are_taken(tmp_path: Path) -> None:
    wrong: Any = "retry"
    with pytest.raises(JobDefinitionError, match='must be "fail", "reread" or "ignore", got \'retry\''):
        files(tmp_path / "x.csv", on_changed_input=wrong)


@pytest.mark.parametrize("size", [0, 1, HEAD_BYTES, TAIL_BYTES, HEAD_BYTES + TAIL_BYTES, 3 * TAIL_BYTES + 5])
@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_a_trail_is_the_same_whether_bytes_are_read_or_passed_over(tmp_path: Path, size: int, step: int) -> None:
    data = bytes(index * 7 % 251 for index in range(size))
    (tmp_path / "x").write_bytes(data + b"more")
    read_through, gone = Trail((0, 0)), Trail((0, 0))
    for start in range(0, size, step):
        read_through.add(data[start : start + step])
    with pa.OSFile(str(tmp_path / "x")) as stream:
        gone.go_to(stream, size)
        assert gone.marks() == read_through.marks()
        assert stream.tell() == size
    with pa.OSFile(str(tmp_path / "x")) as stream:
        beyond = Trail((0, 0))
        beyond.go_to(stream, size + 100)
        assert beyond.length == size + 4


def test_an_etag_decides_where_content_is_not_looked_at() -> None:
    saved = Marks(10, 0, 0, etag=1)
    assert find_change(saved, saved, grows=False) is None
    assert find_change(saved, saved._replace(etag=2), grows=False) == "its ETag or version is another one"
    assert find_change(saved, saved._replace(etag=2), grows=True) is None
