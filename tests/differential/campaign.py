"""Many pipelines: runs one of them, and asks Spark about all."""

import traceback
from collections.abc import Sequence

from tests.differential.running import Outcome, program_of, run_quietly
from tests.differential.spark_oracle import ask_spark, start_spark


def run_number(number: int, seed: int) -> Outcome:
    """Draw and run a pipeline of a campaign."""
    try:
        program = program_of(seed, number)
    except Exception:
        return Outcome(number, "failed", f"while it is drawn: {traceback.format_exc()}")
    return run_quietly(program, number)


def second_opinions(outcomes: Sequence[Outcome]) -> int:
    """Ask Spark about what is equal so far; return the number of questions."""
    questions = [question for outcome in outcomes for question in outcome.questions]
    if questions:
        spark = start_spark()
        answers = ask_spark(spark, questions)
        spark.stop()
        for outcome in outcomes:
            if outcome.number in answers:
                outcome.kind, outcome.why = "differ", answers[outcome.number]
    return len(questions)
