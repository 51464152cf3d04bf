"""Random pipelines of all operators, as data: drawn from a seed, computed slowly, built, printed, made smaller.

A program is a list of nodes, each an operator and the earlier nodes that it reads. What no node reads goes to a sink.
Operators stand only where their answer is certain: each is computed by its slow twin while a program is drawn, and
another one is drawn where that says that it does not fit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

from jetfast.api.stage import Stage
from tests.simulation.programs import answers, joins, keyed_steps, plain_steps, windows
from tests.simulation.programs.answer import Answer, rows_answer
from tests.simulation.programs.flow import DoesNotFitError, Flow
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


class Node(NamedTuple):
    """One operator, and the numbers of the nodes that it reads."""

    operator: Operator
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """See above."""

    nodes: tuple[Node, ...]

    def flows(self) -> list[Flow | Answer]:
        """What each node gives. Raises DoesNotFitError where an operator cannot stand."""
        found: list[Flow | Answer] = []
        for number, node in enumerate(self.nodes):
            found.append(compute(number, node, found))
        require_tables_first(self.nodes, found)
        return found

    @property
    def ends(self) -> list[int]:
        """Nodes that no other reads."""
        read = {number for node in self.nodes for number in node.inputs}
        return [number for number in range(len(self.nodes)) if number not in read]

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

    def __str__(self) -> str:
        return "\n".join(
            f"{name_of(number)} = {node.operator}"
            + (f" of {', '.join(map(name_of, node.inputs))}" if node.inputs else "")
            for number, node in enumerate(self.nodes)
        )


def name_of(number: int) -> str:
    """Name of a node."""
    return f"n{number}"


def compute(number: int, node: Node, flows: Sequence[Flow | Answer]) -> Flow | Answer:
    """What a node gives."""
    read = []
    for each in node.inputs:
        flow = flows[each]
        if not isinstance(flow, Flow):
            raise DoesNotFitError("behind an end")
        read.append(flow)
    return node.operator.compute(number, read)


def require_tables_first(nodes: Sequence[Node], flows: Sequence[Flow | Answer]) -> None:
    """Raise DoesNotFitError if sources wait for each other: a stream is not read before its table was."""
    waits: dict[int, set[int]] = {}
    for node in nodes:
        if isinstance(node.operator, joins.HashJoin):
            left, right = (flows[number] for number in node.inputs)
            assert isinstance(left, Flow)
            assert isinstance(right, Flow)
            for source in left.sources:
                waits.setdefault(source, set()).update(right.sources)
    for source in waits:
        reached: set[int] = set()
        ahead = [source]
        while ahead:
            for other in waits.get(ahead.pop(), ()):
                if other == source:
                    raise DoesNotFitError("sources wait for each other")
                if other not in reached:
                    reached.add(other)
                    ahead.append(other)


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


def smaller(program: Program) -> Iterator[Program]:
    """Programs with a node or rows less, the smallest first."""
    for number in range(len(program.nodes) - 1, -1, -1):
        yield from without(program, number)
    for number, node in enumerate(program.nodes):
        if isinstance(node.operator, Source):
            for changes in less(node.operator):
                changed = node._replace(operator=replace(node.operator, **changes))
                yield Program((*program.nodes[:number], changed, *program.nodes[number + 1 :]))


def less(source: Source) -> Iterator[Mapping[str, Any]]:
    """What may be simpler about a source."""
    for rows in (source.rows // 2, source.rows - 1):
        if 0 < rows < source.rows:
            yield {"rows": rows}
    if source.partitions > 1:
        yield {"partitions": source.partitions - 1}


def without(program: Program, number: int) -> Iterator[Program]:
    """The program without a node: who read it reads what it read."""
    node = program.nodes[number]
    if not node.inputs and number not in program.ends:
        return
    if len(program.nodes) == 1:
        return
    for place in node.inputs or (0,):

        def moved(each: int, place: int = place) -> int:
            each = place if each == number else each
            return each - (each > number)

        kept = [other for index, other in enumerate(program.nodes) if index != number]
        yield Program(tuple(other._replace(inputs=tuple(map(moved, other.inputs))) for other in kept))


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program found that still fails."""
    found = True
    while found:
        found = False
        for candidate in smaller(program):
            try:
                candidate.flows()
            except DoesNotFitError:
                continue
            if fails(candidate):
                program, found = candidate, True
                break
    return program
