"""A second opinion on the oracle of expressions, casts and hashes: Spark in ANSI mode.

One query answers many questions: the tables of all stand beside each other, and each expression is evaluated only in
the rows where the oracle has a value. Not asked: rows that are errors, and comparisons with NaN, of which the rule of
jetfast is another one.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import jetfast as jf
from tests.differential.expressions import RowError, Tree, Watch, as_spark, evaluate, spark_type, to_sql
from tests.differential.flows import Flow
from tests.differential.pipelines import Program
from tests.differential.steps import Source
from tests.differential.values import is_exactly, to_arrow, to_exact

ROWS_MAX = 60
AT_ONCE = 120
"""Questions in one query."""
HASHED = "hash"


@dataclass(frozen=True)
class Question:
    """An expression over some rows, and the values that the oracle has; None where it is not asked."""

    number: int
    what: str
    sql: str
    """With {} in front of each column's name."""
    columns: dict[str, pa.Array]
    asked: list[bool]
    values: list[Any]
    data_type: pa.DataType


def questions_of(number: int, program: Program, flows: Sequence[Flow]) -> Iterator[Question]:
    """Questions about all expressions and keys of a pipeline."""
    for node in program.nodes:
        operator = node.operator
        if isinstance(operator, Source):
            yield from hash_question(number, operator)
        for _, tree in operator.trees() if hasattr(operator, "trees") else ():
            question = expression_question(number, tree, flows[node.inputs[0]])
            if question is not None:
                yield question


def expression_question(number: int, tree: Tree, flow: Flow) -> Question | None:
    """A question about an expression, or None if Spark has no such types."""
    sql = None if loses_digits(tree) or drops_float(tree) else to_sql(tree, "{}")
    names = sorted(tree.columns())
    if sql is None or not names or any(spark_type(flow.types[name]) is None for name in names):
        return None
    asked, values = [], []
    for row in flow.rows[:ROWS_MAX]:
        watch = Watch()
        try:
            values.append(evaluate(tree, dict(zip(flow.types, row, strict=True)), watch))
            asked.append(not watch.has_compared_nan)
        except RowError:
            values.append(None)
            asked.append(False)
    columns = {name: to_arrow(flow.column(name)[:ROWS_MAX], as_spark(flow.types[name])) for name in names}
    return Question(number, repr(tree), sql, columns, asked, values, as_spark(tree.data_type))


def loses_digits(tree: Tree) -> bool:
    """Spark negates decimals by Scala's arithmetic of 34 digits; floats as text are those of Java 17 (see the docs)."""
    own = tree.operator in ("neg", "abs") and pa.types.is_decimal(tree.data_type) and tree.data_type.precision > 34
    is_text = pa.types.is_string(tree.data_type) or pa.types.is_decimal(tree.data_type)
    own |= tree.operator in ("cast", "try_cast") and is_text and pa.types.is_floating(tree.operands[0].data_type)
    return own or any(map(loses_digits, tree.operands))


def drops_float(tree: Tree) -> bool:
    """Spark's optimizer drops the float of an integer that becomes a double, so the value is not rounded to a float."""
    types = [operand.data_type for operand in tree.operands]
    is_double = pa.types.is_float64(tree.data_type) or any(not pa.types.is_float32(each) for each in types)
    own = is_double and any(
        operand.operator in ("cast", "try_cast")
        and pa.types.is_float32(operand.data_type)
        and pa.types.is_integer(operand.operands[0].data_type)
        for operand in tree.operands
    )
    return own or any(map(drops_float, tree.operands))


def hash_question(number: int, source: Source) -> Iterator[Question]:
    """A question about the partition of rows by the columns of a table, two at a time."""
    types = source.table.types
    names = [name for name, each in types.items() if spark_type(each) is not None and each == as_spark(each)][:2]
    if not names or not source.table.row_count:
        return
    batch = next((each for each in source.table.batches() if len(each)), None)
    if batch is None:
        return
    flow = source.table.rows()
    places = [list(types).index(name) for name in names]
    count = len(batch)
    partitions = jf.assign_partitions([batch.column(place) for place in places]).tolist()
    columns = {
        name: to_arrow([row[place] for row in flow[:count]], types[name])
        for name, place in zip(names, places, strict=True)
    }
    hashed = ", ".join(f"`{{}}{name}`" for name in names)
    sql = f"pmod(hash({hashed}), 271)"
    yield Question(
        number,
        f"{HASHED} of {[str(types[name]) for name in names]}",
        sql,
        columns,
        [True] * count,
        partitions,
        pa.int32(),
    )


def ask_spark(spark: Any, questions: Sequence[Question]) -> dict[int, str]:
    """How Spark's answers differ, by the number of the pipeline."""
    found: dict[int, str] = {}
    for start in range(0, len(questions), AT_ONCE):
        found |= ask_at_once(spark, questions[start : start + AT_ONCE])
    return found


def ask_at_once(spark: Any, questions: Sequence[Question]) -> dict[int, str]:
    """One query about several questions; one for each if Spark refuses it, to find which it is."""
    try:
        answer = answers(spark, questions)
    except Exception as error:
        if len(questions) == 1:
            message = str(error).strip().splitlines()[0][:300]
            return {questions[0].number: f"Spark has no answer to {questions[0].sql}: {message}"}
        middle = len(questions) // 2
        return ask_at_once(spark, questions[:middle]) | ask_at_once(spark, questions[middle:])
    found = {}
    for place, question in enumerate(questions):
        column = answer.column(place)
        values = to_exact(column)
        if not same_type(column.type, question.data_type):
            found[question.number] = f"Spark's type of {question.what} is {column.type} instead of {question.data_type}"
        for row, (asked, wanted) in enumerate(zip(question.asked, question.values, strict=True)):
            if asked and not is_exactly(wanted, values[row]):
                read = {
                    name: column[row].as_py() if not pa.types.is_timestamp(column.type) else column[row]
                    for name, column in question.columns.items()
                }
                found[question.number] = (
                    f"oracles disagree: {values[row]!r} in Spark, {wanted!r} here: {question.what} of {read}"
                )
    return found


def same_type(found: pa.DataType, expected: pa.DataType) -> bool:
    """Spark names its zone."""
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(expected):
        return (found.tz is None) == (expected.tz is None)
    return bool(found == expected)


def answers(spark: Any, questions: Sequence[Question]) -> pa.Table:
    """A column of answers for each question, in the order of its rows."""
    row_count = max(len(question.asked) for question in questions)
    columns: dict[str, pa.Array] = {"row": pa.array(range(row_count), pa.int32())}
    schema = ["row int"]
    asked = []
    for place, question in enumerate(questions):
        prefix = f"q{place}_"
        padding = row_count - len(question.asked)
        for name, column in question.columns.items():
            columns[prefix + name] = pa.concat_arrays([column, pa.nulls(padding, column.type)])
            schema.append(f"`{prefix}{name}` {spark_type(column.type)}")
        columns[prefix] = pa.array([*question.asked, *([False] * padding)])
        schema.append(f"`{prefix}` boolean")
        asked.append(f"if(`{prefix}`, {question.sql.replace('{}', prefix)}, null) as r{place}")
    frame = spark.createDataFrame(pa.table(columns), ", ".join(schema)).coalesce(1)
    return frame.selectExpr("row", *asked).toArrow().sort_by("row").drop(["row"])


def start_spark() -> Any:
    """A session of one thread: tables are tiny, and no code is generated for them."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("differential")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
