"""The guarantee of a job is the weakest of its parts, and says who weakens it."""

import pytest

from jetfast.core.dag import Dag, Vertex
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.processor import Processor

EXACTLY_ONCE, AT_LEAST_ONCE, NONE = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.NONE


@pytest.mark.parametrize(
    ("deliveries", "wanted", "found", "weakened_by"),
    [
        ([Delivery.REPLAYABLE, Delivery.TRANSACTIONAL, Delivery.IDEMPOTENT], EXACTLY_ONCE, EXACTLY_ONCE, []),
        ([Delivery.ACKNOWLEDGING, Delivery.REPEATING], EXACTLY_ONCE, AT_LEAST_ONCE, ["1"]),
        ([Delivery.FLEETING, Delivery.REPEATING], EXACTLY_ONCE, NONE, ["0", "1"]),
        ([Delivery.FLEETING, Delivery.REPEATING], AT_LEAST_ONCE, NONE, ["0"]),
        ([Delivery.FLEETING], NONE, NONE, []),
        ([None], EXACTLY_ONCE, EXACTLY_ONCE, []),
    ],
)
def test_the_guarantee_of_a_job_is_the_weakest_of_its_parts(deliveries, wanted, found, weakened_by):
    dag = Dag("job")
    for index, delivery in enumerate(deliveries):
        dag.add_vertex(Vertex(f"{index}", Processor, delivery=delivery))
    guarantee, reasons = dag.weakest_guarantee(wanted)
    assert guarantee is found
    assert [reason.split("'")[1] for reason in reasons] == weakened_by


def test_who_weakens_the_guarantee_is_named_with_the_reason():
    dag = Dag("job")
    dag.add_vertex(Vertex("screen", Processor, delivery=Delivery.REPEATING))
    assert dag.weakest_guarantee(EXACTLY_ONCE).weakened_by == [
        "step 'screen' keeps AT_LEAST_ONCE at most: rows since the last snapshot are written again after a restart"
    ]
