"""Measures works side by side: interleaved, best of equal repeats, each peer in the fastest of its forms."""

import gc
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Cost:
    """Seconds of one run: CPU of all threads of this process, and wall time."""

    cpu_s: float
    wall_s: float


Work = Callable[[], Cost]
"""One turn. What it needs is set up before its clocks start."""

Clock = Literal["cpu_s", "wall_s"]


def measure(work: Callable[[], object]) -> Cost:
    """Run once. What the work returns is kept alive until the clocks are read, then dropped."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    cost = Cost(time.process_time() - cpu, time.perf_counter() - wall)
    del result
    return cost


def timed(work: Callable[[], object]) -> Work:
    """Turn a call into a turn: nothing to set up."""
    return lambda: measure(work)


def side_by_side(
    ours: Work, peers: Mapping[str, Mapping[str, Work]], repeats: int, clock: Clock = "cpu_s"
) -> dict[str, Cost]:
    """Return the best turn of "jetfast" and of every peer.

    Parameters
    ----------
    peers : name -> form -> work. If there are several, each has a turn that only decides which form goes on
    repeats : turns of ours and of every peer, interleaved. All have run before, when their answers were checked
    clock : which seconds decide; the turn with the least is the best, since what disturbs a turn only adds to it
    """

    def seconds(cost: Cost) -> float:
        return getattr(cost, clock)

    works: dict[str, Work] = {"jetfast": ours}
    for name, forms in peers.items():
        if len(forms) == 1:
            (works[name],) = forms.values()
            continue
        trials = {form: seconds(work()) for form, work in forms.items()}
        form = min(trials, key=trials.__getitem__)
        works[name] = forms[form]
        print(f"    {name}: {form} is its fastest form", file=sys.stderr)
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            costs[name].append(work())
    return {name: min(found, key=seconds) for name, found in costs.items()}
