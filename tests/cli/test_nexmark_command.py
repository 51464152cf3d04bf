"""The command nexmark: what it prints, and with which status it ends."""

from dataclasses import replace

import pytest

from jetfast.cli import exit_status
from jetfast.nexmark.queries import QUERIES
from tests.cli.command_line import CommandLine


@pytest.fixture
def jetfast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def test_programs_get_what_a_query_took_and_whether_it_was_right(jetfast: CommandLine) -> None:
    ended = jetfast("nexmark", "q2", "--events", 5000, "--workers", 2, "--check", "--json")
    assert ended.status == 0
    found = ended.json
    assert list(found) == ["query", "events", "rows", "wall_s", "cpu_s", "equal"]
    assert (found["query"], found["events"], found["equal"]) == ("q2", 5000, True)
    assert found["rows"] > 0
    assert jetfast("nexmark", "q2", "--events", 5000, "--json").json["equal"] is None


def test_people_get_the_question_and_the_answer_of_the_check(jetfast: CommandLine) -> None:
    out = jetfast("nexmark", "q2", "--events", 5000, "--check").out
    assert "bids for some auctions" in out
    assert "the rows of DuckDB" in out


def test_rows_that_are_not_those_of_the_sql_end_the_command_with_a_failure(
    jetfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(QUERIES["q2"], sql="SELECT auction, price FROM bid WHERE auction % 124 = 0")
    monkeypatch.setitem(QUERIES, "q2", wrong)
    ended = jetfast("nexmark", "q2", "--events", 5000, "--check", "--json")
    assert ended.status == exit_status.FAILED
    assert ended.json["equal"] is False
    assert "q2: " in ended.err
    assert "not those of DuckDB" in jetfast("nexmark", "q2", "--events", 5000, "--check").out


@pytest.mark.parametrize("cluster", ["processes", "spark"])
def test_a_query_on_a_virtual_clock_runs_only_in_this_process(jetfast: CommandLine, cluster: str) -> None:
    ended = jetfast("nexmark", "q12", "--events", 1000, "--cluster", cluster)
    assert ended.status == exit_status.WRONG
    assert "q12 runs on a virtual clock, which only the local cluster takes" in ended.err


def test_the_sql_is_printed_and_nothing_runs(jetfast: CommandLine) -> None:
    assert jetfast("nexmark", "q2", "--sql").out == QUERIES["q2"].sql + "\n"


def test_a_query_that_there_is_not_is_refused_with_those_that_there_are(jetfast: CommandLine) -> None:
    ended = jetfast("nexmark", "q99")
    assert ended.status == exit_status.WRONG
    assert "there is no query 'q99'; there are q0, q1" in ended.err
