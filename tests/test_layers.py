"""The map of the code holds: who imports whom, what C++ may see, what each file must have."""

import ast
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "jetfast"

# What each layer may import besides itself. STYLE: a module imports only from its left.
ORDER = ["errors", "types", "kernels", "core", "engine", "control", "grid", "connectors", "clusters", "api", "spark"]
LAST = ["testing", "nexmark"]
ALLOWED = {layer: set(ORDER[:index]) for index, layer in enumerate(ORDER)}
ALLOWED["errors"] = set()
ALLOWED["types"] = {"errors"}
ALLOWED["processors"] = {"errors", "types", "kernels", "core"}
ALLOWED["connectors"] = {"errors", "types", "kernels", "core"}
for layer in ["engine", "control", "grid", "clusters", "api", "spark"]:
    ALLOWED[layer] |= {"processors"}
for layer in LAST:
    ALLOWED[layer] = set(ORDER) | {"processors"}
ALLOWED["cli"] = set(ORDER) | {"processors", *LAST}
ALLOWED["__main__"] = {"cli"}
ALLOWED["extend"] = {"errors", "core"}

# Read by `jetfast/__init__.py` only when asked for: a user without Spark never imports these.
NOT_BY_IMPORT_JETFAST = [
    "jetfast.spark", "jetfast.testing", "jetfast.nexmark", "jetfast.cli",
    "pyspark", "pandas", "polars", "duckdb", "matplotlib", "pyarrow.acero", "pyarrow.dataset",
    "rich", "typer", "cloudpickle",
]  # fmt: skip

MODULES = sorted(PACKAGE.rglob("*.py"))
KERNELS = sorted((PACKAGE / "kernels").glob("*.pyx"))
HEADERS = sorted((ROOT / "csrc").rglob("*.hpp"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(path: Path) -> set[str]:
    """Names of the jetfast modules that a file imports, at any depth, `TYPE_CHECKING` blocks included."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: imports are absolute"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module for module in found if module == "jetfast" or module.startswith("jetfast.")}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_from_the_layers_to_its_left(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    layer = parts[0]
    if layer == "__init__":  # hands on what users need
        return
    wrong = {
        module
        for module in imports_of(path)
        if layer_of(module) != layer and layer_of(module) not in ALLOWED[layer] and module != "jetfast.__version__"
    }
    assert not wrong, f"{name_of(path)} is in layer {layer}, which may import {sorted(ALLOWED[layer])}; not {wrong}"


@pytest.mark.parametrize("path", KERNELS, ids=name_of)
def test_a_kernel_cimports_only_kernels(path):
    modules = re.findall(
        r"^\s*from (jetfast[\w.]*) c?import|^\s*c?import (jetfast[\w.]*)", path.read_text(), re.MULTILINE
    )
    for module in {first or second for first, second in modules}:
        assert layer_of(module) in {"kernels", "types", "errors"}, f"{name_of(path)} reaches up to {module}"


@pytest.mark.parametrize("path", KERNELS, ids=name_of)
def test_a_kernel_has_type_stubs(path):
    assert path.with_suffix(".pyi").exists()


@pytest.mark.parametrize("path", HEADERS, ids=name_of)
def test_headers_know_nothing_of_python(path):
    text = path.read_text()
    assert not re.search(r"#include\s*[<\"](Python\.h|numpy/|arrow/python)", text)
    assert "PyObject" not in text


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_the_first_line_of_a_module_says_what_it_is(path):
    text = path.read_text().strip()
    if path.name == "__init__.py" and not text:
        return
    docstring = ast.get_docstring(tree_of(path))
    assert docstring, f"{name_of(path)} begins with no docstring"
    assert text.startswith('"""'), f"{name_of(path)}: the docstring is the first line"


@pytest.mark.parametrize("path", [*HEADERS, *KERNELS, *sorted((PACKAGE / "kernels").glob("*.pyi"))], ids=name_of)
def test_the_first_line_of_a_native_file_says_what_it_is(path):
    first = path.read_text().lstrip().splitlines()[0]
    starts = ("//", "/*") if path.suffix == ".hpp" else ("#", '"""')
    assert first.startswith(starts), f"{name_of(path)} begins with {first!r}"
    assert "pragma" not in first


def test_no_file_is_named_after_nothing():
    vague = {"utils", "util", "helpers", "helper", "misc", "common"}
    found = [name_of(path) for path in PACKAGE.rglob("*") if path.stem in vague]
    found += [name_of(path) for path in HEADERS if path.stem in vague]
    assert not found


def test_the_top_level_is_what_the_design_says():
    if shutil.which("git") is None or not (ROOT / ".git").exists():  # not a clone: a source distribution, say
        return
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    allowed = {
        "pyproject.toml", "setup.py", "MANIFEST.in", "jetfast", "csrc", "benchmarks", "tests", "README.md", "Makefile",
        "LICENSE", "docs", ".ci", ".github", ".gitignore",
    }  # fmt: skip
    assert {line.split("/")[0] for line in listed.stdout.splitlines()} <= allowed


def test_import_jetfast_stays_light():
    """Names, not times: a time would fail on a busy machine. What is slow to import comes with its first use."""
    script = f"""
import sys
import jetfast
heavy = [name for name in {NOT_BY_IMPORT_JETFAST!r} if name in sys.modules]
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
