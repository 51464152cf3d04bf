"""Random pipelines of all operators, as data: drawn from a seed, computed slowly, built, printed, made smaller.

A program is a list of nodes, each an operator and the earlier nodes that it reads. What no node reads goes to a sink.
Operators stand only where their answer is certain: each is computed by its slow twin while a program is drawn, and
another one is drawn where that says that it does not fit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from jetfast.api.stage import Stage
from tests.simulation.programs import answers, joins, keyed_steps, plain_steps, windows
from tests.simulation.programs.answer import Answer, rows_answer
from tests.simulation.programs.flow import DoesNotFitError, Flow
from tests.simulation.programs.graph import Graph, Node, name_of, require_tables_first
from tests.simulation.programs.operator import Builder, Operator
from tests.simulation.programs.sources import Source

STEPS: list[type[Operator]] = [
    plain_steps.Filter,
    plain_steps.Expressions,
    plain_steps.Function,
    plain_steps.Explode,
    plain_steps.Union,
    plain_steps.Rebalance,
    plain_steps.Sort,
    plain_steps.Service,
    plain_steps.Peek,
    keyed_steps.DropDuplicates,
    keyed_steps.Distinct,
    keyed_steps.RollingAggregate,
    keyed_steps.MapStateful,
    keyed_steps.Custom,
    joins.HashJoin,
    joins.WindowJoin,
    joins.IntervalJoin,
    joins.AsofJoin,
    windows.WindowAggregate,
    windows.Cogroup,
]
STEPS += [step for step in STEPS if step.__module__ != plain_steps.__name__]
"""Those that keep something stand twice as often."""
ENDS: list[type[Operator]] = [
    answers.Aggregates,
    answers.ProcessingTime,
    answers.LateRows,
    answers.LateRowsOfJoin,
    answers.LateRowsOfCogroup,
]
TRIES = 12


@dataclass(frozen=True)
class Program(Graph):
    """See above."""

    def flows(self) -> list[Flow | Answer]:
        """What each node gives. Raises DoesNotFitError where an operator cannot stand."""
        found: list[Flow | Answer] = []
        for number, node in enumerate(self.nodes):
            found.append(compute(number, node, found))
        require_tables_first(tables_of(self.nodes, found))
        return found

    def answers(self) -> dict[str, Answer]:
        """What must be in the sink of each end, by the name of its node."""
        flows = self.flows()
        found = {}
        for number in self.ends:
            flow = flows[number]
            found[name_of(number)] = flow if isinstance(flow, Answer) else rows_answer(flow.rows)
        return found

    def build(self, builder: Builder) -> dict[str, Stage]:
        """Add all steps; return the stages of the ends by the names of their nodes."""
        stages: list[Stage] = []
        for number, node in enumerate(self.nodes):
            stages.append(node.operator.build(builder, name_of(number), [stages[each] for each in node.inputs]))
        return {name_of(number): stages[number] for number in self.ends}


def compute(number: int, node: Node, flows: Sequence[Flow | Answer]) -> Flow | Answer:
    """What a node gives."""
    read = []
    for each in node.inputs:
        flow = flows[each]
        if not isinstance(flow, Flow):
            raise DoesNotFitError("behind an end")
        read.append(flow)
    return node.operator.compute(number, read)


def tables_of(nodes: Sequence[Node], flows: Sequence[Flow | Answer]) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Sources of the stream and of the table of each join with one."""
    for node in nodes:
        if isinstance(node.operator, joins.HashJoin):
            left, right = (flows[number] for number in node.inputs)
            assert isinstance(left, Flow)
            assert isinstance(right, Flow)
            yield left.sources, right.sources


def draw_program(random: Random) -> Program:
    """A program: one to three sources, steps behind them, and ends."""
    nodes = [Node(Source.draw(random)) for _ in range(random.choice([1, 1, 2, 3]))]
    for _ in range(random.randint(1, 6)):
        nodes = with_one_more(random, nodes, STEPS)
    for _ in range(random.choice([0, 1, 1, 2])):
        nodes = with_one_more(random, nodes, ENDS)
    return Program(tuple(nodes))


def with_one_more(random: Random, nodes: list[Node], kinds: Sequence[type[Operator]]) -> list[Node]:
    """The nodes, and one that fits, with a source of its own, perhaps."""
    for _ in range(TRIES):
        kind = random.choice(kinds)
        more = [*nodes]
        flows = Program(tuple(nodes)).flows()
        readable = [number for number, flow in enumerate(flows) if isinstance(flow, Flow)]
        inputs: list[int] = []
        for _ in range(kind.INPUTS):
            if inputs and random.random() < 0.4:
                inputs.append(len(more))
                more.append(Node(Source.draw(random)))
            else:
                inputs.append(random.choice([*readable, *readable[-2:] * 2]))
        more.append(Node(kind.draw(random), tuple(inputs)))
        try:
            Program(tuple(more)).flows()
        except DoesNotFitError:
            continue
        return more
    return nodes
