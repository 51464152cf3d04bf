"""Bounds of lateness by partition: what processors saved, for one that is restored with as many partitions or not."""

import pytest

from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobDefinitionError
from jetfast.processors.partition_bounds import PartitionBounds, RestoredBounds, save_bounds


def restored(saved_count, *saved, partition_count):
    bounds = RestoredBounds(ProcessorContext("sums", partition_count=partition_count))
    for of_processor in saved:
        for state in save_bounds(saved_count, of_processor):
            bounds.add(state)
    return bounds.by_partition()


def test_with_as_many_partitions_each_has_the_bound_that_it_had():
    assert restored(4, {0: 10, 2: 20}, {1: 5}, partition_count=4) == {0: 10, 1: 5, 2: 20}
    assert restored(4, {}, partition_count=4) == restored(4, {}, partition_count=9) == {}


def test_a_bound_that_all_partitions_had_is_that_of_others_too():
    assert restored(3, {0: 7, 2: 7}, {1: 7}, partition_count=5) == dict.fromkeys(range(5), 7)


@pytest.mark.parametrize("saved", [[{0: 7, 2: 7}, {1: 8}], [{0: 7, 2: 7}, {}]], ids=["another", "none"])
def test_other_partitions_are_refused_where_bounds_differ_and_it_is_said_what_to_do(saved):
    with pytest.raises(JobDefinitionError, match=r"step 'sums' .* 5 key partitions: its snapshot has 3, .*_count=3"):
        restored(3, *saved, partition_count=5)


def test_only_bounds_of_owned_partitions_that_are_ahead_are_kept():
    bounds = PartitionBounds(ProcessorContext("sums", partition_count=4, partitions=(0, 1)))
    for state in save_bounds(4, {0: 10, 1: 20, 2: 99}):
        bounds.restore(state)
    bounds.finish_restore()
    bounds.advance(15)
    assert [state.rows.to_pylist() for state in bounds.save()] == [
        [{"partition_count": 4, "partition": 0, "bound": 15}, {"partition_count": 4, "partition": 1, "bound": 20}]
    ]
    bounds.advance(20)
    assert bounds.restored == {}
