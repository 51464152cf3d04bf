"""Golden outputs: written once, compared ever after, the difference shown."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from jetfast.testing import check_golden

ROWS = pa.table({"key": ["b", "a"], "end": [datetime(2024, 1, 1), None], "mean": [0.5, 2.0]})


def test_a_golden_file_is_written_when_asked_for_and_then_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "golden" / "rows.jsonl"
    with pytest.raises(AssertionError, match="there is no golden file .* JETFAST_UPDATE_GOLDEN=1"):
        check_golden(ROWS, path)
    monkeypatch.setenv("JETFAST_UPDATE_GOLDEN", "1")
    check_golden(ROWS, path)
    monkeypatch.delenv("JETFAST_UPDATE_GOLDEN")
    assert path.read_text() == (
        '{"key":"a","end":null,"mean":2.0}\n{"key":"b","end":"2024-01-01 00:00:00.000000","mean":0.5}\n'
    )
    check_golden(ROWS, path)
    check_golden(ROWS.take([1, 0]), path, ordered=True)
    with pytest.raises(AssertionError, match=r"2 rows came, .* has 2"):
        check_golden(ROWS, path, ordered=True)


def test_the_difference_to_a_golden_file_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key":"a"}\n{"key":"c"}\n')
    with pytest.raises(AssertionError, match=r'(?s)3 rows came, .* has 2;.*\+\{"key":"b"\}'):
        check_golden({"key": ["c", "b", "a"]}, path)
