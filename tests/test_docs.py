"""Every Python block of README.md and docs/*.md runs, in its order, in a directory with the demo's data."""

import contextlib
import re
from pathlib import Path

import polars as pl
import pytest

from docs.examples.flights import data
from tests.connectors.postgres_server import PostgresServer

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(page: Path) -> list[tuple[int, str]]:
    """(line number, code) of each block."""
    text = page.read_text()
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in BLOCK.finditer(text)]


def needs_spark(page: Path) -> bool:
    return any("pyspark" in code for _, code in blocks_of(page))


def needs_postgres(page: Path) -> bool:
    return any("psycopg" in code for _, code in blocks_of(page))


def parameters() -> list[object]:
    parameters: list[object] = []
    for page in PAGES:
        if blocks_of(page):
            marks = [pytest.mark.spark] * needs_spark(page) + [pytest.mark.services] * needs_postgres(page)
            parameters.append(pytest.param(page, id=page.name, marks=marks))
    return parameters


@pytest.fixture
def servers(page, monkeypatch):
    """What a page connects to, told by the environment."""
    with contextlib.ExitStack() as running:
        if needs_postgres(page):
            server = running.enter_context(PostgresServer())
            for name, value in {
                "HOST": "127.0.0.1",
                "PORT": server.port,
                "USER": "postgres",
                "DATABASE": "postgres",
            }.items():
                monkeypatch.setenv(f"PG{name}", str(value))
        yield


@pytest.fixture(scope="module")
def flights() -> pl.DataFrame:
    return data.read_flights().filter(pl.col("scheduled").dt.ordinal_day() <= 7)


@pytest.mark.parametrize("page", parameters())
def test_the_code_of_a_page_runs(page, flights, servers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data.write_streams(flights, tmp_path / "flights")
    names: dict[str, object] = {"__name__": f"docs_{page.stem}"}
    for line, code in blocks_of(page):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)


def test_pages_link_to_what_is_there():
    missing = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert not missing
