"""What travels between processors."""

from jetfast.core.batch import BatchRun
from jetfast.core.items import ACTIVE, EmitRun, Watermark, one_by_one
from tests.engine.graphs import batch_of, values_of


def test_runs_of_batches_are_taken_apart_and_all_else_stays_in_its_place() -> None:
    one, two, three = batch_of(1), batch_of(2), batch_of(3)
    output = [ACTIVE, BatchRun.of([one, two]), EmitRun(1, BatchRun.of([three]), 2), Watermark(1), three]
    active, *rows, emitted, watermark, last = one_by_one(output)
    assert (active, watermark, last) == (ACTIVE, Watermark(1), three)
    assert [values_of(batch) for batch in rows] == [[1], [2]]
    assert (emitted.port, values_of(emitted.batch), emitted.owner) == (1, [3], 2)
