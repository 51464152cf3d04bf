"""Files of every format: written and read back, found, grouped, resumed, replaced."""

import datetime
import decimal
import gzip
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.connectors import text_records
from jetfast.connectors.file_listing import file_names
from jetfast.connectors.files import Files, files
from jetfast.core.guarantee import Guarantee
from jetfast.core.watermark_policies import FixedLag
from jetfast.errors import JobDefinitionError, JobFailedError
from jetfast.processors.sink import WriteSink
from jetfast.processors.source import ReadSource
from jetfast.testing import OnPort, verify_processor
from tests.connectors.reading import check_resuming, context, read_all, read_partition, write_all

FORMATS = ["parquet", "csv", "json", "ipc", "ipc_stream"]
SUFFIXES = {"parquet": ".parquet", "csv": ".csv", "json": ".jsonl", "ipc": ".arrow", "ipc_stream": ".arrows"}
SMALL = pa.table({"id": pa.array(range(10), pa.int64()), "word": [f"w{i}" for i in range(10)]})


def write_file(path: Path, table: pa.Table, **options: Any) -> Path:
    write_all(files(path, **options), table.schema, [table])
    return path


@pytest.fixture
def everything() -> pa.Table:
    """A table with each type that all formats can hold, with nulls, and text that needs quotes."""
    return pa.table(
        {
            "text": ["plain", "", None, 'a "quoted", text', "two\nlines", "NA", "ünïcode", "null"],
            "integer": pa.array([1, None, -(2**63), 2**63 - 1, 0, 5, 6, 7], pa.int64()),
            "small": pa.array([1, None, 3, 4, 5, 6, 7, 127], pa.int8()),
            "float": [1.5, None, float("inf"), -0.0, 1e300, 0.1, float("-inf"), 2.0],
            "flag": [True, None, False, True, True, False, True, False],
            "time": pa.array([0, None, 1, -1, 10**15, 5, 6, 7], pa.timestamp("us")),
            "zoned": pa.array([0, None, 1, -1, 10**15, 5, 6, 7], pa.timestamp("us", "UTC")),
            "nano": pa.array([0, None, 1, -1, 10**15, 5, 6, 7], pa.timestamp("ns")),
            "day": pa.array([0, None, 1, -1, 20000, 5, 6, 7], pa.date32()),
            "clock": pa.array([0, None, 1, 10, 20000, 5, 6, 7], pa.time64("us")),
            "money": pa.array([decimal.Decimal(i) / 100 for i in range(8)], pa.decimal128(10, 2)),
        }
    )


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("writers", [1, 3])
def test_every_type_reads_back_as_written(tmp_path: Path, everything: pa.Table, file_format: str, writers: int) -> None:
    parts = [[everything.slice(8 * i // writers, 8 * (i + 1) // writers - 8 * i // writers)] for i in range(writers)]
    write_all(files(tmp_path / "out", file_format), everything.schema, *parts)
    assert len(list((tmp_path / "out").iterdir())) == writers
    source = files(tmp_path / "out", schema=everything.schema)
    assert source.schema.equals(everything.schema)
    assert pa.Table.from_pylist(read_all(source), everything.schema).equals(everything)


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_types_of_text_are_inferred(tmp_path: Path, everything: pa.Table, file_format: str) -> None:
    columns = ["text", "integer", "float", "flag", "time", "zoned"]
    path = write_file(tmp_path / f"x{SUFFIXES[file_format]}", everything.select(columns))
    source = files(path)
    assert source.schema.equals(everything.select(columns).schema)
    assert read_all(source) == everything.select(columns).to_pylist()


def test_dates_are_inferred_from_csv_and_are_times_in_json(tmp_path: Path, everything: pa.Table) -> None:
    table = everything.select(["day"])
    assert files(write_file(tmp_path / "x.csv", table)).schema.field("day").type == pa.date32()
    assert files(write_file(tmp_path / "x.jsonl", table)).schema.field("day").type == pa.timestamp("us")


def test_nan_reads_back_from_text(tmp_path: Path) -> None:
    table = pa.table({"x": [1.0, float("nan"), None]})
    for suffix in (".csv", ".jsonl"):
        got = [row["x"] for row in read_all(files(write_file(tmp_path / f"x{suffix}", table)))]
        assert got[0] == 1.0
        assert got[1] != got[1]
        assert got[2] is None


@pytest.mark.parametrize("suffix", [".csv.gz", ".jsonl.gz", ".csv.bz2", ".jsonl.zst"])
def test_text_may_be_compressed(tmp_path: Path, suffix: str) -> None:
    path = write_file(tmp_path / f"x{suffix}", SMALL)
    if suffix.endswith(".gz"):
        assert gzip.decompress(path.read_bytes()).count(b"w") >= 10
    assert read_all(files(path)) == SMALL.to_pylist()


def test_nested_columns_read_back_where_the_format_has_them(tmp_path: Path) -> None:
    table = pa.table({"list": [[1, 2], None, []], "struct": [{"a": 1}, {"a": None}, None]})
    for suffix in (".parquet", ".jsonl", ".arrow", ".arrows"):
        assert read_all(files(write_file(tmp_path / f"x{suffix}", table))) == table.to_pylist()


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_empty_result_is_a_file_that_can_be_read(tmp_path: Path, file_format: str) -> None:
    write_all(files(tmp_path / "out", file_format), SMALL.schema, [], [], [])
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"part-00000{SUFFIXES[file_format]}"]
    source = files(tmp_path / "out", schema=SMALL.schema)
    assert read_all(source) == []
    if file_format != "json":  # which has no place for columns
        assert files(tmp_path / "out").schema.names == SMALL.schema.names


# Finding files


def test_a_path_means_a_file_a_directory_a_list_or_a_pattern(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.csv", "sub/d.csv", ".hidden.csv", "_SUCCESS", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id\n1\n")

    def found(path: Any) -> list[str]:
        return [os.path.relpath(name, tmp_path) for name in files(path).partitions()]

    assert found(tmp_path / "b.csv") == ["b.csv"]
    assert found(tmp_path) == ["a.csv", "b.csv", "c.csv"]
    assert found([tmp_path / "c.csv", str(tmp_path / "a.csv")]) == ["a.csv", "c.csv"]
    assert found(f"{tmp_path}/*.csv") == ["a.csv", "b.csv", "c.csv"]
    assert found(f"{tmp_path}/[ab].csv") == ["a.csv", "b.csv"]
    assert found(f"{tmp_path}/[!a].csv") == ["b.csv", "c.csv"]
    assert found(f"{tmp_path}/**/?.csv") == ["a.csv", "b.csv", "c.csv", "sub/d.csv"]
    assert found(f"{tmp_path}/*/*.csv") == ["sub/d.csv"]


def test_names_are_as_the_user_wrote_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file(Path("x/a.csv"), SMALL)
    source = files("x/*.csv")
    assert source.name == "files(x/*.csv)"
    assert source.partitions() == ["x/a.csv"]
    monkeypatch.chdir("/")
    assert read_all(pickle.loads(pickle.dumps(source))) == SMALL.to_pylist()


def test_a_relative_output_path_means_the_same_on_every_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink = files("out", "csv")
    sink.check(SMALL.schema)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    write_all(pickle.loads(pickle.dumps(sink)), SMALL.schema, [SMALL])
    assert tree(tmp_path) == ["out/part-00000.csv"]


def test_any_pyarrow_filesystem_will_do(tmp_path: Path) -> None:
    filesystem = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    write_all(files("out", "csv", filesystem=filesystem), SMALL.schema, [SMALL], [SMALL])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["part-00000.csv", "part-00001.csv"]
    assert read_all(files("out/*.csv", filesystem=filesystem)) == SMALL.to_pylist() * 2
    assert read_all(files(f"file://{tmp_path}/out/part-00000.csv")) == SMALL.to_pylist()


def test_the_format_may_be_told(tmp_path: Path) -> None:
    (tmp_path / "x.dat").write_text("id;word\n1;a\n")
    assert read_all(files(tmp_path / "x.dat", "csv", delimiter=";")) == [{"id": 1, "word": "a"}]
    with pytest.raises(JobDefinitionError, match="no format 'exel'; there are parquet, csv"):
        files("x", "exel")


def test_other_words_may_stand_for_null(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('id,word\nNA,"NA"\n2,NA\n')
    assert read_all(files(tmp_path / "x.csv", null_values=["NA"])) == [
        {"id": None, "word": "NA"},
        {"id": 2, "word": None},
    ]


def test_a_byte_order_mark_and_carriage_returns_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbfid,word\r\n1,a\r\n\r\n2,b\r\n")
    assert read_all(files(tmp_path / "x.csv")) == [{"id": 1, "word": "a"}, {"id": 2, "word": "b"}]


# Source partitions


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    for suffix in SUFFIXES.values():
        write_file(tmp_path / suffix / f"a{suffix}", SMALL)
        write_file(tmp_path / suffix / f"b{suffix}", SMALL.select(["word", "id"]))
        assert read_all(files(tmp_path / suffix / f"*{suffix}")) == SMALL.to_pylist() * 2


@pytest.mark.parametrize("file_format", FORMATS)
def test_fewer_columns_are_read_in_the_order_asked(tmp_path: Path, file_format: str) -> None:
    table = SMALL.append_column("more", pa.array([0.5] * 10))
    source = files(write_file(tmp_path / f"x{SUFFIXES[file_format]}", table)).with_columns(["more", "id"])
    assert source.schema.names == ["more", "id"]
    assert read_all(source) == table.select(["more", "id"]).to_pylist()
    with pytest.raises(KeyError):
        source.with_columns(["nothing"])


@pytest.fixture
def years(tmp_path: Path) -> Path:
    for year in (2012, 2013):
        for month in range(1, 5):
            write_file(tmp_path / "data" / f"{year}-{month:02d}.parquet", pa.table({"month": [year * 100 + month]}))
    return tmp_path / "data"


@pytest.mark.parametrize(
    "groups",
    [
        r"(\d{4})-\d\d",
        lambda name: Path(name).name[:4],
        [[f"{y}-{m:02d}.parquet" for m in range(1, 5)] for y in (2012, 2013)],
    ],
    ids=["pattern", "function", "lists"],
)
def test_files_of_a_group_are_read_one_after_the_other(years: Path, groups: Any) -> None:
    source = files(years, partitions=groups)
    assert len(source.partitions()) == 2
    for year, partition in zip((2012, 2013), source.partitions(), strict=True):
        answer = check_resuming(source, partition)
        assert [row["month"] for row in answer.rows] == [year * 100 + month for month in range(1, 5)]


def test_lists_of_files_must_name_each_file_once(years: Path) -> None:
    first = [f"2012-{month:02d}.parquet" for month in range(1, 5)]
    with pytest.raises(JobDefinitionError, match=r"leaves out 4 of 8 files, such as '.*2013-01.parquet'"):
        files(years, partitions=[first]).partitions()
    with pytest.raises(JobDefinitionError, match="names '2012-1.parquet', which is not among the files"):
        files(years, partitions=[["2012-1.parquet"]]).partitions()
    with pytest.raises(JobDefinitionError, match="twice"):
        files(years, partitions=[first, first]).partitions()
    with pytest.raises(JobDefinitionError, match="matches nothing in"):
        files(years, partitions=r"week-\d+").partitions()
    with pytest.raises(JobDefinitionError, match="no regular expression"):
        files(years, partitions="(").partitions()


def test_a_position_in_a_group_is_refused_if_files_up_to_it_are_not_those_that_were_there(tmp_path: Path) -> None:
    for month in ("02", "03", "05"):
        write_file(tmp_path / f"2024-{month}.csv", SMALL)

    def grouped() -> Any:
        return files(tmp_path, partitions=r"\d{4}", batch_rows=6)

    answer = read_partition(grouped(), "2024")
    first, second, third, *_ = answer.positions
    write_file(tmp_path / "2024-04.csv", SMALL)
    assert len(read_partition(grouped(), "2024", third).rows) == len(SMALL) * 4 - answer.counts[2][0], "it comes later"
    write_file(tmp_path / "2024-01.csv", SMALL)
    for position in (first, second, third):
        with pytest.raises(JobFailedError, match=r"are not the same any more: it begins with .*2024-01.csv'"):
            read_partition(grouped(), "2024", position)
    for month in ("01", "02"):
        (tmp_path / f"2024-{month}.csv").unlink()
    with pytest.raises(JobFailedError, match="are not the same any more"):
        read_partition(grouped(), "2024", third)


def test_more_than_64_files_with_event_time_need_groups(tmp_path: Path) -> None:
    table = pa.table({"time": pa.array([1], pa.timestamp("us"))})
    for index in range(65):
        pq.write_table(table, tmp_path / f"{index // 10}-{index:03d}.parquet")
    ReadSource(files(tmp_path))
    with pytest.raises(JobDefinitionError, match=r"65 source partitions are too many .*at most 64.*partitions="):
        ReadSource(files(tmp_path), "time", FixedLag(0))
    grouped = ReadSource(files(tmp_path, partitions=r"(\d)-\d+.parquet"), "time", FixedLag(0))
    assert len(grouped.source.partitions()) == 7


def test_the_number_of_rows_is_known_where_the_format_keeps_it(years: Path) -> None:
    assert files(years).total_rows == 8
    assert files(years).with_columns(["month"]).total_rows == 8
    assert files(write_file(years / "x.csv", SMALL)).total_rows is None


def test_reading_passes_verification(tmp_path: Path) -> None:
    table = pa.table({"time": pa.array([3, None, 5, 4], pa.timestamp("us")), "word": ["a", "b", None, ""]})
    for suffix in SUFFIXES.values():
        for name in "ab":
            write_file(tmp_path / suffix / f"{name}{suffix}", table)
        source = files(tmp_path / suffix / f"*{suffix}", batch_rows=2, schema=table.schema)
        output = verify_processor(ReadSource(source, "time", FixedLag(1)))
        assert sum(isinstance(item, dict) for item in output) == 6
        assert sum(isinstance(item, OnPort) for item in output) == 2


def test_writing_passes_verification(tmp_path: Path) -> None:
    for file_format in FORMATS:
        path = tmp_path / file_format
        verify_processor(WriteSink(files(path, file_format), SMALL.schema), SMALL.to_batches(), [])
        assert tree(path) == [f"part-00000{SUFFIXES[file_format]}"]
        assert read_all(files(path)) == SMALL.to_pylist()


# Positions


@given(
    st.sampled_from(FORMATS),
    st.lists(st.integers(0, 12), min_size=1, max_size=3),
    st.integers(1, 20),
    st.integers(1, 60),
    st.integers(1, 5),
)
@settings(max_examples=40)
def test_reading_resumes_at_any_position(
    tmp_path_factory: pytest.TempPathFactory,
    file_format: str,
    file_rows: list[int],
    batch_rows: int,
    block_bytes: int,
    group_rows: int,
) -> None:
    directory = tmp_path_factory.mktemp("resume")
    words = ["plain", 'quo"ted', "two\nlines", None, ""]
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    expected = []
    for index, count in enumerate(file_rows):
        rows = [{"id": 100 * index + i, "word": words[i % 5]} for i in range(count)]
        expected += rows
        table = pa.Table.from_pylist(rows, schema)
        path = directory / f"{index}{SUFFIXES[file_format]}"
        pieces = [table.slice(i, group_rows) for i in range(0, count, group_rows)]
        if file_format == "parquet":
            pq.write_table(table, path, row_group_size=group_rows)
        elif file_format.startswith("ipc"):
            new = pa.ipc.new_file if file_format == "ipc" else pa.ipc.new_stream
            with new(path, schema) as writer:
                for piece in pieces:
                    writer.write_table(piece)
        else:
            write_all(files(path), schema, pieces)
    names = [[f"{index}{SUFFIXES[file_format]}" for index in range(len(file_rows))]]
    source = files(directory, schema=schema, batch_rows=batch_rows, partitions=names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_records, "BLOCK_BYTES", block_bytes)
        answer = check_resuming(source, "group 0")
    assert answer.rows == expected
    assert max(answer.batch_rows, default=0) <= batch_rows


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".csv.gz"])
def test_malformed_lines_are_given_once_when_reading_resumes(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_records, "BLOCK_BYTES", 50)
    if ".csv" in suffix:
        lines = ["id,word", *(f"{i},w" if i % 4 else f"x{i},w" for i in range(40))]
    else:
        lines = [f'{{"id": {i}, "word": "w"}}' if i % 4 else f'{{"id": "x{i}"}}' for i in range(40)]
    data = ("\n".join(lines) + "\n").encode()
    (tmp_path / f"x{suffix}").write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    source = files(tmp_path / f"x{suffix}", schema=schema, batch_rows=3)
    answer = check_resuming(source, source.partitions()[0])
    header = 1 if ".csv" in suffix else 0
    assert [row["id"] for row in answer.rows] == [i for i in range(40) if i % 4]
    assert [bad["position"] for bad in answer.rejected] == [i + header for i in range(0, 40, 4)]
    assert [bad["row"] for bad in answer.rejected] == lines[header::4]


def test_a_file_is_not_loaded_whole(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(400_000), pa.int64())})
    for suffix in (".csv", ".jsonl"):
        path = write_file(tmp_path / f"x{suffix}", table)
        source = files(path)
        reader = source.open_reader(source.partitions()[0], None, context())
        reader.read()
        assert reader.file is not None
        assert reader.file.stream.tell() <= 2 * text_records.BLOCK_BYTES < path.stat().st_size  # type: ignore[attr-defined]
        reader.close()


# Sinks


def writer_of(sink: Files, index: int = 0, parallelism: int = 1) -> Any:
    return sink.open_writer(SMALL.schema, context(index, parallelism))


def batch() -> Any:
    from jetfast.core.batch import Batch

    return Batch.from_arrow(SMALL.to_batches()[0])


def tree(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file())


@pytest.mark.parametrize("file_format", FORMATS)
def test_nothing_is_visible_before_finish_and_nothing_is_left_after_abort(tmp_path: Path, file_format: str) -> None:
    sink = files(tmp_path / "out", file_format)
    first, second = writer_of(sink, 0, 2), writer_of(sink, 1, 2)
    first.write(batch())
    second.write(batch())
    assert not [name for name in tree(tmp_path) if not Path(name).name.startswith(".")]
    first.finish()
    second.abort()
    assert tree(tmp_path) == [f"out/part-00000{SUFFIXES[file_format]}"]


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".part-00000.csv.7.tmp").write_text("half")
    (tmp_path / ".part-00001.csv.7.tmp").write_text("another writer's")
    sink = files(tmp_path, "csv")
    write_all(sink, SMALL.schema, [SMALL])
    assert tree(tmp_path) == [".part-00001.csv.7.tmp", "part-00000.csv"]
    assert read_all(files(tmp_path)) == SMALL.to_pylist()


def test_a_path_with_the_suffix_of_the_format_is_one_file_of_a_single_writer(tmp_path: Path) -> None:
    assert files("out/x.parquet").parallelism_one
    assert files("out/x.csv.gz").parallelism_one
    assert not files("out/x.parquet", "csv").parallelism_one
    assert not files("out/x", "parquet").parallelism_one
    write_file(tmp_path / "deep" / "er" / "x.parquet", SMALL)
    assert tree(tmp_path) == ["deep/er/x.parquet"]


def test_existing_output_is_refused_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.csv", SMALL)
    write_all(files(tmp_path / "out", "csv"), SMALL.schema, [SMALL])
    for sink in (files(path), files(tmp_path / "out", "csv")):
        with pytest.raises(JobDefinitionError, match="already; give overwrite=True to replace"):
            sink.check_target()
    files(path, overwrite=True).check_target()
    files(tmp_path / "out", "csv", overwrite=True).check_target()


def test_a_restart_replaces_what_the_execution_before_it_had_finished(tmp_path: Path) -> None:
    sink = files(tmp_path / "out", "csv")
    for index in range(3):
        writer = writer_of(sink, index, 3)
        writer.write(batch())
        writer.finish()
    again = [writer_of(sink, index, 2) for index in range(2)]
    again[0].write(batch())
    for writer in again:
        writer.finish()
    assert tree(tmp_path) == ["out/part-00000.csv"]


def test_overwritten_files_are_replaced_at_finish_and_not_before(tmp_path: Path) -> None:
    old, new = SMALL, SMALL.slice(0, 2)
    write_all(files(tmp_path / "out", "csv"), SMALL.schema, [old], [old], [old], [old])
    sink = files(tmp_path / "out", "parquet", overwrite=True)
    sink.check_target()
    first, second = writer_of(sink, 0, 2), writer_of(sink, 1, 2)
    first.write(batch())
    assert read_all(files(tmp_path / "out")) == old.to_pylist() * 4
    second.finish()  # without rows: no file of its own, and the old one of its number goes
    assert [name for name in tree(tmp_path / "out") if not name.startswith(".")] == [
        f"part-0000{i}.csv" for i in (0, 2, 3)
    ]
    first.finish()
    assert tree(tmp_path / "out") == ["part-00000.parquet"]
    path = write_file(tmp_path / "x.csv", old)
    write_all(files(path, overwrite=True), SMALL.schema, [new])
    assert read_all(files(path)) == new.to_pylist()


def test_a_directory_with_other_files_is_refused_even_to_overwrite(tmp_path: Path) -> None:
    write_file(tmp_path / "precious.csv", SMALL)
    with pytest.raises(JobDefinitionError, match=r"holds other files, such as 'precious.csv'"):
        files(tmp_path, "csv", overwrite=True).check_target()


def test_a_file_in_place_of_a_directory_is_refused_and_the_other_way_round(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(JobDefinitionError, match="is a file; a directory of part files was to be written"):
        files(tmp_path / "out", "csv", overwrite=True).check_target()
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(JobDefinitionError, match="is a directory; it was to be written as one file"):
        files(tmp_path / "x.csv", overwrite=True).check_target()


def test_a_sink_needs_one_path_and_a_format() -> None:
    with pytest.raises(JobDefinitionError, match="give format= to write part files"):
        files("out/windows").check(SMALL.schema)
    with pytest.raises(JobDefinitionError, match="a list of files cannot be written to"):
        files(["a.csv", "b.csv"]).check(SMALL.schema)


def test_columns_that_a_format_cannot_hold_are_refused(tmp_path: Path) -> None:
    nested = pa.schema([("x", pa.list_(pa.int64()))])
    with pytest.raises(JobDefinitionError, match=r"CSV cannot hold the nested column 'x' \(list<item: int64>\)"):
        files(tmp_path / "x.csv").check(nested)
    files(tmp_path / "x.jsonl").check(nested)
    with pytest.raises(JobDefinitionError, match="text cannot hold the binary column 'x'"):
        files(tmp_path / "x.csv").check(pa.schema([("x", pa.binary())]))
    with pytest.raises(JobDefinitionError, match="text cannot hold the map column 'x'"):
        files(tmp_path / "x.jsonl").check(pa.schema([("x", pa.list_(pa.map_(pa.string(), pa.int64())))]))
    with pytest.raises(JobDefinitionError, match="two columns are named 'x'"):
        files(tmp_path / "x.parquet").check(pa.schema([("x", pa.int64()), ("x", pa.int64())]))


def test_the_target_is_the_same_however_the_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        files("out/../out/x", "csv").target
        == files(tmp_path / "out" / "x", "csv").target
        == files("out/x/", "csv").target
    )


@pytest.mark.parametrize("delimiter", ["", ";;", "é", '"', "\n"])
def test_a_delimiter_is_one_character(delimiter: str) -> None:
    with pytest.raises(JobDefinitionError, match="delimiter must be one ASCII character and no quote"):
        files("x.csv", delimiter=delimiter)


def test_record_batches_are_large_however_small_the_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    write_all(files(path), SMALL.schema, [SMALL] * 50)
    assert pa.ipc.open_file(path).num_record_batches == 1
    assert read_all(files(path)) == SMALL.to_pylist() * 50


def test_row_groups_are_large_however_small_the_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_all(files(path), SMALL.schema, [SMALL] * 50)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    assert pq.ParquetFile(path).metadata.num_rows == 500


def test_dictionaries_and_durations_become_plain_in_text(tmp_path: Path) -> None:
    table = pa.table(
        {
            "word": pa.array(["a", None, "a"]).dictionary_encode(),
            "took": pa.array([datetime.timedelta(seconds=1), None, datetime.timedelta(0)], pa.duration("us")),
        }
    )
    expected = [{"word": "a", "took": 1_000_000}, {"word": None, "took": None}, {"word": "a", "took": 0}]
    for suffix in (".csv", ".jsonl"):
        assert read_all(files(write_file(tmp_path / f"x{suffix}", table))) == expected


def test_one_column_of_nulls_reads_back_from_csv(tmp_path: Path) -> None:
    table = pa.table({"x": ["a", None, "", None]})
    path = write_file(tmp_path / "x.csv", table)
    source = files(path)
    assert read_partition(source, source.partitions()[0]).rows == table.to_pylist()


def test_too_many_files_are_refused_where_event_time_is_declared(tmp_path: Path) -> None:
    table = pa.table({"time": pa.array([1], pa.timestamp("us"))})
    for index in range(65):
        pq.write_table(table, tmp_path / f"{index:03d}.parquet")
    stage = jf.Pipeline().read(files(tmp_path))
    with pytest.raises(JobDefinitionError, match="65 source partitions are too many"):
        stage.with_event_time("time")


class MadeInBetween:
    """A disk on which another process makes the directory after it was found missing, and before it is looked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = pyarrow.fs.LocalFileSystem()

    def get_file_info(self, selector: Any) -> Any:
        if self.path.exists():
            return self.disk.get_file_info(selector)
        self.path.mkdir()
        (self.path / "part-00000-0.csv").touch()
        raise FileNotFoundError(f"Cannot list directory {self.path}")


def test_a_directory_that_another_processor_makes_while_it_is_listed_is_listed(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    assert file_names(MadeInBetween(directory), str(directory)) == ["part-00000-0.csv"]


def test_a_directory_that_is_not_there_holds_no_files(tmp_path: Path) -> None:
    assert file_names(pyarrow.fs.LocalFileSystem(), str(tmp_path / "out")) == []


UNWRITABLE = """
import sys
import jetfast as jf
from jetfast.errors import JobDefinitionError

read = []


def seen(batch):
    read.append(batch.num_rows)
    return batch


pipeline = jf.Pipeline("refused")
rows = pipeline.read(jf.memory({"id": [1, 2, 3]})).map_batches(seen, name="seen")
rows.write(jf.files(sys.argv[1], "csv"))
try:
    jf.LocalCluster(workers=1).submit(pipeline, progress=False).wait()
except JobDefinitionError as error:
    print(error, "rows read:", sum(read))
"""


@pytest.mark.parametrize("name", ["out", "new/out", "out.csv"])
def test_an_output_directory_that_cannot_be_written_is_refused_at_submission(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:  # of pytest's own directories no other user sees anything
        os.chmod(directory, 0o555)
        unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*unprivileged, sys.executable, "-c", UNWRITABLE, f"{directory}/{name}"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "cannot be written: PermissionError" in found.stdout, found
        assert "Give a directory in which the job's user may make, rename and remove files rows read: 0" in found.stdout
        assert os.listdir(directory) == []


def test_a_directory_below_a_file_is_refused_at_submission(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobDefinitionError, match="cannot be written"):
        files(tmp_path / "file" / "out", "csv").check_target()


def test_trying_to_write_leaves_nothing(tmp_path: Path) -> None:
    files(tmp_path / "a" / "b", "csv").check_target()
    assert os.listdir(tmp_path) == []
    (tmp_path / "there").mkdir()
    files(tmp_path / "there", "csv").check_target()
    assert tree(tmp_path) == []
    assert (tmp_path / "there").is_dir()


@pytest.mark.parametrize("guarantee", [Guarantee.NONE, Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
def test_a_member_that_cannot_write_fails_before_a_row_is_read(tmp_path: Path, guarantee: Guarantee) -> None:
    sink = files(tmp_path / "file" / "out", "csv")
    (tmp_path / "file").write_text("")
    opens = sink.open_transactions if guarantee is Guarantee.EXACTLY_ONCE else sink.open_writer
    with pytest.raises(JobFailedError, match="cannot be written"):
        opens(SMALL.schema, context(guarantee=guarantee))
