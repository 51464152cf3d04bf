"""Random programs themselves: all operators occur, a failure becomes small, lost state of any operator is found."""

from collections import Counter
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from jetfast.core.processor import Processor
from jetfast.processors.asof_join import AsofJoinProcessor
from jetfast.processors.drop_duplicates import DropDuplicates
from jetfast.processors.hash_join import HashJoinProcessor
from jetfast.processors.interval_join import IntervalJoinProcessor
from jetfast.processors.keyed_window import KeyedWindow
from jetfast.processors.map_stateful import MapStateful
from jetfast.processors.map_using_service import MapUsingService
from jetfast.processors.rolling_aggregate import RollingAggregate
from jetfast.processors.sort_rows import SortRows
from jetfast.processors.window_join import WindowJoinProcessor
from tests.simulation.campaign import run_quietly
from tests.simulation.mutations import save_a_row_less
from tests.simulation.programs import joins, keyed_steps, plain_steps, windows
from tests.simulation.programs.answer import Answer
from tests.simulation.programs.flow import Flow
from tests.simulation.programs.graph import Node, shrink
from tests.simulation.programs.operator import Operator
from tests.simulation.programs.program import ENDS, STEPS, Program, draw_program
from tests.simulation.programs.sources import Source
from tests.simulation.programs.spans import Framed

SEEDS_PER_PROCESSOR = 200


def source(seed: int, rows: int) -> Source:
    return Source(seed, rows, 2, by_key=True, disorder_us=0, lag_us=1000, timed=True, never_idle=True)


WINDOW = Framed(4000, 1000)
LOSERS: dict[type[Processor], Operator] = {
    WindowJoinProcessor: joins.WindowJoin("outer", WINDOW),
    IntervalJoinProcessor: joins.IntervalJoin("outer", -1000, 1000),
    AsofJoinProcessor: joins.AsofJoin("left", None),
    HashJoinProcessor: joins.HashJoin("left"),
    SortRows: plain_steps.Sort("v", descending=False),
    MapUsingService: plain_steps.Service(ordered=True, in_flight="save", concurrency=4, batch_rows=1),
    DropDuplicates: keyed_steps.DropDuplicates(None),
    RollingAggregate: keyed_steps.RollingAggregate(None, "sum"),
    MapStateful: keyed_steps.MapStateful(None, tells=False),
    keyed_steps.TotalByKey: keyed_steps.Custom(),
    KeyedWindow: windows.Cogroup(WINDOW, third=False),
}
"""Processors, and the operators that are made of them."""


@pytest.mark.simulation
@pytest.mark.timeout(600)
@pytest.mark.parametrize("processor", LOSERS, ids=lambda processor: processor.__name__)
def test_a_saved_row_that_any_operator_loses_is_found(processor: type[Processor]) -> None:
    operator = LOSERS[processor]
    sources = [Node(source(number, 60 // operator.INPUTS)) for number in range(operator.INPUTS)]
    program = Program((*sources, Node(operator, tuple(range(operator.INPUTS)))))
    program.flows()
    broken = save_a_row_less(processor.save_snapshot)
    with patch.object(processor, "save_snapshot", broken, create=True):
        outcomes = (run_quietly(seed, program=program)[0] for seed in range(SEEDS_PER_PROCESSOR))
        assert any(outcome.lost + outcome.duplicated for outcome in outcomes)


@pytest.mark.simulation
def test_all_operators_occur_in_random_programs_and_answers_are_seldom_empty() -> None:
    kinds: Counter[Any] = Counter()
    empty: Counter[bool] = Counter()
    for seed in range(300):
        program = draw_program(Random(seed))
        kinds.update({type(node.operator) for node in program.nodes})
        empty.update(not answer.expected for answer in program.answers().values())
    assert {kind for kind in (*STEPS, *ENDS) if kinds[kind] < 10} == set()
    assert empty[True] < 0.1 * empty[False]


def test_a_program_that_fails_becomes_as_small_as_it_can_be() -> None:
    random = Random(3)
    program = draw_program(random)
    while not joins_windows(program):
        program = draw_program(random)
    small = shrink(program, joins_windows)
    assert [type(node.operator) for node in small.nodes if node.inputs] == [joins.WindowJoin]
    assert all(node.operator.rows < 3 for node in small.nodes if isinstance(node.operator, Source))
    assert "n0 = Source(seed=" in str(small)
    assert small.answers()


def joins_windows(program: Program) -> bool:
    """Does a window join of it give rows?"""
    flows = zip(program.nodes, program.flows(), strict=True)
    return any(
        isinstance(flow, Flow) and flow.rows for node, flow in flows if isinstance(node.operator, joins.WindowJoin)
    )


@pytest.mark.parametrize(
    ("rows", "repeats", "good"),
    [
        ([(1, 5), (2, None)], False, True),
        ([(1, 5), (2, None), (3, 5)], False, False),
        ([(1, 5), (2, None), (3, 5)], True, True),  # all rows once more, in one window
        ([(1, 5), (1, 5), (2, None)], True, True),
        ([(1, 5), (1, 5)], True, False),  # rows are lost
        ([(2, 5), (2, 0)], True, False),
    ],
)
def test_sums_are_right_at_a_sink_that_repeats_rows_if_some_of_them_have_them(
    rows: list[tuple[int, int | None]], repeats: bool, good: bool
) -> None:
    answer = Answer(("key", "n", "total"), Counter({("k", 3, 5): 1}), sums=True)
    found = answer.of([{"key": "k", "n": n, "total": total} for n, total in rows], repeats)
    assert (found == answer.expected) is good
