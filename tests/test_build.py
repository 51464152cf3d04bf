"""How jetfast is built and what it needs: hardened extensions, and dependencies with bounds that were tested."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
EXTENSIONS = sorted((ROOT / "jetfast" / "kernels").glob(f"*{SUFFIX}"))


def elf(option: str, extension: Path) -> str:
    """What readelf says of a file."""
    program = shutil.which("readelf")
    assert program is not None, "readelf is missing: apt-get install binutils"
    return subprocess.run(
        [program, "--wide", option, str(extension)], check=True, text=True, capture_output=True
    ).stdout


def is_sanitized(extension: Path) -> bool:
    return "__asan_init" in elf("--dyn-syms", extension) or "__tsan_init" in elf("--dyn-syms", extension)


@pytest.mark.skipif(sys.platform != "linux", reason="ELF is the format of Linux")
def test_extensions_have_protected_stacks_and_read_only_tables_of_addresses() -> None:
    assert len(EXTENSIONS) > 10
    protected, fortified = set(), set()
    for extension in EXTENSIONS:
        if is_sanitized(extension):
            continue
        symbols, segments, dynamic = (elf(o, extension) for o in ("--dyn-syms", "--program-headers", "--dynamic"))
        assert "GNU_RELRO" in segments, extension.name
        assert re.search(r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*NOW", dynamic), f"{extension.name} binds lazily"
        stack = re.search(r"GNU_STACK.*", segments)
        assert stack is not None
        assert "E" not in stack[0].split()[-2], f"the stack of {extension.name} is executable"
        if "__stack_chk_fail" in symbols:
            protected.add(extension)
        if re.search(r"__\w+_chk\b", symbols.replace("__stack_chk_fail", "")):
            fortified.add(extension)
    built = [extension for extension in EXTENSIONS if not is_sanitized(extension)]
    assert protected == set(built), "functions with arrays have a guard"
    assert fortified or not built, "sizes of copies and of formatted text are checked"


def requirements() -> list[Requirement]:
    """What users install, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for extra, texts in project["optional-dependencies"].items() if extra != "dev" for text in texts]
    found = [Requirement(text) for text in [*project["dependencies"], *extras]]
    return [requirement for requirement in found if requirement.name != "jetfast"]


def test_each_dependency_has_an_upper_bound_and_a_tested_version_within_its_bounds() -> None:
    lines = (ROOT / ".ci" / "tested-versions.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert len(requirements()) > 10
    for requirement in requirements():
        assert any(bound.operator == "<" for bound in requirement.specifier), f"{requirement} has no upper bound"
        assert requirement.specifier.contains(tested[requirement.name.lower()]), f"{requirement} was not tested"
