"""What an operator of random programs is: data that can be drawn, built into a pipeline, and computed slowly."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import jetfast as jf
from jetfast.api.stage import Stage
from jetfast.connectors.memory import MemorySource
from tests.simulation.programs.answer import Answer
from tests.simulation.programs.flow import Flow


class Builder:
    """Where a program is built. `adapt` may put another source in the place of one in memory."""

    def __init__(self, pipeline: jf.Pipeline, adapt: Callable[[MemorySource], Any] = lambda source: source) -> None:
        self.pipeline = pipeline
        self.adapt = adapt


class Operator(Protocol):
    """A frozen dataclass: its fields are all that it is."""

    INPUTS: int
    """Stages that it reads; 0: a source."""

    @classmethod
    def draw(cls, random: Random) -> "Operator":
        """One of its kind."""

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        """Add its steps behind some stages; the name of each begins with `name`."""

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow | Answer:
        """What it gives, as the node of this number. Raises DoesNotFitError."""
