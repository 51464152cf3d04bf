"""Many seeds: runs each, and adds up what came of them."""

import logging
import time
from collections import Counter
from collections.abc import Iterable

from tests.simulation.simulated_run import Outcome, simulate


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
