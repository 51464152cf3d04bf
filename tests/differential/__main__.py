"""Runs random pipelines and compares each, row by row, with independent oracles.

    python -m tests.differential --pipelines 3000 [--seed 0] [--only N] [--processes 2] [--json] [--shrink]

Spark answers last, many expressions in one query (--no-spark leaves it out).

A pipeline is "equal" if all of its sinks hold what its oracle says, "refused" if it was refused while it was built,
by an error that names a column, "failed" if anything raised that should not, and "differ" if rows differ.

Exit code 0: none failed, none differs, and at least 60 % are equal.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from functools import partial

from tests.differential.campaign import run_number, second_opinions
from tests.differential.running import Outcome, run_quietly, smallest

CHUNK = 10
SHARE_EQUAL = 0.6
SHOWN = 20


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--pipelines", type=int, default=1, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the campaign")
    parser.add_argument("--only", type=int, default=None, help="the number of the only pipeline to run")
    parser.add_argument("--processes", type=int, default=2, help="how many at once")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--no-spark", action="store_true", help="do not ask Spark about expressions and hashes")
    parser.add_argument("--shrink", action="store_true", help="print what fails or differs made smaller")
    options = parser.parse_args(arguments)
    if options.pipelines < 1 or options.processes < 1:
        parser.error("--pipelines and --processes must be at least 1")
    run = partial(run_number, seed=options.seed)
    numbers = range(options.pipelines) if options.only is None else [options.only]
    started = time.monotonic()
    outcomes: list[Outcome] = []
    if options.processes == 1 or len(numbers) == 1:
        outcomes.extend(map(run, numbers))
    else:
        with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
            outcomes.extend(pool.imap_unordered(run, numbers, CHUNK))
    asked = 0 if options.no_spark else second_opinions(outcomes)
    counts = Counter(outcome.kind for outcome in outcomes)
    result: dict[str, object] = {"pipelines": len(outcomes)}
    result |= {kind: counts[kind] for kind in ("equal", "refused", "failed", "differ")}
    result |= {"seed": options.seed, "asked_spark": asked, "wall_s": round(time.monotonic() - started, 1)}
    bad = sorted((each for each in outcomes if each.kind in ("failed", "differ")), key=lambda each: each.number)
    for outcome in bad[:SHOWN]:
        program, why = outcome.program, outcome.why
        if options.shrink and program is not None and run_quietly(program).kind == outcome.kind:
            program = smallest(program, outcome.kind)
            why = run_quietly(program).why
        print(f"--seed {options.seed} --only {outcome.number}: {outcome.kind}: {why}\n{program}\n", file=sys.stderr)
    if options.only is not None:
        print(outcomes[0].program, outcomes[0].kind, outcomes[0].why, sep="\n", file=sys.stderr)
    print(json.dumps(result) if options.json else "\n".join(f"{name}: {value}" for name, value in result.items()))
    return int(bool(bad) or (options.only is None and counts["equal"] < SHARE_EQUAL * len(outcomes)))


if __name__ == "__main__":
    sys.exit(main())
