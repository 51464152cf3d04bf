"""Runs seeds of the cluster simulator and tells what a user would have found in the sinks.

    python -m tests.simulation --seeds 1000 [--first 0] [--processes 2] [--json]

Exit code 0: nothing lost, duplicated or stuck; 1: something was, and the seeds are printed.
"""

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable

from tests.simulation.simulated_run import Outcome, simulate

CHUNK = 20
PROBLEMS_SHOWN = 20


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, required=True, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=int, default=1, help="how many at once")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.processes < 1 or options.first < 0:
        parser.error("--seeds and --processes must be at least 1, --first at least 0")
    seeds = range(options.first, options.first + options.seeds)
    started = time.monotonic()
    if options.processes == 1:
        result = summarize(map(run_quietly, seeds))
    else:
        with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
            result = summarize(pool.imap_unordered(run_quietly, seeds, CHUNK))
    result["wall_s"] = round(time.monotonic() - started, 1)
    problems: list[str] = result.pop("problems")
    for problem in problems[:PROBLEMS_SHOWN]:
        print(problem, file=sys.stderr)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name}: {value}")
    return 1 if problems else 0


def run_quietly(seed: int) -> tuple[Outcome, float]:
    """Run a seed; return what came of it and its CPU seconds."""
    logging.disable(logging.CRITICAL)
    before = time.process_time()
    try:
        outcome = simulate(seed)
    finally:
        logging.disable(logging.NOTSET)
    return outcome, time.process_time() - before


def summarize(runs: Iterable[tuple[Outcome, float]]) -> dict[str, object]:
    """Add up outcomes."""
    seeds = commits = lost = duplicated = stuck = 0
    cpu_s = 0.0
    faults: Counter[str] = Counter()
    seeds_with: Counter[str] = Counter()
    problems = []
    for outcome, seed_cpu_s in runs:
        seeds += 1
        cpu_s += seed_cpu_s
        commits += outcome.commits
        lost += outcome.lost
        duplicated += outcome.duplicated
        stuck += outcome.stuck
        faults += outcome.faults
        seeds_with.update(outcome.faults.keys())
        problems += [f"seed {outcome.seed}: {problem}" for problem in outcome.problems]
    return {
        "seeds": seeds,
        "faults": faults.total(),
        "commits": commits,
        "lost": lost,
        "duplicated": duplicated,
        "stuck": stuck,
        "failed_seeds": len({problem.partition(":")[0] for problem in problems}),
        "by_kind": dict(faults.most_common()),
        "share_of_seeds": {kind: round(count / seeds, 4) for kind, count in seeds_with.most_common()},
        "cpu_s_per_seed": round(cpu_s / seeds, 4),
        "problems": problems,
    }


if __name__ == "__main__":
    sys.exit(main())
