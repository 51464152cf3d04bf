"""Functions of the user run on executors that lack the modules they come from."""

import importlib
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.errors import JobFailedError
from jetfast.spark import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BESIDE = """
import pyarrow.compute as pc
from beside_rates import FACTOR

class Scale:
    def __call__(self, batch):
        return batch.set_column(0, "n", pc.multiply(batch["n"], FACTOR))
"""
PACKED = """
def shift(batch):
    import pyarrow.compute as pc
    from packed_package.offsets import OFFSET  # cannot be seen before it runs
    return batch.set_column(0, "n", pc.add(batch["n"], OFFSET))
"""


@pytest.fixture(scope="module")
def session(make_spark_session: Any) -> Any:
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # local-cluster starts executors from it
    return make_spark_session("local-cluster[2,2,1024]")


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this process imports from, as it does from that of its script."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def sum_on_executors(session: Any, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> int:
    """The sum of 0 to 9, after a function has been at each."""
    pipeline = jf.Pipeline("sum")
    rows = pipeline.read(jf.memory({"n": list(range(10))}, partitions=2), name="rows")
    rows.map_batches(function, name="the step").collect()
    return sum(SparkCluster(session, members=2).submit(pipeline, progress=False).to_arrow()["n"].to_pylist())


def test_modules_beside_the_script_are_there_on_executors(session: Any, beside: Path) -> None:
    (beside / "beside_rates.py").write_text("FACTOR = 3\n")
    (beside / "beside_steps.py").write_text(BESIDE)
    assert sum_on_executors(session, importlib.import_module("beside_steps").Scale()) == 135


def test_what_is_sent_by_spark_is_there_on_executors(session: Any, beside: Path) -> None:
    (beside / "packed_package").mkdir()
    (beside / "packed_package" / "__init__.py").write_text(PACKED)
    (beside / "packed_package" / "offsets.py").write_text("OFFSET = 1\n")
    with zipfile.ZipFile(beside / "packed.zip", "w") as archive:
        for file in beside.glob("packed_package/*.py"):
            archive.write(file, file.relative_to(beside))
    session.addArtifacts(str(beside / "packed.zip"), pyfile=True)
    assert sum_on_executors(session, importlib.import_module("packed_package").shift) == 55


def test_files_of_an_archive_are_there_on_executors(session: Any, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "offsets.zip", "w") as archive:
        archive.writestr("offset.txt", "2")
    session.sparkContext.addArchive(f"{tmp_path / 'offsets.zip'}#offsets")

    def shift(batch: pa.RecordBatch) -> pa.RecordBatch:
        from pyspark import SparkFiles

        offset = int(Path(SparkFiles.get("offsets"), "offset.txt").read_text()) if batch.num_rows else 0
        return batch.set_column(0, "n", pa.compute.add(batch["n"], offset))

    assert sum_on_executors(session, shift) == 65


def test_a_module_that_a_function_imports_late_and_executors_lack_is_named(
    session: Any, beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (beside / "imported_late.py").write_text("OFFSET = 1\n")

    def shift(batch: pa.RecordBatch) -> pa.RecordBatch:
        import imported_late

        return batch.set_column(0, "n", pa.compute.add(batch["n"], imported_late.OFFSET))

    with pytest.raises(JobFailedError, match=r"the step.*member.*No module named 'imported_late'"):
        sum_on_executors(session, shift)
    assert "imported_late" in sys.modules
