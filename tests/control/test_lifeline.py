"""Lifelines: a later coordinator is certain of the end of processes only when the last of them has ended."""

import subprocess
import sys
from pathlib import Path

import pytest

from jetfast.control.lifeline import HeldLifeline, end_members, has_ended, hold_lifeline


def held() -> HeldLifeline:
    lifeline = hold_lifeline()
    assert lifeline is not None
    return lifeline


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_whoever_inherited_a_lifeline_holds_it_until_it_has_ended() -> None:
    lifeline = held()
    assert not has_ended(lifeline.record)
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lifeline.descriptor]
    ) as p:
        lifeline.close()
        assert not has_ended(lifeline.record)
        p.kill()
        p.wait()
        assert has_ended(lifeline.record)


def test_lifelines_of_several_coordinators_in_one_file_are_apart(folder: Path) -> None:
    first, second = held(), held()
    first.close()
    assert has_ended(first.record)
    assert not has_ended(second.record)
    second.close()
    assert has_ended(second.record)
    (file,) = folder.iterdir()
    assert file.stat().st_size == 0
    assert file.stat().st_mode & 0o777 == 0o600


def test_nothing_is_certain_of_another_boot_or_of_a_file_that_was_replaced(folder: Path) -> None:
    lifeline = held()
    lifeline.close()
    assert has_ended(lifeline.record)
    assert not has_ended(lifeline.record._replace(host_id="another"))
    (file,) = folder.iterdir()
    (folder / "other").touch()
    file.unlink()
    assert not has_ended(lifeline.record)
    (folder / "other").rename(file)
    assert not has_ended(lifeline.record)


def test_where_no_file_can_be_had_there_is_no_lifeline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder / "missing"))
    assert hold_lifeline() is None


def test_a_lifeline_ends_after_the_members() -> None:
    lifeline = held()
    ended_before: list[bool] = []
    end_members(lambda: ended_before.append(has_ended(lifeline.record)), lifeline)()
    assert ended_before == [False]
    assert has_ended(lifeline.record)
    end_members(lambda: None, None)()
