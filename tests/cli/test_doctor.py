"""What doctor finds on machines that lack something, and what it says to do."""

import sys
from pathlib import Path

import pytest

from jetfast.cli import exit_status, health_checks
from jetfast.cli.health_checks import NOTE, OK, PROBLEM, Finding, check_machine
from tests.cli.command_line import CommandLine
from tests.connectors.postgres_server import PostgresServer


@pytest.fixture
def jetfast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def found(**arguments: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_machine(**arguments)}


def java_home(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def test_this_machine_is_described_and_its_store_probed_without_a_trace(jetfast: CommandLine, tmp_path: Path) -> None:
    ended = jetfast("doctor", "--store", tmp_path / "store", "--json")
    findings = {finding["check"]: finding for finding in ended.json["findings"]}
    assert {"python", "kernels", "pyarrow", "sockets", "open files", "memory", "store", "store speed"} <= set(findings)
    assert findings["store"]["level"] == OK
    assert list((tmp_path / "store").iterdir()) == []
    assert ended.json["ok"] == all(finding["level"] != PROBLEM for finding in findings.values())
    text = jetfast("doctor").out
    assert f"ok       python          {sys.version.split()[0]} at {sys.executable}" in text


def test_a_problem_is_told_with_what_to_do_and_is_the_exit_status(jetfast: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = jetfast("doctor", "--store", tmp_path / "file" / "store")
    assert ended.status == exit_status.FAILED
    assert "problem  store" in ended.out
    assert "-> give a place that you may write to" in ended.out


def test_java_is_found_by_its_release_file_and_must_be_17(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, level in (("17.0.2", OK), ("21", OK), ("11.0.9", PROBLEM), ("1.8.0_292", PROBLEM)):
        monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / version, version)))
        java = found()["java"]
        assert (java.level, java.found) == (level, f"{version} at {tmp_path / version}")
    (tmp_path / "21" / "release").unlink()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "21"))
    assert (found()["java"].level, "of an unknown version" in found()["java"].found) == (NOTE, True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "absent"))
    assert (found()["java"].level, found()["java"].found) == (PROBLEM, "JAVA_HOME has none")


def test_the_python_of_sparks_workers_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/absent/python")
    assert found()["PYSPARK_PYTHON"].level == PROBLEM
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert found()["PYSPARK_PYTHON"].level == NOTE
    assert f"export PYSPARK_PYTHON={sys.executable}" in found()["PYSPARK_PYTHON"].advice


def test_libraries_that_are_missing_or_old_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyarrow": "17.0.0", "numpy": "2.0.0", "pandas": "3.0.1", "pyspark": "4.1.0"}
    monkeypatch.setattr(health_checks, "_version", versions.get)
    needs = ["pyarrow>=18", "numpy>=2.0", "pyarrow-hotfix>=1", 'pandas<3,>=2.2; extra == "spark"']
    monkeypatch.setattr("importlib.metadata.requires", lambda name: needs)
    findings = found()
    assert findings["pyarrow"] == Finding("pyarrow", PROBLEM, "17.0.0", "jetfast needs >=18: pip install 'pyarrow>=18'")
    assert findings["numpy"].level == OK
    assert findings["rich"].level == PROBLEM
    assert (findings["pandas"].level, findings["pandas"].found) == (PROBLEM, "3.0.1")
    monkeypatch.setattr(health_checks, "_version", lambda name: None)
    assert (found()["pyspark"].level, "java" in found()) == (NOTE, False)


def test_a_home_that_cannot_hold_sockets_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    sockets = found()["sockets"]
    assert (sockets.level, f"{tmp_path}/file/.jetfast/run" in sockets.advice) == (PROBLEM, True)


def test_low_limits_and_little_memory_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda limit: (256, 4096))
    assert found()["open files"].level == PROBLEM
    assert "(up to 4,096 without help of root)" in found()["open files"].advice
    monkeypatch.setattr(health_checks, "_free_memory", lambda: 10**9)
    assert (found()["memory"].level, found()["memory"].found.split(",")[0]) == (NOTE, "1.00GB free")
    monkeypatch.setattr(health_checks, "_free_memory", lambda: None)
    assert found()["memory"].level == NOTE


def test_a_postgresql_server_that_is_not_there_is_a_problem() -> None:
    finding = found(postgres="host=127.0.0.1 port=1 user=nobody connect_timeout=5")["postgres"]
    assert (finding.level, finding.found.startswith("it cannot be reached")) == (PROBLEM, True)


@pytest.mark.services
def test_a_postgresql_server_says_whether_it_allows_prepared_transactions(
    postgres_server: PostgresServer, unprepared_server: PostgresServer
) -> None:
    assert found(postgres=postgres_server.conninfo)["postgres"].level == OK
    finding = found(postgres=unprepared_server.conninfo)["postgres"]
    assert (finding.level, finding.found) == (NOTE, "max_prepared_transactions = 0")
    assert "ALTER SYSTEM SET max_prepared_transactions" in finding.advice
