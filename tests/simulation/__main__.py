"""Runs seeds of the cluster simulator and tells what a user would have found in the sinks.

    python -m tests.simulation --seeds 1000 [--first 0] [--processes 2] [--json]

Exit code 0: nothing lost, duplicated or stuck; 1: something was, and the seeds are printed.
"""

import argparse
import json
import multiprocessing
import sys
import time

from tests.simulation.campaign import run_quietly, summarize

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


if __name__ == "__main__":
    sys.exit(main())
