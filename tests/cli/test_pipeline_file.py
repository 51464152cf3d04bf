"""Which pipeline of a user's file is meant, and what is said when none is."""

import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from jetfast.cli.pipeline_file import MODULE, load_pipeline
from jetfast.errors import JobDefinitionError

ONE = """
import jetfast as jf
p = jf.Pipeline("one")
again = p
if __name__ == "__main__":
    raise AssertionError("it is no program here")
"""
TWO = ONE + 'q = jf.Pipeline("two")\n'
MADE = """
import jetfast as jf
def make():
    return jf.Pipeline("made")
def wrong():
    return 1 / 0
number = 7
"""


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    module = sys.modules.pop(MODULE, None)
    if module is not None:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize(
    ("text", "name", "job", "found"),
    [
        (ONE, "", None, "one"),
        (ONE, "", "another name", "one"),
        (TWO, "", "two", "two"),
        (TWO, ":q", None, "two"),
        (TWO, ":p", "two", "one"),
        (MADE, ":make", None, "made"),
    ],
)
def test_a_pipeline_is_found_by_its_variable_or_function_or_the_name_of_the_job(
    tmp_path: Path, text: str, name: str, job: str | None, found: str
) -> None:
    file = tmp_path / "pipelines.py"
    file.write_text(text)
    assert load_pipeline(f"{file}{name}", job).name == found


@pytest.mark.parametrize(
    ("text", "name", "job", "message"),
    [
        (MADE, "", None, r"has no pipeline: give a variable of the file a jetfast.Pipeline .*:make_pipeline"),
        (TWO, "", None, r"has 2 pipelines: p \('one'\), q \('two'\); say which one, as in .*pipelines.py:NAME"),
        (TWO, "", "three", r"has 2 pipelines, not exactly one of them named 'three': "),
        (TWO + 'r = jf.Pipeline("two")', "", "two", r"has 3 pipelines, not exactly one of them named 'two': "),
        (TWO, ":absent", None, "has no 'absent'; its pipelines are p, again, q"),
        (MADE, ":number", None, "'number' of .* must be a jetfast.Pipeline, or return one; it is 7"),
        (MADE, ":wrong", None, r"wrong\(\) of .*pipelines.py failed at line \d+: ZeroDivisionError"),
        ("x = 1\nimport absent_module", "", None, "failed at line 2: ModuleNotFoundError: No module named "),
        ("p = (", "", None, "pipelines.py failed: SyntaxError"),
        ('import jetfast as jf\njf.Pipeline("")', "", None, "a pipeline is named by text"),
    ],
)
def test_a_file_without_the_pipeline_says_what_it_has(
    tmp_path: Path, text: str, name: str, job: str | None, message: str
) -> None:
    file = tmp_path / "pipelines.py"
    file.write_text(text)
    with pytest.raises(JobDefinitionError, match=message):
        load_pipeline(f"{file}{name}", job)


def test_a_file_that_is_not_there_or_not_of_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match=r"there is no file '.*absent.py'"):
        load_pipeline(str(tmp_path / "absent.py"))
    (tmp_path / "text").write_text(ONE)
    with pytest.raises(JobDefinitionError, match=r"is no Python file: its name must end with .py"):
        load_pipeline(str(tmp_path / "text"))


def test_a_file_imports_its_neighbours_and_its_functions_go_to_members_by_value(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_pipeline.py").write_text("NAME = 'beside'")
    file = tmp_path / "pipelines.py"
    file.write_text("import jetfast as jf\nimport neighbour_of_pipeline as n\np = jf.Pipeline(n.NAME)\ndef f(): pass\n")
    assert load_pipeline(str(file)).name == "beside"
    assert MODULE.encode() + b"\x94\x8c\x01f" not in cloudpickle.dumps(sys.modules[MODULE].f), "not by reference"
    del sys.modules["neighbour_of_pipeline"]
