"""Random pipelines of all operators on threads: the rows that slow twins give, on any workers and members."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.memory import MemorySource
from tests.simulation.programs.operator import Builder
from tests.simulation.programs.program import Program, draw_program

LAYOUTS = [(1, 1), (1, 3), (2, 2)]
"""Members, and workers of each."""


def at_once(source: MemorySource) -> MemorySource:
    """The rows of each partition as one batch."""
    scripts: dict[str, Any] = {}
    for partition, script in source.scripts.items():
        batches = [item for item in script if isinstance(item, pa.RecordBatch)]
        scripts[partition] = pa.Table.from_batches(batches, source.schema).combine_chunks()
    return jf.memory(partitions=scripts, schema=source.schema)


def problems(program: Program) -> list[str]:
    """What is wrong with the results of a program."""
    found = []
    answers = program.answers()
    for members, workers in LAYOUTS:
        pipeline = jf.Pipeline("program")
        builder = Builder(pipeline, at_once) if workers == 1 else Builder(pipeline)
        for name, stage in program.build(builder).items():
            stage.collect(f"{name} out")
        job = jf.LocalCluster(members=members, workers=workers).submit(pipeline, progress=False)
        job.wait(timeout=240)
        for name, answer in answers.items():
            rows = answer.of(job.collected(f"{name} out").to_pylist())
            lost, surplus = answer.expected - rows, rows - answer.expected
            if lost or surplus:
                where = f"{name} on {members} members with {workers} workers"
                found.append(f"{where} lacks {list(lost)[:3]}, and has {list(surplus)[:3]} besides\n{program}")
    return found


@pytest.mark.parametrize("seed", range(3))
def test_random_pipelines_of_all_operators_give_what_their_slow_twins_give(seed: int) -> None:
    assert problems(draw_program(Random(seed))) == []


@pytest.mark.simulation
@pytest.mark.parametrize("first", range(10, 60, 10))
def test_many_random_pipelines_of_all_operators_give_what_their_slow_twins_give(first: int) -> None:
    for seed in range(first, first + 10):
        assert problems(draw_program(Random(seed))) == []
