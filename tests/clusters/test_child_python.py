"""Processes that jetfast starts import nothing that stands in their working directory; users' modules are found.

The folders of these tests hold a module for each name of the standard library and of the dependencies. Each notes who
imported it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jetfast

PLANTED = 'import os\nopen({marks!r} + "/" + __name__ + "." + str(os.getpid()), "w")\nraise ImportError("planted")\n'
DEPENDENCIES = ["msgspec", "cloudpickle", "pyarrow", "numpy", "pandas", "polars", "obstore", "psycopg", "sitecustomize"]
HELPER = "def double(batch):\n    import late_helper\n    return late_helper.double(batch)\n"
LATE_HELPER = """
import pyarrow.compute as pc
def double(batch):
    return batch.set_column(0, "n", pc.multiply(batch["n"], 2))
"""
MEMBERS = """
import jetfast as jf
import helper
p = jf.Pipeline("copied")
p.read(jf.memory({"n": [1, 2, 3]}), name="rows").map_batches(helper.double, name="twice").collect()
if __name__ == "__main__":
    job = jf.ProcessCluster(1).submit(p, progress=False)
    print(sorted(job.to_arrow()["n"].to_pylist()))
"""
ON_SPARK = MEMBERS.replace("jf.ProcessCluster(1)", "SparkCluster(session, members=1, workers=1)").replace(
    "    job = ",
    """
    from pyspark.sql import SparkSession
    from jetfast.spark import SparkCluster
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    job = """,
    1,
)
INSTALLED = "import sys; sys.argv[0] = 'jetfast'; from jetfast.cli import main; main()"
ROOT = Path(jetfast.__file__).parents[1]


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """Where planted modules note that they were imported."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def planted(tmp_path: Path, marks: Path) -> Path:
    """The working directory."""
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in {*sys.stdlib_module_names, *DEPENDENCIES} - {"__main__", "__future__"}:
        (folder / f"{name}.py").write_text(PLANTED.format(marks=str(marks)))
    return folder


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script with its helpers, in a folder of their own."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "helper.py").write_text(HELPER)
    (folder / "late_helper.py").write_text(LATE_HELPER)
    return folder / "script.py"


def run(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    """What a program prints; it must end with 0."""
    program = [sys.executable, *map(str, arguments)]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(program, cwd=cwd, env={**inherited, **environment}, text=True, capture_output=True)
    assert ended.returncode == 0, ended
    return ended.stdout


def test_planted_modules_are_imported_by_a_program_started_with_code(planted: Path, marks: Path) -> None:
    run("-c", "try:\n    import json\nexcept ImportError: pass", cwd=planted)
    assert [mark.name.partition(".")[0] for mark in marks.iterdir()] == ["json"]


@pytest.mark.services
def test_members_import_nothing_that_is_planted_where_a_script_is_run(planted: Path, marks: Path, script: Path) -> None:
    script.write_text(MEMBERS)
    assert run(script, cwd=planted, PYTHONPATH=str(ROOT)) == "[2, 4, 6]\n"
    assert list(marks.iterdir()) == []


@pytest.mark.services
def test_supervised_commands_import_nothing_that_is_planted(planted: Path, marks: Path, script: Path) -> None:
    script.write_text(MEMBERS)
    command = ("run", script, "--cluster", "processes", "--members", "1", "--store", planted / "store", "--supervise")
    run("-P", "-c", INSTALLED, *command, cwd=planted, PYTHONPATH=str(ROOT), HOME=str(planted))
    assert list(marks.iterdir()) == []


@pytest.mark.spark
def test_workers_of_spark_import_nothing_that_is_planted(planted: Path, marks: Path, script: Path) -> None:
    script.write_text(ON_SPARK)
    assert run(script, cwd=planted, PYTHONPATH=str(ROOT)) == "[2, 4, 6]\n"
    assert list(marks.iterdir()) == []


@pytest.mark.services
@pytest.mark.parametrize("how", ["interactive", "module", "package", "another folder"])
def test_modules_beside_a_program_are_found_by_members(script: Path, how: str) -> None:
    folder = script.parent
    script.write_text(MEMBERS)
    if how == "interactive":
        arguments = ["-c", "import script\n" + MEMBERS]
    elif how == "module":
        arguments = ["-m", "script"]
    elif how == "package":
        (folder / "package").mkdir()
        (folder / "package" / "__init__.py").write_text("")
        (folder / "package" / "__main__.py").write_text(MEMBERS)
        arguments = ["-m", "package"]
    else:
        arguments = ["-c", "import runpy; runpy.run_module('script', run_name='__main__')"]
    assert run(*arguments, cwd=folder, PYTHONPATH=str(ROOT)) == "[2, 4, 6]\n"


@pytest.mark.parametrize(
    ("program", "place"),
    [
        ((), "last"),  # an interactive session: the code comes by standard input
        (("-m", "other"), "last"),
        (("-m", "beside"), "first"),
        (("-P", "-m", "other"), "none"),
    ],
)
def test_the_working_directory_comes_last_unless_the_program_lives_there(
    tmp_path: Path, program: tuple[str, ...], place: str
) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    shown = "from jetfast.clusters.child_python import import_path as f; import os; p = f(); h = os.getcwd()\n"
    shown += "print('none' if h not in p else 'first' if p[0] == h else 'last' if p[-1] == h else p, '' in p)\n"
    for folder, name in ((here, "beside"), (other, "other")):
        folder.mkdir()
        (folder / f"{name}.py").write_text(shown)
    arguments = program or ("-c", shown)
    assert run(*arguments, cwd=here, PYTHONPATH=f"{ROOT}{os.pathsep}{other}") == f"{place} False\n"


def test_a_child_is_as_isolated_as_its_parent() -> None:
    shown = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "from jetfast.clusters.child_python import interpreter_arguments as f; print(*f()[1:])"
    )
    for flags, expected in (((), "-P"), (("-I",), "-P -I"), (("-E", "-s"), "-P -E -s")):
        assert run(*flags, "-c", shown, cwd=ROOT, PYTHONPATH=str(ROOT)) == f"{expected}\n"
