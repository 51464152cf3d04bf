"""Runs a pipeline and compares what is in its sinks with its oracle, row by row."""

import contextlib
import io
import logging
import re
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast.errors import JobDefinitionError, JobFailedError
from tests.differential import sinks
from tests.differential.duckdb_oracle import second_opinion
from tests.differential.flows import DoesNotFitError, FailsError, Flow
from tests.differential.pipelines import Program, draw_program
from tests.differential.spark_oracle import Question, questions_of
from tests.differential.values import Near, plain, to_exact, to_key
from tests.simulation.programs.graph import name_of, shrink

WAIT_S = 120


@dataclass
class Outcome:
    """What came of a pipeline: "equal", "refused", "failed" or "differ", and why."""

    number: int
    kind: str
    why: str = ""
    program: Program | None = field(default=None, repr=False)
    questions: list[Question] = field(default_factory=list, repr=False)
    """To Spark, about the expressions and keys of a pipeline that is equal."""


def program_of(seed: int, number: int) -> Program:
    """The pipeline of a number in a campaign of a seed."""
    return draw_program(Random(f"{seed}:{number}"))


def run_quietly(program: Program, number: int = 0) -> Outcome:
    """Run a program without its log and prints."""
    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            tempfile.TemporaryDirectory(prefix="differential-") as directory,
        ):
            kind, why = run(program, Path(directory))
    except Exception as error:  # the oracle's own, or that of reading results: the campaign goes through
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind, why = "failed", f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    finally:
        logging.disable(logging.NOTSET)
    outcome = Outcome(number, kind, why, program)
    if kind == "equal":
        with contextlib.suppress(FailsError):
            outcome.questions += questions_of(number, program, program.flows())
    return outcome


def run(program: Program, directory: Path) -> tuple[str, str]:
    """Run it; return its kind of outcome and why."""
    fails: FailsError | None = None
    flows: list[Flow] = []
    try:
        flows = program.flows()
        for end in program.ends:
            sinks.require_expressible(program.sink, flows[end])
    except FailsError as error:
        fails = error
    pipeline = jf.Pipeline("differential")
    try:
        program.build(pipeline, directory)
    except JobDefinitionError as error:
        return refused(program, str(error))
    except Exception as error:
        return "failed", f"while it is built: {type(error).__name__}: {error}"
    try:
        job = jf.LocalCluster(workers=program.workers).submit(pipeline, progress=False)
    except JobDefinitionError as error:
        return refused(program, str(error))
    except Exception as error:
        return "failed", f"at submission: {type(error).__name__}: {error}"
    try:
        job.wait(WAIT_S)
    except Exception as error:
        return judge_failure(fails, error)
    if fails is not None:
        return "differ", f"the job completed, but rows are errors in {fails.mentions}"
    for end in program.ends:
        why = compare_sink(program, flows[end], job, directory, name_of(end))
        if why:
            return "differ", f"{name_of(end)}: {why}"
    why = second_opinion(program, flows)
    return ("differ", why) if why else ("equal", "")


def refused(program: Program, message: str) -> tuple[str, str]:
    """A refusal is one that names a step and a column."""
    columns = {name for flow in program.flows_until_failure() for name in flow.types}
    if not any(re.search(rf"(?<![\w]){re.escape(column)}(?![\w])", message) for column in columns):
        return "failed", f"a refusal that names no column: {message}"
    return "refused", message


def judge_failure(fails: FailsError | None, error: Exception) -> tuple[str, str]:
    """A job that must fail says where: in which step."""
    if fails is None:
        return "failed", f"{type(error).__name__}: {error}"
    if not isinstance(error, JobFailedError):
        return "failed", f"another kind of error than JobFailedError: {type(error).__name__}: {error}"
    missing = [mention for mention in fails.mentions if mention not in str(error)]
    return ("failed", f"the error does not mention {missing}: {error}") if missing else ("equal", "")


def compare_sink(program: Program, flow: Flow, job: Any, directory: Path, name: str) -> str:
    """How what is in a sink differs from a flow, or ""."""
    if program.sink == "collect":
        table = job.collected(f"{name} (out)")
        return compare_table(flow, table, ordered=flow.sorted_output)
    names, rows = sinks.read_files(directory / "out" / name, program.sink, flow.types)
    if names != flow.names:
        return f"columns are {names} instead of {flow.names}"
    return compare_rows(flow.names, flow.rows, rows, ordered=flow.sorted_output)


def compare_table(flow: Flow, table: pa.Table, *, ordered: bool) -> str:
    """How a table differs from a flow, or ""."""
    if table.column_names != flow.names:
        return f"columns are {table.column_names} instead of {flow.names}"
    for column in table.schema:
        expected = flow.types[column.name]
        if expected is not None and not same_type(plain(column.type), expected):
            return f"column {column.name!r} is {column.type} instead of {expected}"
    columns = [to_exact(column) for column in table.columns]
    rows = list(zip(*columns, strict=True)) if columns else []
    return compare_rows(flow.names, flow.rows, rows, ordered=ordered)


def same_type(found: pa.DataType, expected: pa.DataType) -> bool:
    """Names of fields of lists and maps do not count."""
    return bool(found.equals(expected)) or str(found) == str(plain(expected))


def compare_rows(
    names: Sequence[str], expected: Sequence[tuple[Any, ...]], found: Sequence[tuple[Any, ...]], *, ordered: bool
) -> str:
    """How rows differ, or ""."""
    if len(expected) != len(found):
        return f"{len(found)} rows instead of {len(expected)}{surplus(names, expected, found)}"
    if not ordered:
        near = [place for place in range(len(names)) if any(holds_near(row[place]) for row in expected)]

        def order(row: tuple[Any, ...]) -> Any:
            exact = [to_key(value) for place, value in enumerate(row) if place not in near]
            return repr(exact), [rough(row[place]) for place in near]

        expected, found = sorted(expected, key=order), sorted(found, key=order)
    for number, (wanted, got) in enumerate(zip(expected, found, strict=True)):
        for name, one, other in zip(names, wanted, got, strict=True):
            if not is_same(one, other):
                return f"row {number}, column {name!r}: {other!r} instead of {one!r}; the row is {wanted}"
    return ""


def surplus(names: Sequence[str], expected: Sequence[tuple[Any, ...]], found: Sequence[tuple[Any, ...]]) -> str:
    """A row that only one side has."""
    if any(holds_near(value) for row in expected for value in row):
        return ""
    wanted, got = Counter(map(to_key, expected)), Counter(map(to_key, found))
    return f"; missing: {list((wanted - got).elements())[:2]}; too many: {list((got - wanted).elements())[:2]}"


def holds_near(value: Any) -> bool:
    return isinstance(value, Near) or (isinstance(value, tuple) and any(map(holds_near, value)))


def rough(value: Any) -> Any:
    """By what rows are paired that differ in inexact values alone."""
    if isinstance(value, tuple) and not isinstance(value, Near):
        return tuple(map(rough, value))
    number = value.value if isinstance(value, Near) else value
    return (1, 0.0) if number is None else (2, 0.0) if number != number else (0, float(number))


def is_same(expected: Any, found: Any) -> bool:
    """Is a value what it must be?"""
    if isinstance(expected, Near):
        if found is None:
            return False
        number = float(found)
        if to_key(number) == to_key(expected.value):
            return True
        return abs(number - expected.value) <= expected.tolerance
    if isinstance(expected, tuple) and isinstance(found, tuple):
        return len(expected) == len(found) and all(map(is_same, expected, found))
    return bool(to_key(expected) == to_key(found))


def smallest(program: Program, kind: str) -> Program:
    """The smallest program found with the same kind of outcome."""

    def still(candidate: Program) -> bool:
        try:
            return run_quietly(candidate).kind == kind
        except DoesNotFitError:
            return False

    return shrink(program, still)
