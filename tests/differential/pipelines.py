"""Random pipelines over the whole public API, as data: drawn from a seed, computed by oracles, built, made smaller."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import jetfast as jf
from tests.differential import joins, keyed, steps, windows
from tests.differential.flows import DoesNotFitError, FailsError, Flow, Operator
from tests.differential.values import plain
from tests.simulation.programs.graph import Graph, Node, name_of, require_tables_first

STEPS: list[type[Operator]] = [
    steps.Columns,
    steps.Columns,
    steps.Columns,
    steps.Where,
    steps.Where,
    steps.DropColumns,
    steps.Rename,
    steps.MapBatches,
    steps.MapRows,
    steps.Explode,
    steps.Union,
    steps.Sort,
    steps.Moved,
    keyed.DropDuplicates,
    keyed.Distinct,
    keyed.RollingAggregate,
    keyed.RollingAggregate,
    keyed.MapStateful,
    windows.WindowAggregate,
    windows.WindowAggregate,
    windows.WindowAggregate,
    windows.WindowAggregate,
    windows.Cogroup,
    joins.Join,
    joins.Join,
    joins.Join,
]
SINKS = ["collect", "collect", "collect", "parquet", "ipc", "csv", "json"]
TRIES = 8


@dataclass(frozen=True)
class Program(Graph):
    """A pipeline, and how it is run."""

    workers: int
    sink: str

    def flows(self) -> list[Flow]:
        """What each node gives. Raises DoesNotFitError, or FailsError if the job must fail."""
        found: list[Flow] = []
        fails = self.compute(found)
        if fails is not None:
            raise fails
        return found

    def flows_until_failure(self) -> list[Flow]:
        """What each node gives before the one whose rows fail."""
        found: list[Flow] = []
        self.compute(found)
        return found

    def compute(self, found: list[Flow]) -> FailsError | None:
        """Append what each node gives; return why the job must fail, if it must."""
        fails: FailsError | None = None
        for number, node in enumerate(self.nodes):
            try:
                found.append(node.operator.compute(number, [found[place] for place in node.inputs]))
            except FailsError as error:
                fails = error
                break
        require_tables_first(tables_of(self.nodes, found))
        return fails

    def build(self, pipeline: jf.Pipeline, directory: Path) -> None:
        """Add all steps and sinks."""
        stages: list[Any] = []
        for number, node in enumerate(self.nodes):
            operator = node.operator
            if isinstance(operator, steps.Source):
                operator = steps.replace(operator, directory=str(directory / "in"))
            stages.append(operator.build(pipeline, name_of(number), [stages[place] for place in node.inputs]))
        for number in self.ends:
            self.write(stages[number], directory, name_of(number))

    def write(self, stage: Any, directory: Path, name: str) -> None:
        """Add a sink."""
        if self.sink == "collect":
            stage.collect(f"{name} (out)")
        else:
            stage.write(jf.files(str(directory / "out" / name), format=self.sink), name=f"{name} (out)")


def tables_of(nodes: Sequence[Node], flows: Sequence[Flow]) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Sources of the stream and of the table of each join with one."""
    for node in nodes:
        if isinstance(node.operator, joins.Join) and node.operator.kind == "hash" and max(node.inputs) < len(flows):
            left, right = (flows[place] for place in node.inputs)
            yield left.sources, right.sources


def draw_program(random: Random) -> Program:
    """A program: sources, steps behind them, workers and a sink."""
    nodes: list[Node] = []
    while not nodes:
        nodes = with_one_more(random, [], [steps.Source])
    for _ in range(random.choice([1, 2, 2, 3, 4])):
        try:
            nodes = with_one_more(random, nodes, STEPS)
        except FailsError:
            break
    return Program(tuple(nodes), random.choice([1, 1, 2, 3]), random.choice(SINKS))


def with_one_more(random: Random, nodes: list[Node], kinds: Sequence[type[Operator]]) -> list[Node]:
    """The nodes, and one that fits. One pipeline in ten may have a step whose rows fail."""
    may_fail = random.random() < 0.1
    for _ in range(TRIES):
        more = [*nodes]
        try:
            flows = flows_of(more)
            kind = random.choice(kinds)
            inputs: list[int] = []
            for _ in range(kind.INPUTS):
                if inputs and random.random() < 0.6:
                    inputs.append(len(more))
                    more.append(Node(steps.Source.draw(random, [])))
                    flows = flows_of(more)
                else:
                    inputs.append(random.choice([*range(len(flows)), len(flows) - 1, len(flows) - 1]))
            more.append(Node(kind.draw(random, [flows[place] for place in inputs]), tuple(inputs)))
            flows_of(more)
        except DoesNotFitError:
            continue
        except FailsError:
            if not may_fail:
                continue
            return more
        return more
    return nodes


def flows_of(nodes: Sequence[Node]) -> list[Flow]:
    return Program(tuple(nodes), 1, "collect").flows() if nodes else []


__all__ = ["Program", "draw_program", "plain"]
