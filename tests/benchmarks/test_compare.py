"""benchmarks.compare on tiny sizes: the shape of its report, and what its exit codes mean. Nothing here needs speed.

Each run is a process that imports the peers, a second of CPU: those that show little more are left to `make test`.
"""

import json
import subprocess
import sys

import pytest

FIELDS = {
    "goal": (int, type(None)),
    "name": (str,),
    "case": (str,),
    "peer": (str,),
    "unit": (str,),
    "value": (float,),
    "better": (str,),
    "gate": (float, type(None)),
    "stretch": (float, type(None)),
    "passed": (bool,),
    "cpu_s": (float,),
    "peer_cpu_s": (float,),
    "wall_s": (float,),
    "peer_wall_s": (float,),
    "rows": (int,),
    "answers_equal": (bool,),
}

LATENCY = 11
"""The goal whose gates are times: less is better."""

PROGRAM = """
import sys
from benchmarks import compare, report
from benchmarks.goals import windows
from benchmarks.goals.options import Options
from benchmarks.peers import polars

{change}
tiny = Options(
    rows=180_000, expansion_rows=2_000, expansion_rows_many_keys=1_000, many_keys=20_000, repeats=1,
    expansion_repeats=1, wall_repeats=1, partition_passes=1, warm_up=False,
    snapshot_rows=1 << 18, snapshot_rows_many_keys=1 << 18, snapshot_pairs=2, snapshots_min=0,
    process_rows=1 << 18, latency_batches=200, latency_turns=1, nexmark_events=20_000,
)
sys.exit(compare.main(sys.argv[1:], tiny))
"""


def compare(*arguments: str, change: str = "") -> tuple[int, dict]:
    """Run in a process of its own, since peers are held to one thread; return exit code and report."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(change=change), *arguments, "--json"], capture_output=True, text=True
    )
    if not done.stdout:
        return done.returncode, {"stderr": done.stderr}
    return done.returncode, json.loads(done.stdout)  # one object and nothing else, or this fails


def with_gates(gate: float) -> str:
    """Every gate of a ratio is this one, and times have the whole day, so that speed decides nothing."""
    return (
        "report.Goal.gate = property(lambda goal: None if goal[1] is None else "
        f"86_400_000.0 if goal.number == {LATENCY} else {gate})"
    )


def check_shape(entries: list[dict]) -> None:
    """The shape that others read, of answers that are equal."""
    for entry in entries:
        assert list(entry) == list(FIELDS)
        for name, types in FIELDS.items():
            assert isinstance(entry[name], types), (name, entry)
        assert (entry["unit"], entry["better"]) in {("ratio", "higher"), ("ms", "lower")}
        assert entry["answers_equal"]
        assert min(entry[name] for name in ("value", "wall_s", "peer_wall_s", "rows")) > 0
        assert (entry["gate"] is None) == (entry["stretch"] is None)
        assert entry["unit"] == "ratio" or entry["gate"] is None or entry["goal"] == LATENCY
        assert entry["goal"] is not None or entry["gate"] is None


@pytest.mark.simulation
def test_every_goal_is_measured_in_the_shape_that_others_read():
    code, found = compare(change=with_gates(0.0))
    assert code == 0, found
    entries = found["goals"]
    check_shape(entries)
    assert all(entry["passed"] for entry in entries)
    assert {entry["goal"] for entry in entries} == {None, *range(1, 12), 13}
    assert len({(entry["name"], entry["case"]) for entry in entries}) == len(entries)
    zipf = {entry["goal"] for entry in entries if "zipf" in entry["name"]}
    assert zipf >= set(range(2, 8))
    names = {(entry["goal"], entry["name"]) for entry in entries}
    assert names >= {
        (1, "partition-vs-polars"),
        (1, "partition-vs-best"),
        (2, "sliding-100-vs-polars"),
        (3, "sliding-10k-vs-polars"),
        (3, "sliding-10k-vs-polars-batch"),
        (3, "sliding-10k-vs-best"),
        (None, "session-10k-vs-polars"),
        (4, "sliding-20k-vs-polars"),
        (4, "sliding-20k-vs-duckdb"),
        (5, "expansion-100-vs-duckdb"),
        (5, "expansion-10k-vs-duckdb"),
        (5, "expansion-20k-vs-duckdb"),
        (6, "tumbling-100-vs-polars"),
        (6, "tumbling-10k-vs-polars"),
        (6, "tumbling-20k-vs-polars"),
        (7, "sliding-10k-min-vs-count"),
        (7, "sliding-10k-max-vs-count"),
        (8, "pipeline-vs-kernels"),
        (9, "two-cores-vs-one"),
        (10, "snapshots-10k-vs-none"),
        (10, "snapshots-20k-vs-none"),
        (10, "snapshots-20k-pause"),
        (11, "service-time"),
        (11, "end-to-end-above-hiccups"),
        (13, "window-join-10k-vs-duckdb"),
        (13, "interval-join-10k-vs-duckdb"),
        (13, "running-10k-vs-polars"),
        (13, "first-rows-10k-vs-polars"),
    } | {(None, f"nexmark-q{number}") for number in range(9)}
    assert {"cpu", "cpus", "python", "versions"} <= set(found["machine"])


def test_a_missed_gate_is_exit_1_and_only_the_peer_that_was_asked_for_runs():
    code, found = compare("--goal", "1", "2", "--peer", "polars", change=with_gates(1e9))
    assert code == 1
    assert {entry["peer"] for entry in found["goals"]} == {"polars"}
    assert not any(entry["passed"] for entry in found["goals"] if entry["gate"] is not None)
    check_shape(found["goals"])


WRONG_PEER = """
def one_more(group):
    return lambda *arguments: group(*arguments).with_columns(polars.pl.col("count") + 1)
for form, group in polars.FRAMES.items():
    polars.FRAMES[form] = one_more(group)
"""
WRONG_OURS = """
accumulate_all = windows.WindowFeed.feed
def lose_a_batch(self, batches, watermarks, check=None):
    accumulate_all(self, batches[1:], watermarks[1:], check)
windows.WindowFeed.feed = lose_a_batch
"""


@pytest.mark.parametrize(
    ("gate", "wrong"),
    [
        pytest.param(0.0, WRONG_PEER, id="peer", marks=pytest.mark.simulation),
        pytest.param(1e9, WRONG_OURS, id="jetfast"),
    ],
)
def test_a_wrong_answer_is_exit_2_whether_gates_hold_or_not(gate, wrong):
    code, found = compare("--goal", "2", "--peer", "polars", change=with_gates(gate) + wrong)
    assert code == 2
    assert not any(entry["answers_equal"] for entry in found["goals"])


def test_wrong_arguments_are_neither_a_missed_gate_nor_a_wrong_answer():
    code, found = compare("--goal", "99")
    assert code == 64
    assert "usage" in found["stderr"]
