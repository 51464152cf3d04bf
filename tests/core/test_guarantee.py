"""Guarantees are kept per sink; that of the job is the weakest of the sinks that count."""

import pytest

from jetfast.core.dag import Dag, Vertex
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.processor import Processor

EXACTLY_ONCE, AT_LEAST_ONCE, NONE = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.NONE
TRANSACTIONAL, REPEATING, WHOLE = Delivery.TRANSACTIONAL, Delivery.REPEATING, Delivery.WHOLE


def dag_of(*parts: Delivery | Vertex | None, keeps_state: bool = False) -> Dag:
    """A source, sinks, and a step named "steps"."""
    dag = Dag("job")
    dag.add_vertex(Vertex("steps", Processor, keeps_state=keeps_state))
    for index, part in enumerate(parts):
        vertex = part if isinstance(part, Vertex) else Vertex(f"{index}", Processor, delivery=part)
        dag.add_vertex(vertex)
    return dag


def screen() -> Vertex:
    return Vertex("screen", Processor, delivery=REPEATING, counts=False)


@pytest.mark.parametrize(
    ("deliveries", "wanted", "found", "weakened_by"),
    [
        ([Delivery.REPLAYABLE, TRANSACTIONAL, Delivery.IDEMPOTENT], EXACTLY_ONCE, EXACTLY_ONCE, []),
        ([Delivery.ACKNOWLEDGING, REPEATING], EXACTLY_ONCE, AT_LEAST_ONCE, ["1"]),
        ([TRANSACTIONAL, REPEATING], EXACTLY_ONCE, AT_LEAST_ONCE, ["1"]),
        ([TRANSACTIONAL, WHOLE], EXACTLY_ONCE, NONE, ["1"]),
        ([Delivery.FLEETING, REPEATING], EXACTLY_ONCE, NONE, ["0", "1"]),
        ([Delivery.FLEETING, REPEATING], AT_LEAST_ONCE, NONE, ["0"]),
        ([Delivery.FLEETING], NONE, NONE, []),
        ([], EXACTLY_ONCE, EXACTLY_ONCE, []),
    ],
)
def test_the_guarantee_of_a_job_is_the_weakest_of_the_sinks_that_count(deliveries, wanted, found, weakened_by):
    kept = dag_of(*deliveries).guarantees(wanted)
    assert kept.job is found
    assert [reason.split("'")[1] for reason in kept.weakened_by] == weakened_by


def test_a_sink_that_repeats_rows_weakens_no_other_sink_and_no_state():
    kept = dag_of(Delivery.REPLAYABLE, TRANSACTIONAL, REPEATING).guarantees(EXACTLY_ONCE)
    assert kept.sinks == {"1": EXACTLY_ONCE, "2": AT_LEAST_ONCE}
    assert (kept.job, kept.state) == (AT_LEAST_ONCE, EXACTLY_ONCE)


@pytest.mark.parametrize(("keeps_state", "state"), [(True, EXACTLY_ONCE), (False, AT_LEAST_ONCE)])
def test_barriers_are_aligned_if_state_or_another_sink_needs_it(keeps_state, state):
    kept = dag_of(Delivery.REPLAYABLE, REPEATING, keeps_state=keeps_state).guarantees(EXACTLY_ONCE)
    assert (kept.job, kept.state) == (AT_LEAST_ONCE, state)


def test_what_is_only_looked_at_weakens_nothing_and_is_named():
    kept = dag_of(Delivery.REPLAYABLE, TRANSACTIONAL, screen()).guarantees(EXACTLY_ONCE)
    assert (kept.job, kept.state) == (EXACTLY_ONCE, EXACTLY_ONCE)
    assert kept.sinks == {"1": EXACTLY_ONCE, "screen": AT_LEAST_ONCE}
    assert kept.weakened_by == [
        "step 'screen' keeps AT_LEAST_ONCE at most: rows since the last snapshot are written again after a restart"
    ]


@pytest.mark.parametrize("keeps_state", [True, False])
def test_the_engine_runs_with_no_less_than_the_job_promises(keeps_state):
    for sinks in ([screen()], [screen(), REPEATING], [REPEATING, TRANSACTIONAL], [WHOLE], []):
        for wanted in Guarantee:
            kept = dag_of(Delivery.REPLAYABLE, *sinks, keeps_state=keeps_state).guarantees(wanted)
            assert kept.job.strength <= kept.state.strength <= wanted.strength
            assert all(of_sink.strength <= kept.state.strength for of_sink in kept.sinks.values())
