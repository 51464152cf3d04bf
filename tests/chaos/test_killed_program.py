"""A whole program is killed, coordinator and members at once, and started again until its job is completed."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow.dataset as ds
import pytest

import jetfast as jf

PROGRAM = Path(__file__).with_name("killed_program.py")
ROWS = 300_000
RATE = 150_000.0


@pytest.mark.services
@pytest.mark.parametrize("seed", range(2))
def test_each_row_is_written_once_by_a_program_that_is_killed_again_and_again(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    out, snapshots = tmp_path / "out", tmp_path / "snapshots"
    command = [sys.executable, str(PROGRAM), str(out), str(snapshots), str(ROWS), str(RATE)]
    for _ in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "submitted EXACTLY_ONCE\n"
            try:
                program.wait(random.uniform(0.0, 0.6))
            except subprocess.TimeoutExpired:
                program.kill()
    last = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert last.stdout.endswith("completed\n") or "is completed" in last.stderr, last.stderr
    written = ds.dataset(out, format="parquet").to_table()["row"].to_pylist()
    assert sorted(written) == list(range(ROWS))
    assert len(jf.snapshots.directory(snapshots).list_areas("copy")) == 1, "old areas are gone"
