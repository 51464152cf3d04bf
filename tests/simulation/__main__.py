"""Runs seeds of the cluster simulator and tells what a user would have found in the sinks.

    python -m tests.simulation --seeds 1000 [--first 0] [--processes 2] [--json]
        [--pipelines mixed | windows | operators] [--shrink]

A third of the seeds runs random pipelines of all operators ("operators"), the others sources, windows and sinks of
every kind ("windows").

Exit code 0: nothing lost, duplicated or stuck; 1: something was, and the seeds are printed.
"""

import argparse
import json
import multiprocessing
import sys
import time
from functools import partial

from tests.simulation.campaign import PIPELINES, run_quietly, smallest_failing, summarize

CHUNK = 20
PROBLEMS_SHOWN = 20


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, required=True, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=int, default=1, help="how many at once")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--pipelines", choices=PIPELINES, default="mixed", help="what jobs do")
    parser.add_argument("--shrink", action="store_true", help="print the program of a failed seed, made smaller")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.processes < 1 or options.first < 0:
        parser.error("--seeds and --processes must be at least 1, --first at least 0")
    seeds = range(options.first, options.first + options.seeds)
    run = partial(run_quietly, pipelines=options.pipelines)
    started = time.monotonic()
    if options.processes == 1:
        result = summarize(map(run, seeds))
    else:
        with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
            result = summarize(pool.imap_unordered(run, seeds, CHUNK))
    result["wall_s"] = round(time.monotonic() - started, 1)
    problems: list[str] = result.pop("problems")
    for problem in problems[:PROBLEMS_SHOWN]:
        print(problem, file=sys.stderr)
        seed = int(problem.removeprefix("seed ").partition(":")[0])
        if options.shrink and PIPELINES[options.pipelines](seed):
            print(smallest_failing(seed), file=sys.stderr)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name}: {value}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
