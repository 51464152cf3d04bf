"""The goals by number: each measures, checks every answer and yields report entries.

Goal 12 is Spark, 13 the operators.
"""

from collections.abc import Callable, Iterator

from benchmarks.goals.expansion import goal_5
from benchmarks.goals.inputs import inputs
from benchmarks.goals.latency import HICCUPS, goal_11
from benchmarks.goals.nexmark import nexmark
from benchmarks.goals.operators import goal_13
from benchmarks.goals.options import Options
from benchmarks.goals.partitioning import goal_1
from benchmarks.goals.pipelines import goal_8, goal_9
from benchmarks.goals.processes import processes
from benchmarks.goals.sessions import sessions
from benchmarks.goals.snapshots import goal_10
from benchmarks.goals.spark import SPARK, goal_12
from benchmarks.goals.windows import goal_2, goal_3, goal_4, goal_6, goal_7
from benchmarks.report import Entry


def goal_3_and_beside(options: Options) -> Iterator[Entry]:
    """10k keys, and beside it other kinds of input in the same windows, and sessions."""
    yield from goal_3(options)
    yield from inputs(options)
    yield from sessions(options)


def goal_13_and_beside(options: Options) -> Iterator[Entry]:
    """Joins and state by key, and beside it queries that are made of them."""
    yield from goal_13(options)
    yield from nexmark(options)


def goal_9_and_beside(options: Options) -> Iterator[Entry]:
    """Two cores against one, as threads of one process; and beside it as processes."""
    yield from goal_9(options)
    yield from processes(options)


GOALS: dict[int, Callable[[Options], Iterator[Entry]]] = {
    1: goal_1,
    2: goal_2,
    3: goal_3_and_beside,
    4: goal_4,
    5: goal_5,
    6: goal_6,
    7: goal_7,
    8: goal_8,
    9: goal_9_and_beside,
    10: goal_10,
    11: goal_11,
    12: goal_12,
    13: goal_13_and_beside,
}
ON_DEMAND = {12: SPARK}
"""Goals that run only when they, or their peer, are asked for: it takes minutes."""
PEERS = (
    "numpy", "pyarrow", "polars", "polars-batch", "duckdb",
    "int64", "count", "kernels", "one-core", "two-threads", "one-process", "no-snapshots", HICCUPS, SPARK,
)  # fmt: skip
