"""Measures two pieces of work side by side: interleaved, CPU time, best of equal repeats."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Seconds of one run: CPU of all threads of this process, and wall time."""

    cpu_s: float
    wall_s: float


def measure(work: Callable[[], object]) -> Cost:
    """Run once. What the work returns is kept alive until the clocks are read, then dropped."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    cost = Cost(time.process_time() - cpu, time.perf_counter() - wall)
    del result
    return cost


def best(costs: list[Cost]) -> Cost:
    """The run with the least CPU time: what disturbs a run only ever adds to it."""
    return min(costs, key=lambda cost: cost.cpu_s)


def side_by_side(ours: Callable[[], Cost], peers: dict[str, Callable[[], Cost]], repeats: int) -> dict[str, Cost]:
    """Run ours and every peer in turn, `repeats` times, after one unmeasured turn each. Keys: "jetfast" and peers."""
    works = {"jetfast": ours, **peers}
    for work in works.values():
        work()
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            costs[name].append(work())
    return {name: best(found) for name, found in costs.items()}
