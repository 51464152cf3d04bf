"""Golden outputs: what a pipeline gave once, and was found right, is kept in a file and compared with ever after."""

import difflib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from jetfast.core.readable import rows_as_json

UPDATE = "JETFAST_UPDATE_GOLDEN"
LINES_SHOWN_MAX = 60


def check_golden(rows: Any, path: str | Path, *, ordered: bool = False) -> None:
    """Raise AssertionError, with the difference, if rows are not those of a golden file.

    The file has one JSON object a row; where the variable JETFAST_UPDATE_GOLDEN is 1, it is written instead.

    Parameters
    ----------
    rows : what a pipeline gave: a pyarrow Table, or whatever `pyarrow.table` takes
    path : of the golden file, such as "tests/golden/delays.jsonl"
    ordered : must the order of rows be that of the file, too? Rows of different keys come in no particular order
    """
    lines = [line for batch in pa.table(rows).to_batches() for line in rows_as_json(batch)]
    if not ordered:
        lines.sort()
    path = Path(path)
    if os.environ.get(UPDATE) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return
    if not path.exists():
        raise AssertionError(f"there is no golden file {path}; look at the rows, and write it: {UPDATE}=1 pytest ...")
    golden = path.read_text(encoding="utf-8").splitlines()
    if lines != golden:
        difference = list(difflib.unified_diff(golden, lines, str(path), "came", lineterm="", n=1))
        shown = "\n".join(difference[:LINES_SHOWN_MAX])
        raise AssertionError(
            f"{len(lines)} rows came, {path} has {len(golden)}; if they are right, {UPDATE}=1:\n{shown}"
        )
