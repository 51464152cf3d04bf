"""Tries every use with every type, and draws the page's table: `python -m tests.arrow_types.matrix` rewrites it."""

import re
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import jetfast as jf
from jetfast.errors import JobDefinitionError
from jetfast.kernels.carried import carried_type, restored_schema
from jetfast.kernels.columns import Batch
from tests.arrow_types.samples import SAMPLES, Sample
from tests.arrow_types.uses import USES, Rows, Use

PAGE = Path(__file__).parents[2] / "docs" / "types.md"
START, END = "<!-- types by operator: made by the test -->\n", "<!-- end -->\n"
FORMATS = {"parquet": "Parquet", "ipc": "Arrow", "csv": "CSV", "json": "JSON"}
COLUMNS = [*dict.fromkeys(use.column for use in USES), *FORMATS.values()]


class Result(NamedTuple):
    """Of one type: the uses that are refused as the pipeline is built, and what is wrong with others."""

    refused: dict[str, str]
    wrong: list[str]


def stored(value: Any) -> Any:
    """A value without the Python types of extension types."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, list | tuple):
        return type(value)(map(stored, value))
    return {key: stored(each) for key, each in value.items()} if isinstance(value, dict) else value


def carried_values(column: pa.Array) -> list[Any]:
    """Python values of a column as it is carried."""
    return list(Batch.from_arrow(pa.record_batch({"x": column})).to_arrow().column(0).to_pylist())


def row_of(row: dict[str, Any]) -> str:
    """Values of a row as they are carried; those of bool8 are numbers then."""
    return re.sub(r"\b(True|False)\b", lambda word: str(int(word[0] == "True")), repr(tuple(map(stored, row.values()))))


def run(pipeline: jf.Pipeline) -> jf.Job:
    job = jf.LocalCluster(workers=2).submit(pipeline, progress=False)
    job.wait()
    return job


def try_uses(sample: Sample) -> Result:
    """Build all uses in one pipeline, run those that are not refused, and compare what they give."""
    refused: dict[str, str] = {}
    wrong: list[str] = []
    pipeline = jf.Pipeline("types")
    rows = Rows(pipeline, sample.column)
    kept: list[tuple[Use, Any]] = []
    for use in USES:
        described = dict(pipeline._steps)
        try:
            kept.append((use, use.make(rows)))
        except JobDefinitionError as error:
            pipeline._steps = described
            refused[use.name] = str(error)
            if not re.search(r"\bx\b", str(error)):
                wrong.append(f"{use.name}: refused without the name of the column: {error}")
    for use, stage in kept:
        stage.collect(use.name)
    job = run(pipeline)
    values = carried_values(sample.column)
    for use, _ in kept:
        found = [row_of(row) for row in job.collected(use.name).to_pylist()]
        expected = [row_of(dict(enumerate(each))) for each in use.expected(values)]
        if not use.in_order:
            found, expected = sorted(found), sorted(expected)
        if found != expected:
            wrong.append(f"{use.name}: gave {found}, not {expected}")
    return Result(refused, wrong)


def try_formats(sample: Sample, directory: Path) -> Result:
    """Write files of each format, and read them again with the schema of what was written."""
    refused: dict[str, str] = {}
    wrong: list[str] = []
    rows = pa.table({"n": range(6), "x": sample.column})
    schema = restored_schema(pa.schema([pa.field("n", pa.int64()), *_carried_fields(sample)]))
    for file_format in FORMATS:
        path = str(directory / file_format)
        pipeline = jf.Pipeline("write")
        stage = pipeline.read(jf.memory(rows))
        try:
            stage.write(jf.files(path, format=file_format))
        except JobDefinitionError as error:
            refused[file_format] = str(error)
            if not re.search(r"\bx\b", str(error)):
                wrong.append(f"{file_format}: refused without the name of the column: {error}")
            continue
        run(pipeline)
        if file_format in ("csv", "json"):  # which types text can be read as is another matter
            continue
        again = jf.Pipeline("read")
        again.read(jf.files(path, format=file_format, schema=schema)).sort("n").collect()
        found = run(again).to_arrow()
        if found.column("x").type != schema.field("x").type:
            wrong.append(f"{file_format}: read as {found.column('x').type}")
        if list(map(repr, map(stored, found.column("x").to_pylist()))) != list(map(repr, map(stored, sample.values))):
            wrong.append(f"{file_format}: read again {found.column('x').to_pylist()}")
    return Result(refused, wrong)


def _carried_fields(sample: Sample) -> Iterator[pa.Field]:
    yield from Batch.from_arrow(pa.record_batch({"x": sample.column})).schema


def taken(sample: Sample) -> dict[str, bool]:
    """For each column of the table: does it take the type?"""
    with tempfile.TemporaryDirectory() as directory:
        refused = {*try_uses(sample).refused, *try_formats(sample, Path(directory)).refused}
    columns: dict[str, set[bool]] = {}
    for use in USES:
        columns.setdefault(use.column, set()).add(use.name not in refused)
    for file_format, name in FORMATS.items():
        columns[name] = {file_format not in refused}
    mixed = [name for name, answers in columns.items() if len(answers) > 1]
    if mixed:
        raise AssertionError(f"{sample.name}: uses of one column differ: {mixed}, refused are {sorted(refused)}")
    return {name: answers.pop() for name, answers in columns.items()}


def lines_of(sample: Sample) -> str:
    """The type's line of the table."""
    carried = carried_type(sample.column.type)
    leaves = restored_schema(pa.schema(_carried_fields(sample))).field(0).type
    same = leaves == sample.column.type
    as_what = "" if carried == sample.column.type else f"`{carried}`" + (", restored" if same else "")
    cells = ["yes" if answer else "" for answer in taken(sample).values()]
    return f"| {sample.name.replace('<', '&lt;')} | {as_what} | " + " | ".join(cells) + " |\n"


def table() -> str:
    """The table of the page."""
    head = f"| type | carried as | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 2)}\n"
    return head + "".join(map(lines_of, SAMPLES))


if __name__ == "__main__":
    text = PAGE.read_text()
    before, rest = text.split(START)
    PAGE.write_text(before + START + "\n" + table() + "\n" + END + rest.split(END)[1])
