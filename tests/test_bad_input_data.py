"""Bad data: a clear error before the job runs where it can be seen, else rows kept apart and counted, or the job
fails.
"""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from jetfast.connectors import found_files, text_records
from jetfast.connectors.files import files
from jetfast.core.batch import Batch
from jetfast.core.items import Emit
from jetfast.core.processor import ProcessorContext
from jetfast.core.watermark_policies import FixedLag
from jetfast.errors import JobDefinitionError, JobFailedError
from jetfast.processors.source import ReadSource

TABLE = pa.table({"id": pa.array(range(1000), pa.int64()), "word": [f"word {i}" for i in range(1000)]})


def run(supplier: ReadSource) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int]]:
    """Read everything; return rows, rejected rows and counters."""
    processor = supplier()
    context = ProcessorContext("source", connected_ports=frozenset({0, 1}))
    processor.open(context)
    rows: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    try:
        while (output := processor.poll()) is not None:
            for item in output:
                if isinstance(item, Emit):
                    rejected += item.batch.to_arrow().to_pylist()
                elif isinstance(item, Batch):
                    rows += item.to_arrow().to_pylist()
    finally:
        processor.close(None)
    return rows, rejected, context.counters


def parquet(path: Path) -> None:
    pq.write_table(TABLE, path)


def arrow(path: Path) -> None:
    with pa.ipc.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)


def arrows(path: Path) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        for start in (0, 500):
            writer.write_table(TABLE.slice(start, 500))


def csv_gz(path: Path) -> None:
    path.write_bytes(gzip.compress(b"id,word\n" + b"".join(b"%d,w\n" % i for i in range(1000))))


# Seen before the job runs


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    for path in (tmp_path / "no.csv", [tmp_path / "no.csv"]):
        with pytest.raises(JobDefinitionError, match=r"there is no file (or directory )?'.*no.csv'"):
            files(path).schema  # noqa: B018


def test_a_pattern_without_files_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(JobDefinitionError, match=r"no file matches '.*\*.parquet'"):
        files(f"{tmp_path}/*.parquet").schema  # noqa: B018
    with pytest.raises(JobDefinitionError, match=r"the suffix of .*x.txt' tells no format; give format="):
        files(tmp_path).schema  # noqa: B018
    with pytest.raises(JobDefinitionError, match=r"there is no directory .*nowhere"):
        files(f"{tmp_path}/nowhere/*.csv").schema  # noqa: B018
    with pytest.raises(JobDefinitionError, match="the list of files is empty"):
        files([]).schema  # noqa: B018


def test_files_of_several_formats_are_an_error_that_names_two(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(JobDefinitionError, match=r"a.csv' is csv and '.*b.jsonl' is json"):
        files(tmp_path).schema  # noqa: B018


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.csv.gz", "x.jsonl", "x.arrow", "x.arrows"])
def test_an_empty_file_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(JobDefinitionError, match=rf"{name}.* (cannot be read|no file holds a row)|no file holds a row"):
        files(tmp_path / name).schema  # noqa: B018


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.arrows"])
def test_a_file_of_something_else_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("this is a letter to my bank, and certainly not a table\n" * 10)
    with pytest.raises(JobDefinitionError, match=rf"'.*{name}' cannot be read as (parquet|ipc)"):
        files(tmp_path / name).schema  # noqa: B018


@pytest.mark.parametrize(
    ("name", "write"), [("x.parquet", parquet), ("x.arrow", arrow), ("x.arrows", arrows), ("x.csv.gz", csv_gz)]
)
@pytest.mark.parametrize("kept", [0.3, 0.95])
def test_a_truncated_file_is_an_error_that_names_it(
    tmp_path: Path, name: str, write: Callable[[Path], None], kept: float
) -> None:
    path = tmp_path / name
    write(path)
    files(path).schema  # noqa: B018
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(JobDefinitionError, match=rf"'.*{name}' cannot be read as"):
        files(path).schema  # noqa: B018


def test_an_arrow_stream_cut_between_two_batches_is_not_taken_for_whole(tmp_path: Path) -> None:
    arrows(tmp_path / "x.arrows")
    data = (tmp_path / "x.arrows").read_bytes()
    (tmp_path / "x.arrows").write_bytes(data[:-8])
    with pytest.raises(JobDefinitionError, match="no end mark: it is truncated"):
        files(tmp_path / "x.arrows").schema  # noqa: B018


def test_what_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(JobDefinitionError, match=r"x.csv' cannot be read as csv"):
        files([tmp_path / "x.csv"]).schema  # noqa: B018


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_a_type_that_changes_between_files_is_an_error_that_names_both_and_the_column(
    tmp_path: Path, suffix: str
) -> None:
    for name, wanted in (("a", pa.int64()), ("b", pa.int32())):
        table = pa.table({"id": pa.array([1], wanted)})
        if suffix == "parquet":
            pq.write_table(table, tmp_path / f"{name}.parquet")
        else:
            new = pa.ipc.new_file if suffix == "arrow" else pa.ipc.new_stream
            with new(tmp_path / f"{name}.{suffix}", table.schema) as writer:
                writer.write_table(table)
    with pytest.raises(
        JobDefinitionError, match=rf"column 'id' is int64 in '.*a.{suffix}' and int32 in '.*b.{suffix}'"
    ):
        files(tmp_path).schema  # noqa: B018


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("{}.csv", "id,word\n1,a\n", "id,wort\n1,a\n"), ("{}.jsonl", '{"id":1,"word":"a"}\n', '{"id":1,"wort":"a"}\n')],
)
def test_columns_that_change_between_files_are_an_error_that_names_both(
    tmp_path: Path, name: str, first: str, second: str
) -> None:
    (tmp_path / name.format("a")).write_text(first)
    (tmp_path / name.format("b")).write_text(second)
    with pytest.raises(
        JobDefinitionError, match=r"the files differ: column '(word|wort)' of '.*' is (missing|not) in '.*'"
    ):
        files(tmp_path).schema  # noqa: B018


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("{}.csv", "id,word\n1,a\n", "id,word\nx,a\n\ny,b\n"), ("{}.jsonl", '{"id":1}\n', '{"id":"x"}\n{"id":"y"}\n')],
)
def test_text_in_place_of_numbers_in_a_whole_file_is_an_error_that_names_both(
    tmp_path: Path, name: str, first: str, second: str
) -> None:
    (tmp_path / name.format("a")).write_text(first)
    (tmp_path / name.format("b")).write_text(second)
    with pytest.raises(
        JobDefinitionError, match=r"column 'id' is int64 in '.*/a.*', and none of its first values in '.*/b"
    ):
        files(tmp_path).schema  # noqa: B018
    (tmp_path / name.format("b")).write_text(second + first.splitlines()[-1] + "\n")
    assert len(run(ReadSource(files(tmp_path)))[1]) == 2  # single bad values are rejected


def test_a_header_that_names_a_column_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,id\n1,2\n")
    with pytest.raises(JobDefinitionError, match="the header names 'id' twice"):
        files(tmp_path / "x.csv").schema  # noqa: B018


def test_a_wanted_column_that_a_file_lacks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id\n1\n")
    with pytest.raises(JobDefinitionError, match=r"column 'more' of 'schema=' is missing in '.*x.csv', which has id"):
        files(tmp_path / "x.csv", schema=pa.schema([("id", pa.int64()), ("more", pa.int64())])).schema  # noqa: B018


def test_a_type_that_text_cannot_give_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id\n1\n")
    with pytest.raises(JobDefinitionError, match="csv cannot be read with this schema"):
        files(tmp_path / "x.csv", schema=pa.schema([("id", pa.list_(pa.int64()))])).schema  # noqa: B018


# Seen while the job runs


def test_columns_are_compared_when_a_file_is_opened_if_there_are_too_many_to_look_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_files, "CHECKED_FILES_MAX", 1)
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "b.parquet")
    with pytest.raises(JobFailedError, match=r"the files differ: column 'id' is int64 in '.*a.parquet' and int32"):
        run(ReadSource(files(tmp_path)))


def test_a_file_that_goes_away_fails_the_job_and_is_named(tmp_path: Path) -> None:
    parquet(tmp_path / "x.parquet")
    supplier = ReadSource(files(tmp_path / "x.parquet"))
    (tmp_path / "x.parquet").unlink()
    with pytest.raises(JobFailedError, match=r"'.*x.parquet' cannot be read further at row 0: FileNotFoundError"):
        run(supplier)


def test_a_page_that_cannot_be_read_fails_the_job_and_names_file_and_row(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "x.parquet", row_group_size=100, compression="gzip", use_dictionary=False)
    data = bytearray((tmp_path / "x.parquet").read_bytes())
    column = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(5).column(1)
    data[column.data_page_offset + 40 : column.data_page_offset + 60] = b"\xff" * 20
    (tmp_path / "x.parquet").write_bytes(bytes(data))
    with pytest.raises(JobFailedError, match=r"'.*x.parquet' cannot be read further at row \d+"):
        run(ReadSource(files(tmp_path / "x.parquet", batch_rows=100)))


def test_compressed_text_that_is_truncated_behind_the_sample_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv_gz(tmp_path / "x.csv.gz")
    supplier = ReadSource(files(tmp_path / "x.csv.gz"))
    data = (tmp_path / "x.csv.gz").read_bytes()
    (tmp_path / "x.csv.gz").write_bytes(data[: len(data) // 2])
    monkeypatch.setattr(text_records, "BLOCK_BYTES", 64)
    with pytest.raises(JobFailedError, match=r"x.csv.gz' cannot be read further at row \d+: OSError: Truncated"):
        run(supplier)


def test_malformed_lines_of_csv_are_rejected_with_file_line_and_reason(tmp_path: Path) -> None:
    text = 'id,word\n1,a\nx,b\n\n3\n4,d,5\n"5","two\nlines"\n6,\xff\n7,"open\n'
    (tmp_path / "x.csv").write_bytes(text.encode("latin-1"))
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    rows, rejected, counters = run(ReadSource(files(tmp_path / "x.csv", schema=schema)))
    assert rows == [{"id": 1, "word": "a"}, {"id": 5, "word": "two\nlines"}]
    assert [(bad["position"], bad["reason"], bad["row"]) for bad in rejected] == [
        (2, "column id: not int64: invalid value 'x'", "x,b"),
        (4, "expected 2 columns, got 1", "3"),
        (5, "expected 2 columns, got 3", "4,d,5"),
        (8, "column word: not string: invalid UTF8 data", "6,\ufffd"),
        (9, "a quote is opened and not closed", '7,"open'),
    ]
    assert {bad["partition"] for bad in rejected} == {str(tmp_path / "x.csv")}
    assert counters == {"rows_read": 7, "rejected_rows": 5}


def test_malformed_lines_of_json_are_rejected_with_file_line_and_reason(tmp_path: Path) -> None:
    lines = ['{"id": 1}', '{"id": "x"}', "", '{"id": 2', "[3]", '{"id": 4, "more": 5}', "{}", "nonsense", '{"id": 1.5}']
    (tmp_path / "x.jsonl").write_text('{"id": 0}\n' * 20 + "\n".join(lines))
    rows, rejected, counters = run(ReadSource(files(tmp_path / "x.jsonl", schema=pa.schema([("id", pa.int64())]))))
    assert [row["id"] for row in rows] == [0] * 20 + [1, 4, None]
    assert [(bad["position"] - 20, bad["row"]) for bad in rejected] == [(i, lines[i]) for i in (1, 3, 4, 7, 8)]
    assert all(bad["reason"] for bad in rejected)
    assert counters == {"rows_read": 28, "rejected_rows": 5}


def test_a_field_that_the_schema_lacks_is_rejected_unless_the_user_chose_the_fields(tmp_path: Path) -> None:
    data = '{"id": 1}\n' * 200_000 + '{"id": 2, "more": 3}\n'
    (tmp_path / "x.jsonl").write_text(data)
    rows, rejected, _ = run(ReadSource(files(tmp_path / "x.jsonl")))
    assert len(rows) == 200_000
    assert [(bad["position"], bad["reason"]) for bad in rejected] == [(200_000, "unexpected field")]
    rows, rejected, _ = run(ReadSource(files(tmp_path / "x.jsonl", schema=pa.schema([("id", pa.int64())]))))
    assert (len(rows), rejected) == (200_001, [])


def test_null_times_are_rejected_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,id\n2020-01-01 00:00:00,1\nx\n,2\n2020-01-01 00:00:02,3\n")
    (tmp_path / "b.csv").write_text("time,id\n2020-01-01 00:00:03,4\n\n,5\n")
    supplier = ReadSource(files(tmp_path, partitions=[["a.csv", "b.csv"]]), "time", FixedLag(0))
    rows, rejected, counters = run(supplier)
    assert [row["id"] for row in rows] == [1, 3, 4]
    assert [(Path(bad["partition"]).name, bad["position"], bad["reason"]) for bad in rejected] == [
        ("a.csv", 2, "expected 2 columns, got 1"),
        ("a.csv", 3, "time is null"),
        ("b.csv", 3, "time is null"),
    ]
    assert rejected[1]["row"] == '{"time":null,"id":2}'
    assert counters == {"rows_read": 6, "rejected_rows": 3}


def test_a_file_without_rows_gives_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,word\n")
    (tmp_path / "b.csv").write_text("id,word\n1,a\n")
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "b.jsonl").write_text('{"id":1}\n')
    assert run(ReadSource(files(f"{tmp_path}/*.csv")))[0] == [{"id": 1, "word": "a"}]
    assert run(ReadSource(files(f"{tmp_path}/*.jsonl")))[0] == [{"id": 1}]
