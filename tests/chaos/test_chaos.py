"""Jobs whose processes are killed lose nothing and write nothing twice; and the hunt would see it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jetfast.core.crash_points import CRASH_POINTS
from tests.chaos.campaign import failed, run_campaign, summarize
from tests.chaos.faults import Fault, plan_faults, possible_faults
from tests.chaos.hunted_pipeline import KEYS, WINDOW_US
from tests.chaos.kills import IN_A_RESTART, RANDOM_MOMENT, plan_freezes, plan_kills, plan_kills_on_spark
from tests.chaos.targets import Found, SinkKind, Target
from tests.chaos.works import NEXMARK_Q5, NUMBERED_ON_SPARK
from tests.connectors.postgres_server import PostgresServer

KILLS = 20


@pytest.mark.services
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_each_row_is_written_once_though_members_and_coordinators_are_killed_at_every_crash_point(
    kind: SinkKind, postgres_server: PostgresServer
) -> None:
    freezes = 2 if kind == "postgres" else 0  # each takes a lease: one kind is enough
    figures = run_campaign(kind, KILLS, freezes=freezes, jobs_at_once=2, server=postgres_server)
    print(figures)
    assert figures["freezes"] == freezes
    assert figures["zombies"] >= freezes // 2
    assert figures["stuck"] == []
    assert not failed(figures), figures
    assert figures["kills"] >= KILLS
    assert all(figures["kills_per_point"].values()), figures


@pytest.mark.services
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("files", "store-full"),
        ("files", "store-put-back"),
        ("files", "record-lost"),
        ("files", "state-cut"),
        ("postgres", "database-away"),
        ("postgres", "connection-cut"),
    ],
)
def test_each_row_is_written_once_though_the_systems_around_the_job_fail(
    kind: SinkKind, fault: Fault, postgres_server: PostgresServer
) -> None:
    figures = run_campaign(kind, 0, faults=1, fault=fault, server=postgres_server)
    print(figures)
    assert figures["stuck"] == []
    assert not failed(figures), figures
    assert figures["faults_by_kind"][fault] == 1


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.timeout(3600)
def test_each_row_is_written_once_though_workers_executors_and_drivers_of_spark_are_killed(
    postgres_server: PostgresServer,
) -> None:
    figures = run_campaign("postgres", 3, work=NUMBERED_ON_SPARK, server=postgres_server)
    print(figures)
    assert figures["stuck"] == []
    assert not failed(figures), figures
    assert [figures[f"{victim}_killed"] for victim in ("members", "executors", "coordinators")] == [1, 1, 1]


@pytest.mark.services
@pytest.mark.timeout(1800)
def test_a_query_gives_the_rows_of_duckdb_though_members_and_coordinators_are_killed() -> None:
    figures = run_campaign("files", 10, work=NEXMARK_Q5)
    print(figures)
    assert figures["stuck"] == []
    assert not failed(figures), figures
    assert figures["kills"] >= 10
    assert figures["rows"] > 1000


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_has_each_crash_point_alike_often(seed: int) -> None:
    planned = [kill.occasion for kill in plan_kills(200, seed)]
    times = {point: planned.count(point) for point in CRASH_POINTS}
    assert set(times.values()) == {7}
    assert len(planned) + 7 * len(IN_A_RESTART) == 200
    assert planned.count(RANDOM_MOMENT) > 80
    assert plan_kills(200, seed) == plan_kills(200, seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_has_each_fault_alike_often(seed: int) -> None:
    planned = [fault.kind for fault in plan_faults(12, seed, possible_faults("postgres"))]
    assert {kind: planned.count(kind) for kind in planned} == dict.fromkeys(possible_faults("postgres"), 2)
    assert set(possible_faults("files")) < set(possible_faults("postgres"))


@pytest.mark.parametrize("seed", range(3))
def test_every_other_freeze_takes_the_coordinator_too(seed: int) -> None:
    victims = [kill.victims for kill in plan_freezes(3, seed)]
    assert victims == [("frozen",), ("frozen", "coordinator"), ("frozen",)]


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_for_spark_has_each_kind_of_victim_and_crash_points_in_between(seed: int) -> None:
    victims = [kill.victims for kill in plan_kills_on_spark(3, seed)]
    assert victims == [("member",), ("executor",), ("coordinator",)]
    planned = plan_kills_on_spark(30, seed)
    assert len(planned) == 30
    assert sum(kill.occasion != RANDOM_MOMENT for kill in planned) == 9
    assert plan_kills_on_spark(30, seed) == planned


ROWS = 5 * WINDOW_US


def found(rows: Sequence[int], folder: Path, **altered: object) -> Found:
    out = folder / "out"
    out.mkdir()
    numbers = np.array(rows, dtype=np.int64)
    starts = pa.array(numbers // WINDOW_US * WINDOW_US, pa.timestamp("us"))
    table = pa.table({"row": numbers, "key": numbers % KEYS, "window_start": starts} | altered)
    pq.write_table(table, out / "part-0.parquet")
    return Target("files", "hunted-1", str(folder)).compare(ROWS)


def test_a_target_that_has_each_row_once_passes(tmp_path: Path) -> None:
    assert found(range(ROWS), tmp_path) == Found(ROWS, lost=0, duplicated=0, wrong=0, left=0)
    assert not failed(summarize([], [Found(ROWS, 0, 0, 0, 0)], []))


def test_rows_that_are_missing_or_there_twice_are_counted_also_when_their_number_is_right(tmp_path: Path) -> None:
    outcome = found([0, *range(ROWS - 2), 7], tmp_path)
    assert outcome == Found(ROWS, lost=2, duplicated=2, wrong=0, left=0)
    assert failed(summarize([], [outcome], []))


def test_rows_of_another_key_window_or_source_are_wrong(tmp_path: Path) -> None:
    keys = np.arange(ROWS) % KEYS
    keys[5] += 1
    assert found([*range(ROWS - 1), ROWS], tmp_path, key=keys).wrong == 2


def test_a_temporary_file_that_is_left_is_counted(tmp_path: Path) -> None:
    found(range(ROWS), tmp_path)
    (tmp_path / "out" / ".jetfast.hunted-1.0.sink.1.0.0.0.parquet.tmp").touch()
    assert Target("files", "hunted-1", str(tmp_path)).compare(ROWS).left == 1


def test_rows_of_an_answer_that_are_missing_twice_or_unknown_are_counted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    pq.write_table(pa.table({"b": ["x", "x", "y", "z"], "a": [1, 1, 2, 2]}), out / "part-0.parquet")
    answer = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    outcome = Target("files", "hunted-1", str(tmp_path)).compare_with(answer)
    assert outcome == Found(3, lost=1, duplicated=1, wrong=1, left=0)


def test_a_hunt_that_is_stuck_has_failed() -> None:
    assert failed(summarize([], [Found(ROWS, 0, 0, 0, 0)], ["seed 0, job 1: waited"]))
