"""What travels between processors."""

from jetfast.core.items import ACTIVE, Watermark, one_by_one
from tests.engine.graphs import batch_of


def test_runs_of_batches_are_taken_apart_and_all_else_stays_in_its_place() -> None:
    one, two, three = batch_of(1), batch_of(2), batch_of(3)
    output = [ACTIVE, [one, two], Watermark(1), three]
    assert list(one_by_one(output)) == [ACTIVE, one, two, Watermark(1), three]
