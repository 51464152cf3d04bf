"""Many seeds: runs each, and adds up what came of them."""

import io
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout

from tests.simulation.programs.graph import shrink
from tests.simulation.programs.program import Program
from tests.simulation.simulated_run import Outcome, program_of, simulate

PIPELINES: dict[str, Callable[[int], bool]] = {
    "windows": lambda seed: False,
    "operators": lambda seed: True,
    "mixed": lambda seed: seed % 3 == 0,
}
"""Whether a seed runs a random program of all operators, or sources, windows and sinks of every kind."""


def run_quietly(seed: int, pipelines: str = "windows", program: Program | None = None) -> tuple[Outcome, float]:
    """Run a seed; return what came of it and its CPU seconds. `program`: another one than that of the seed."""
    logging.disable(logging.CRITICAL)
    before = time.process_time()
    try:
        with redirect_stdout(io.StringIO()):  # `peek` prints
            if program is None and PIPELINES[pipelines](seed):
                program = program_of(seed)
            outcome = simulate(seed, program=program)
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


def smallest_failing(seed: int) -> Program:
    """The program of a seed that fails, as small as it can be made."""
    return shrink(program_of(seed), lambda program: not run_quietly(seed, program=program)[0].good)
