"""Random pipelines equal independent oracles; and a wrong answer of any kind is found, and becomes small."""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from jetfast.api.operations import Evaluator
from jetfast.core.batch import Batch
from jetfast.processors.hash_join import HashJoinProcessor
from tests.differential import aggregates, expressions, joins, keyed, steps, windows
from tests.differential.campaign import run_number
from tests.differential.pipelines import Program, draw_program
from tests.differential.running import Outcome, program_of, run_quietly, smallest
from tests.differential.spark_oracle import ask_spark, drops_float
from tests.differential.tables import draw_column, draw_table
from tests.differential.values import is_exactly, plain, to_exact
from tests.simulation.programs.graph import Node

SEED = 2026
PIPELINES = 1000
DRAWN = 400


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [run_number(number, SEED) for number in range(PIPELINES)]


def test_random_pipelines_equal_their_oracles(outcomes: list[Outcome]) -> None:
    bad = [outcome for outcome in outcomes if outcome.kind in ("failed", "differ")]
    hint = f"python -m tests.differential --seed {SEED} --shrink --only"
    assert "\n".join(f"{hint} {outcome.number}: {outcome.kind}: {outcome.why}" for outcome in bad) == ""
    assert Counter(outcome.kind for outcome in outcomes)["equal"] >= 0.6 * PIPELINES


@pytest.mark.spark
def test_spark_agrees_with_the_oracle_of_expressions_and_hashes(
    outcomes: list[Outcome], make_spark_session: Callable[..., Any]
) -> None:
    spark = make_spark_session("local[4]", spark_sql_session_timeZone="UTC")
    questions = [question for outcome in outcomes for question in outcome.questions]
    assert len(questions) > PIPELINES / 4
    assert ask_spark(spark, questions) == {}


def test_all_steps_and_types_occur() -> None:
    programs = [program_of(SEED, number) for number in range(DRAWN)]
    kinds = Counter(type(node.operator).__name__ for program in programs for node in program.nodes)
    assert {kind for kind, count in kinds.items() if count < 5} == set()
    assert {program.sink for program in programs} == {"collect", "parquet", "ipc", "csv", "json"}
    assert {program.workers for program in programs} == {1, 2, 3}
    drawn = [draw_column(Random(seed), "c").data_type for seed in range(3000)]
    assert len({data_type.id for data_type in drawn}) >= 38
    joined = {node.operator.kind for program in programs for node in program.nodes if hasattr(node.operator, "left_on")}
    assert joined == {"hash", "window", "interval", "asof"}


def test_the_same_number_is_the_same_pipeline() -> None:
    assert str(program_of(5, 17)) == str(program_of(5, 17)) != str(program_of(5, 18))


@pytest.mark.parametrize("seed", range(60))
def test_exact_values_are_those_of_the_columns_in_any_layout(seed: int) -> None:
    table = draw_table(Random(seed), prefix="c", timed=True)
    rows = table.rows()
    for place, column in enumerate(table.columns):
        batches = [batch.column(place) for batch in table.batches()]
        for batch in batches:
            batch.validate(full=True)
        values = [value for batch in batches for value in to_exact(batch)]
        assert all(map(is_exactly, [row[place] for row in rows], values))
        assert table.types[column.name] == plain(column.data_type)


# Each is a mistake in jetfast or in an oracle, of a kind that campaigns must find.


def lose_last_row(process: Callable[..., Any]) -> Callable[..., Any]:
    def losing(self: Any, ordinal: int, batch: Any) -> Any:
        return process(self, ordinal, batch.slice(0, max(1, len(batch) - 1)))

    return losing


def evaluate_wrongly(self: Evaluator, batch: Batch) -> pa.RecordBatch:
    made = EVALUATE(self, batch)
    columns = [pa.nulls(len(made), column.type) if pa.types.is_floating(column.type) else column for column in made]
    return pa.RecordBatch.from_arrays(columns, schema=made.schema)


EVALUATE = Evaluator.evaluate


def match_no_row(*keys: Any) -> list[joins.Pair]:
    return []


def count_one_more(self: aggregates.Aggregate, flow: Any, group: Any) -> Any:
    value = COMPUTE(self, flow, group)
    return value + 1 if self.kind == "count" else value


COMPUTE = aggregates.Aggregate.compute


@pytest.fixture(
    params=[
        (HashJoinProcessor, "process", lose_last_row(HashJoinProcessor.process)),
        (Evaluator, "evaluate", evaluate_wrongly),
        (joins, "matches", match_no_row),
        (aggregates.Aggregate, "compute", count_one_more),
    ],
    ids=["a join loses rows", "an expression loses floats", "the oracle of joins", "the oracle of aggregates"],
)
def mistake(request: pytest.FixtureRequest) -> Iterator[None]:
    target, name, wrong = request.param
    with patch.object(target, name, wrong):
        yield


@pytest.mark.usefixtures("mistake")
def test_a_mistake_is_found_and_becomes_small() -> None:
    found = next(
        (
            outcome
            for number in range(150)
            if (outcome := run_number(number, SEED)).kind in ("differ", "failed") and outcome.program is not None
        ),
        None,
    )
    assert found is not None
    assert found.program is not None
    small = smallest(found.program, found.kind)
    assert len(small.nodes) <= 4
    assert run_quietly(small).kind == found.kind


def test_oracles_of_rows_catch_each_other() -> None:
    """DuckDB is asked about what the oracle says, so that a mistake of the oracle alone is found as well."""
    from tests.differential.duckdb_oracle import second_opinion

    disagreements = Counter[str]()
    for seed in range(150):
        program = draw_program(Random(f"oracles:{seed}"))
        try:
            flows = program.flows()
        except Exception:
            continue
        assert second_opinion(program, flows) == ""
        with patch.object(joins, "matches", match_no_row), patch.object(windows, "grouped", lambda *_: {}):
            kinds = {type(node.operator).__name__ for node in program.nodes}
            if second_opinion(program, flows):
                disagreements.update(kinds)
    assert disagreements["Join"] > 3
    assert disagreements["WindowAggregate"] > 3


def test_an_expression_has_the_value_that_python_says() -> None:
    types = {"i": pa.int32(), "s": pa.string()}
    drawer = expressions.Drawer(Random(1), types)
    trees = [drawer.draw() for _ in range(300)]
    assert {tree.operator for tree in trees} > {"+", "&", "cast", "coalesce", "when", "isin", "is_null"}
    column = expressions.column("i", pa.int32())
    total = expressions.Tree("+", pa.int32(), (column, expressions.whole(1)))
    watch = expressions.Watch()
    assert expressions.evaluate(total, {"i": 41}, watch) == 42
    with pytest.raises(expressions.RowError):
        expressions.evaluate(total, {"i": 2**31 - 1}, watch)


def test_spark_is_not_asked_about_floats_that_its_optimizer_drops() -> None:
    as_float = expressions.Tree("cast", pa.float32(), (expressions.column("i", pa.int64()),))
    product = expressions.Tree("*", pa.float64(), (expressions.whole(2), as_float))
    assert drops_float(product)
    assert drops_float(expressions.Tree("neg", pa.float64(), (product,)))
    assert not drops_float(as_float)
    assert not drops_float(expressions.Tree("*", pa.float32(), (as_float, as_float)))


def test_a_row_that_must_fail_and_does_not_is_found() -> None:
    table = draw_table(Random(3), prefix="c", timed=False)
    source = Node(steps.Source(table, "batches", 1, 100, ""))
    fails = expressions.Tree("/", pa.float64(), (expressions.whole(1), expressions.whole(0)))
    columns = steps.Columns("select", ("k",), (("x", fails),), "fail")
    program = Program((source, Node(columns, (0,)), Node(keyed.Distinct(()), (1,))), 1, "collect")
    assert run_quietly(program).kind == "equal"
    with patch.object(Evaluator, "evaluate", lambda self, batch: pa.record_batch([[0.5] * len(batch)], self.names)):
        assert run_quietly(program).kind == "differ"
