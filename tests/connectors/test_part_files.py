"""Part files of a job with a guarantee: whole files only, each row in one of them, whatever crashes between renames."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.fs
import pytest

import jetfast as jf
from jetfast.connectors.file_formats import default_suffix
from jetfast.connectors.file_writers import rename_durably
from jetfast.connectors.files import Files, files
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.processor import StateBatch
from jetfast.errors import DataLostError, JobDefinitionError, JobFailedError, RestartableError
from jetfast.testing import VirtualClock, verify_sink
from tests.connectors.reading import read_all
from tests.processors.transactional_runs import SCHEMA, opened, phase_2, restored, rows_of, saved

FORMATS = ["parquet", "csv", "json", "ipc", "ipc_stream"]


class Directory:
    """A directory of part files, as tests of sinks want an outside system."""

    def __init__(self, path: Path, file_format: str = "csv", **options: Any) -> None:
        self.path = path
        self.options = {"format": file_format, **options}

    def sink(self) -> Files:
        return files(self.path, **self.options)

    def visible(self) -> list[str]:
        return sorted(name for name in self.names() if not name.startswith("."))

    def hidden(self) -> list[str]:
        return sorted(name for name in self.names() if name.startswith("."))

    def names(self) -> list[str]:
        return os.listdir(self.path) if self.path.exists() else []

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in read_all(files(self.path))) if self.visible() else []


def write(processor: Any, *rows: int) -> None:
    processor.process(0, rows_of(*rows))


def phase_1(processor: Any) -> Any:
    states = saved(processor)
    assert processor.prepare(1)
    return states


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_become_visible_with_the_snapshot_of_their_rows(tmp_path: Path, file_format: str) -> None:
    outside = Directory(tmp_path / "out", file_format)
    processor = restored(outside, [])
    write(processor, 1, 2)
    write(processor, 3)
    phase_1(processor)
    write(processor, 4)
    assert outside.visible() == []
    phase_2(processor)
    assert outside.ids() == [1, 2, 3]
    assert len(outside.visible()) == 1
    processor.complete()
    phase_1(processor)
    phase_2(processor, 2)
    processor.close(None)
    assert outside.ids() == [1, 2, 3, 4]
    assert outside.hidden() == []


def test_names_tell_processor_job_execution_and_sequence(tmp_path: Path) -> None:
    outside = Directory(tmp_path)
    processor = opened(outside, execution=17, index=3, parallelism=4, job_id="a1b2c3d4e5")
    processor.finish_restore()
    for row in range(2):
        write(processor, row)
        phase_1(processor)
        assert outside.hidden() == [f".jetfast.job.a1b2c3d4e5.sink.17.3.{row}.0.csv.tmp"]
        phase_2(processor)
    assert outside.visible() == ["part-00003-a1b2c3d4-17-000000-0.csv", "part-00003-a1b2c3d4-17-000001-0.csv"]


def test_a_crash_between_two_renames_leaves_each_row_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = Directory(tmp_path, file_size="1B")
    processor = restored(outside, [])
    for row in range(3):
        write(processor, row)  # a file of its own
    states = phase_1(processor)
    renamed = []

    def rename(source: str, target: str, replace: Any = os.replace, **directories: int) -> None:
        if ".probe." in source:  # a writer that is opened tries the directory
            replace(source, target, **directories)
            return
        if renamed:
            raise OSError("the power is gone")
        replace(source, target, **directories)
        renamed.append(target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", rename)
        with pytest.raises(RestartableError, match="could not be committed: the power is gone"):
            phase_2(processor)
    assert (len(outside.visible()), len(outside.hidden())) == (1, 2)
    for execution in (2, 3):
        restored(outside, states, execution=execution)
        assert outside.ids() == [0, 1, 2]
        assert (len(outside.visible()), len(outside.hidden())) == (3, 0)


def test_what_a_dead_execution_left_is_removed_and_what_belongs_to_others_is_not(tmp_path: Path) -> None:
    outside = Directory(tmp_path)
    first = restored(outside, [])
    write(first, 1)
    states = phase_1(first)
    write(first, 2)
    phase_1(first)
    (tmp_path / ".jetfast.job..other.1.0.0.0.csv.tmp").write_text("another step's")
    (tmp_path / ".notes").write_text("mine")
    restored(outside, states, execution=2)
    assert outside.ids() == [1]
    assert outside.hidden() == [".jetfast.job..other.1.0.0.0.csv.tmp", ".notes"]


def test_a_file_that_the_snapshot_counts_on_and_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    outside = Directory(tmp_path)
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)
    (hidden,) = outside.hidden()
    (tmp_path / hidden).unlink()
    with pytest.raises(DataLostError, match=r"part-00000-0-1-000000-0\.csv is gone, which the snapshot counts on"):
        restored(outside, states, execution=2)


def with_token(states: list[StateBatch], token: bytes) -> list[StateBatch]:
    """The states of one transaction with another token: an attacker with write access to the store makes such."""
    (state,) = states
    ids = state.rows.column("transaction")
    return [replace(state, rows=pa.record_batch([ids, pa.array([token] * len(ids))], schema=state.rows.schema))]


@pytest.mark.parametrize("target", ["outside", "within"])
def test_a_forged_token_renames_nothing(tmp_path: Path, target: str) -> None:
    outside = Directory(tmp_path / "out")
    (tmp_path / ".profile").write_text("mine")
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)
    (hidden,) = outside.hidden()
    final = "../.profile" if target == "outside" else ".profile"
    forged = with_token(states, msgspec.msgpack.encode([(hidden, final)]))
    with pytest.raises(JobFailedError, match="damaged or forged, and nothing was renamed"):
        restored(outside, forged, execution=2)
    assert (tmp_path / ".profile").read_text() == "mine"
    assert outside.names() == [hidden]


HIDDEN = ".jetfast.job..sink.1.0.0.0.csv.tmp"
VISIBLE = "part-00000-0-1-000000-0.csv"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"version": 2, "format_number": 1, "count": 1}),
        msgspec.msgpack.encode({"version": 1, "format_number": 99, "count": 1}),
        msgspec.msgpack.encode({"version": 1, "format_number": 1, "count": -1}),
        msgspec.msgpack.encode({"version": 1, "format_number": 1, "count": 1, "folder": ".."}),
        msgspec.msgpack.encode([("/etc/passwd", VISIBLE)]),
        msgspec.msgpack.encode([(HIDDEN, f"x/{VISIBLE}")]),
        msgspec.msgpack.encode([(HIDDEN, VISIBLE), (HIDDEN, VISIBLE)]),
        msgspec.msgpack.encode([(HIDDEN, VISIBLE.replace("csv", "parquet"))]),
    ],
)
def test_a_malformed_token_is_refused(tmp_path: Path, token: bytes) -> None:
    outside = Directory(tmp_path)
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)
    with pytest.raises(JobFailedError, match="damaged or forged"):
        restored(outside, with_token(states, token), execution=2)
    assert outside.names() == [HIDDEN]


def test_a_forged_number_of_files_ends_at_the_first_that_is_missing(tmp_path: Path) -> None:
    outside = Directory(tmp_path)
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)
    token = msgspec.msgpack.encode({"version": 1, "format_number": 1, "count": 2**62})
    with pytest.raises(DataLostError, match="is gone, which the snapshot counts on"):
        restored(outside, with_token(states, token), execution=2)
    assert outside.names() == [HIDDEN]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_token_of_an_earlier_version_is_committed(tmp_path: Path, file_format: str) -> None:
    outside = Directory(tmp_path, file_format, file_size="1B")
    processor = restored(outside, [])
    for row in range(2):
        write(processor, row)
    states = phase_1(processor)
    suffix = default_suffix(file_format)
    names = [(f".jetfast.job..sink.1.0.0.{n}{suffix}.tmp", f"part-00000-0-1-000000-{n}{suffix}") for n in range(2)]
    assert outside.hidden() == [temporary for temporary, _ in names]
    restored(outside, with_token(states, msgspec.msgpack.encode(names)), execution=2)
    assert outside.ids() == [0, 1]


def test_a_job_that_writes_another_format_now_commits_the_files_of_the_old_one(tmp_path: Path) -> None:
    processor = restored(Directory(tmp_path, "csv"), [])
    write(processor, 1)
    states = phase_1(processor)
    restored(Directory(tmp_path, "parquet"), states, execution=2)
    assert Directory(tmp_path).visible() == [VISIBLE]


def test_a_link_in_place_of_a_part_file_is_not_renamed(tmp_path: Path) -> None:
    outside = Directory(tmp_path / "out")
    processor = restored(outside, [])
    write(processor, 1)
    states = phase_1(processor)
    (tmp_path / "secret").write_text("id\n7\n")
    (tmp_path / "out" / HIDDEN).unlink()
    (tmp_path / "out" / HIDDEN).symlink_to(tmp_path / "secret")
    with pytest.raises(JobFailedError, match="is not a regular file"):
        restored(outside, states, execution=2)
    assert outside.visible() == []


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "..", ""])
def test_files_are_renamed_within_their_directory_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.tmp").write_text("")
    for filesystem in (pa.fs.LocalFileSystem(), pa.fs.SubTreeFileSystem("/", pa.fs.LocalFileSystem())):
        with pytest.raises(JobFailedError, match="is not the name of a file"):
            rename_durably(filesystem, str(tmp_path), [("x.tmp", name)])
    assert os.listdir(tmp_path) == ["x.tmp"]


@pytest.mark.parametrize("options", [{"file_size": "1B"}, {"file_age": "10s"}])
def test_files_are_ended_by_size_and_by_age(tmp_path: Path, options: dict[str, str]) -> None:
    clock = VirtualClock()
    outside = Directory(tmp_path, **options)
    processor = restored(outside, [], now_us=clock)
    for row in range(3):
        write(processor, row)
        clock.advance("5s")
        write(processor, 10 + row)
        clock.advance("5s")
    phase_1(processor)
    phase_2(processor)
    assert len(outside.visible()) == (6 if "file_size" in options else 2)
    assert outside.ids() == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize("guarantee", [Guarantee.NONE, Guarantee.AT_LEAST_ONCE])
def test_without_transactions_a_file_is_visible_when_it_has_ended(tmp_path: Path, guarantee: Guarantee) -> None:
    outside = Directory(tmp_path, file_size="1kB")
    processor = opened(outside, guarantee=guarantee)
    write(processor, *range(200))
    assert len(outside.visible()) == 1
    write(processor, 200)
    processor.complete()
    assert outside.ids() == list(range(201))
    assert len(outside.visible()) == 2
    assert outside.hidden() == []


def test_at_least_once_rows_are_visible_before_state_is_saved_and_what_a_dead_execution_left_goes(
    tmp_path: Path,
) -> None:
    outside = Directory(tmp_path)
    first = opened(outside, guarantee=Guarantee.AT_LEAST_ONCE)
    write(first, 1)
    assert saved(first) == []
    assert outside.ids() == [1]
    write(first, *range(40_000))  # enough to be written before the end
    assert len(outside.hidden()) == 1
    again = opened(outside, execution=2, guarantee=Guarantee.AT_LEAST_ONCE)
    assert outside.hidden() == []
    write(again, 2)
    again.close(RestartableError("lost"))
    assert outside.hidden() == []
    assert outside.ids() == [1]


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_a_result_without_rows_can_be_read(tmp_path: Path, guarantee: Guarantee) -> None:
    outside = Directory(tmp_path, "parquet")
    for index in range(2):
        processor = opened(outside, guarantee=guarantee, index=index, parallelism=2)
        processor.finish_restore()
        processor.complete()
        phase_1(processor)
        phase_2(processor)
        processor.close(None)
    assert len(outside.visible()) == 1
    assert files(tmp_path).schema == SCHEMA
    assert outside.ids() == []


def test_what_is_to_be_overwritten_goes_when_the_first_files_become_visible_and_own_files_stay(tmp_path: Path) -> None:
    outside = Directory(tmp_path, overwrite=True)
    (tmp_path / "part-00000.csv").write_text("id\n7\n")
    (tmp_path / "part-00009-ffffffff-3-000000-0.csv").write_text("id\n8\n")
    (tmp_path / ".jetfast.job.ffffffffff.sink.3.0.0.0.csv.tmp").write_text("torn")
    outside.sink().check_target()
    first = restored(outside, [], job_id="a1b2c3d4e5")
    write(first, 1)
    states = phase_1(first)
    assert outside.ids() == [7, 8]
    phase_2(first)
    second = restored(outside, states, job_id="a1b2c3d4e5", execution=2)
    write(second, 2)
    phase_1(second)
    phase_2(second)
    assert outside.ids() == [1, 2]
    assert outside.hidden() == []


def test_a_job_that_begins_anew_under_its_old_id_replaces_what_was_there_at_submission(tmp_path: Path) -> None:
    outside = Directory(tmp_path, overwrite=True)
    for execution in (1, 2):
        sink = outside.sink()
        sink.check_target()
        processor = opened(outside, sink=sink, execution=execution, job_id="a1b2c3d4e5")
        processor.finish_restore()
        write(processor, execution)
        phase_1(processor)
        phase_2(processor)
        assert outside.ids() == [execution]


def test_files_of_a_cancelled_job_that_are_not_decided_go(tmp_path: Path) -> None:
    outside = Directory(tmp_path)
    processor = restored(outside, [])
    write(processor, *range(40_000))
    phase_1(processor)
    phase_2(processor, success=False)
    write(processor, *range(40_000))
    processor.close(RestartableError("cancelled"))
    assert outside.names() == []


def test_one_single_file_keeps_no_guarantee_and_cannot_be_ended_before_the_end(tmp_path: Path) -> None:
    assert files(tmp_path / "x.csv").sink_delivery is Delivery.WHOLE
    assert Delivery.WHOLE.strongest is Guarantee.NONE
    assert files(tmp_path / "x", "csv").sink_delivery is Delivery.TRANSACTIONAL
    with pytest.raises(JobDefinitionError, match="one file cannot be ended by file_size or file_age"):
        files(tmp_path / "x.csv", file_size="1GB").check(SCHEMA)


@pytest.mark.parametrize(("setting", "value"), [("file_size", "much"), ("file_size", "0B"), ("file_age", "0s")])
def test_sizes_and_ages_that_cannot_be_meant_are_refused(tmp_path: Path, setting: str, value: str) -> None:
    with pytest.raises(JobDefinitionError, match=setting):
        files(tmp_path, "csv", **{setting: value})  # type: ignore[arg-type]


def run_courses(path: Path, file_format: str, seeds: range, row_count: int) -> None:
    for seed in seeds:
        outside = Directory(path / str(seed), file_format, file_size="1B" if seed % 2 else None)
        verify_sink(outside.sink(), outside.ids, seed=seed, row_count=row_count)
        assert outside.hidden() == [], f"seed {seed}"


def test_no_row_is_lost_and_none_is_in_two_files_whatever_crashes(tmp_path: Path) -> None:
    run_courses(tmp_path, "csv", range(2), row_count=12)


def test_files_move_to_their_names_on_a_filesystem_that_is_no_local_disk(tmp_path: Path) -> None:
    below = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
    sink = files("out", "csv", filesystem=below)
    outside = Directory(tmp_path / "out")
    verify_sink(sink, outside.ids, seed=3, row_count=10)
    assert outside.hidden() == []


@pytest.mark.simulation
@pytest.mark.parametrize("file_format", FORMATS)
def test_no_row_is_lost_and_none_is_in_two_files_in_many_courses(tmp_path: Path, file_format: str) -> None:
    run_courses(tmp_path, file_format, range(2, 10), row_count=30)


def test_a_whole_job_writes_each_row_once_and_is_not_run_again(tmp_path: Path) -> None:
    store = jf.snapshots.directory(str(tmp_path / "snapshots"))
    table = pa.table({"id": list(range(100))})

    def submit(guarantee: Guarantee | None = None) -> Any:
        pipeline = jf.Pipeline("flights")
        pipeline.read(jf.memory(table, partitions=2)).write(files(tmp_path / "out", "parquet"))
        cluster = jf.LocalCluster(workers=2, snapshot_store=store)
        return cluster.submit(pipeline, guarantee=guarantee, progress=False)

    submit().wait()
    assert sorted(row["id"] for row in read_all(files(tmp_path / "out"))) == list(range(100))
    with pytest.raises(JobDefinitionError, match="completed"):
        submit()
    with pytest.raises(JobDefinitionError, match="give overwrite=True"):
        submit(Guarantee.NONE)
