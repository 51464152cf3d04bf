"""Runs the goals side by side with other engines and prints one report.

    python -m benchmarks.compare [--goal N ...] [--peer NAME] [--quick] [--json]

Exit 0: all gates hold; 1: one missed; 2: answers differ; 64: wrong arguments; 70: a goal could not be run.
CPU time decides except in goal 9; peers run on one thread.
"""

import argparse
import contextlib
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NoReturn

# Before the peers are imported: they read these once.
os.environ["POLARS_MAX_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import pyarrow as pa

from benchmarks.goals import GOALS, ON_DEMAND, PEERS
from benchmarks.goals.options import QUICK, Options
from benchmarks.report import Entry, machine, print_table

HELD, MISSED, DIFFER, USAGE, BROKEN = 0, 1, 2, 64, 70


class Parser(argparse.ArgumentParser):
    """argparse ends with 2, which here means that answers differ."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def exit_code(entries: Sequence[Entry]) -> int:
    """A wrong answer outweighs a missed gate."""
    if not all(found.answers_equal for found in entries):
        return DIFFER
    return HELD if all(found.passed for found in entries) else MISSED


def run(goals: Sequence[int], options: Options) -> list[Entry]:
    """Run the goals in turn; progress goes to stderr, and so does whatever else is printed on the way."""
    entries: list[Entry] = []
    gc.collect()
    gc.freeze()  # every turn collects first: not what was imported
    with contextlib.redirect_stdout(sys.stderr):
        for goal in goals:
            started, cpu_started = time.perf_counter(), time.process_time()
            print(f"goal {goal}", file=sys.stderr, flush=True)
            for found in GOALS[goal](options):
                entries.append(found)
                note = "" if found.passed else ", missed"
                note += "" if found.answers_equal else ", ANSWERS DIFFER"
                gate = "" if found.gate is None else f" (gate {found.gate:g}{note})"
                print(f"  {found.name}: {found.value:.2f}{gate}", file=sys.stderr, flush=True)
            wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
            print(f"  {wall_s:.0f} s, {cpu_s:.0f} s of CPU", file=sys.stderr, flush=True)
    gc.unfreeze()
    return entries


def goals_of(peer: str | None) -> list[int]:
    """Return the goals that run when none is named."""
    alone = [goal for goal, its_peer in ON_DEMAND.items() if its_peer == peer]
    return alone or sorted(set(GOALS) - set(ON_DEMAND))


def main(arguments: Sequence[str] | None = None, options: Options | None = None) -> int:
    """Return the exit code. `options`: other sizes than those of the command line, for tests."""
    parser = Parser(prog="python -m benchmarks.compare", description=__doc__.splitlines()[0])
    parser.add_argument("--goal", type=int, nargs="+", choices=sorted(GOALS), help="only these goals")
    parser.add_argument("--peer", choices=PEERS, help="only this peer")
    parser.add_argument("--quick", action="store_true", help="fewer rows and turns: under three minutes")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parsed = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    options = replace(options or (QUICK if parsed.quick else Options()), peer=parsed.peer)
    try:
        entries = run(parsed.goal or goals_of(parsed.peer), options)
    except Exception:
        traceback.print_exc()
        return BROKEN
    if parsed.json:
        report = {"machine": machine(), "quick": parsed.quick, "goals": [asdict(found) for found in entries]}
        print(json.dumps(report))
    else:
        print_table(entries)
    return exit_code(entries)


if __name__ == "__main__":
    sys.exit(main())
