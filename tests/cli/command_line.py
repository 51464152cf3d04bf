"""Runs commands in this process as the `jetfast` program does."""

import sys
from typing import Any, NamedTuple

import msgspec
import pytest

from jetfast.cli import main


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The object that it has printed, and nothing else."""
        assert self.out.count("\n") == 1, self.out
        return msgspec.json.decode(self.out)


class CommandLine:
    """Calls `jetfast` with arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> Ended:
        self.monkeypatch.setattr(sys, "argv", ["jetfast", *map(str, arguments)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = self.capsys.readouterr()
        assert end.value.code is None or isinstance(end.value.code, int)
        return Ended(end.value.code or 0, out, err)
