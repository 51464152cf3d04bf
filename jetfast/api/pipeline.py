"""The pipeline: the steps that a user has described, checked as they are added, inert until submitted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import copy
from dataclasses import replace

from jetfast.api.stage import SourceStage
from jetfast.api.steps import Output, SinkStep, SourceStep, Step, UnionStep, source_schemas
from jetfast.core.dag import Dag
from jetfast.core.items import MAIN_PORT
from jetfast.core.source import Sink, Source
from jetfast.errors import JobDefinitionError
from jetfast.kernels.carried import restored_schema


class Pipeline:
    """Steps from sources to sinks. Nothing runs, and no file is opened except to find its schema, before submission.

    Parameters
    ----------
    name : names the job, unless `submit` gives another name
    """

    def __init__(self, name: str = "pipeline") -> None:
        if not isinstance(name, str) or not name:
            raise JobDefinitionError(f"a pipeline is named by text, got {name!r}")
        self.name = name
        self._steps: dict[str, Step] = {}

    def read(self, source: Source, name: str | None = None) -> SourceStage:
        """Read a source (`jf.files`, `jf.memory`, `jf.generator`, ...).

        Parameters
        ----------
        source : where rows come from
        name : of the step, in metrics and messages; default: what the source calls itself
        """
        if not all(hasattr(source, attribute) for attribute in ("schema", "partitions", "open_reader")):
            meant = f"; did you mean read(jf.files({source!r}))?" if isinstance(source, str | os.PathLike) else ""
            raise JobDefinitionError(f"read needs a source such as jf.files(...), got {source!r}{meant}")
        step_name = self._name_for(name, source.name, stateful=True)
        step = SourceStep(
            self,
            step_name,
            (),
            source_schemas(step_name, source),
            no_time_reason="its source has no .with_event_time(...)",
            source=source,
        )
        self._add(step)
        return SourceStage(Output(step))

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps, in the order in which they were described."""
        return tuple(self._steps)

    def plan(self, *, member_count: int = 1, workers: int = 1, two_stage: bool | None = None) -> Dag:
        """Return the graph that a cluster runs.

        Parameters
        ----------
        member_count : members of the cluster
        workers : worker threads of each member
        two_stage : accumulate near the source before rows cross an edge; None: where it pays and is possible

        Raises JobDefinitionError if the pipeline is not complete: no source, a stage that nothing reads or writes.
        """
        from jetfast.api.planner import plan

        return plan(self, member_count=member_count, workers=workers, two_stage=two_stage)

    def collected_steps(self) -> list[str]:
        """Names of the steps whose rows go back to the process that submits."""
        return [step.name for step in self._iterate() if isinstance(step, SinkStep) and step.collects]

    def with_sink(self, name: str, sink: Sink) -> Pipeline:
        """Return a pipeline of the same steps, of which the one of this name writes to another sink."""
        step = self._steps[name]
        assert isinstance(step, SinkStep)
        sink.check(restored_schema(step.inputs[0].schema))
        changed = copy(self)
        changed._steps = self._steps | {name: replace(step, sink=sink)}
        return changed

    def explain(self, *, member_count: int = 1, workers: int = 1, two_stage: bool | None = None) -> str:
        """Return the steps, and the graph they become, as text."""
        from jetfast.api.drawing import explain

        return explain(self, member_count=member_count, workers=workers, two_stage=two_stage)

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r}: {', '.join(self._steps) or 'no steps'}>"

    def _repr_html_(self) -> str:
        from jetfast.api.drawing import pipeline_html

        return pipeline_html(self)

    def _iterate(self) -> Iterator[Step]:
        """Steps, each after those that it reads."""
        return iter(self._steps.values())

    def _readers(self, output: Output) -> list[Step]:
        return [step for step in self._steps.values() if output in step.inputs]

    def _name_for(self, name: str | None, generated: str, *, stateful: bool) -> str:
        """Return the name of a new step; a generated one comes from the operator and its columns.

        Stateless steps that would share a name are numbered; stateful ones must be told apart by the user, because
        state is found again by the name after a restart.
        """
        if name is not None:
            if not isinstance(name, str) or not name:
                raise JobDefinitionError(f"a step is named by text, got {name!r}")
            if name in self._steps:
                raise JobDefinitionError(f"two steps are named {name!r}; give one of them another name=")
            return name
        if generated not in self._steps:
            return generated
        if stateful:
            raise JobDefinitionError(
                f"two steps would be named {generated!r}; give one of them a name= of its own "
                f"(a restarted job finds its state by the name)"
            )
        number = 2
        while f"{generated} #{number}" in self._steps:
            number += 1
        return f"{generated} #{number}"

    def _add(self, step: Step) -> None:
        self._steps[step.name] = step

    def _check_complete(self) -> None:
        """Every path begins at a source and ends in a sink."""
        if not any(isinstance(step, SourceStep) for step in self._steps.values()):
            raise JobDefinitionError(f"pipeline {self.name!r} reads nothing: begin with p.read(...)")
        for step in self._steps.values():
            if not isinstance(step, SinkStep) and not self._readers(Output(step, MAIN_PORT)):
                what = "union" if isinstance(step, UnionStep) else "stage"
                raise JobDefinitionError(
                    f"nothing reads the {what} {step.name!r}: end it with .write(...), or leave it out"
                )
