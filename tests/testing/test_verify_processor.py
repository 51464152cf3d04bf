"""The test kit finds what is wrong in a processor: one fault of each kind."""

import numpy as np
import pyarrow as pa
import pytest

from jetfast.core.batch import Batch
from jetfast.core.items import IDLE, Emit, Watermark
from jetfast.core.processor import BROADCAST, Processor, SourceProcessor, StateBatch
from jetfast.testing import OnPort, verify_processor


def rows(*values):
    return pa.record_batch({"value": pa.array(values, pa.int64())})


class RunningSum(Processor):
    """Gives the sum so far with each row; subclasses get something wrong."""

    def __init__(self):
        self.total = 0

    def process(self, ordinal, batch):
        for value in batch.to_arrow().column("value").to_pylist():
            self.total += value
            yield Batch.from_arrow(rows(self.total))

    def save_snapshot(self):
        yield StateBatch(0, "total", pa.record_batch({"total": [self.total]}))

    def restore_snapshot(self, state):
        self.total = state.rows.column("total")[0].as_py()


INPUTS = [rows(1, 2), Watermark(3), rows(4), IDLE]
EXPECTED = [{"value": 1}, {"value": 3}, Watermark(3), {"value": 7}, IDLE]


def test_a_sound_processor_passes_and_its_output_is_given_back():
    assert verify_processor(RunningSum, INPUTS, EXPECTED) == EXPECTED
    assert verify_processor(RunningSum, INPUTS) == EXPECTED
    verify_processor(RunningSum, [rows(1)], pa.table({"value": [1]}))


def test_another_output_than_expected_is_shown_with_its_difference():
    message = r"(?s)mode 'as given' differs from expected.*-\{'value': 8\}.*\+\{'value': 7\}"
    with pytest.raises(AssertionError, match=message):
        verify_processor(RunningSum, INPUTS, [*EXPECTED[:3], {"value": 8}, IDLE])


def test_state_that_is_not_saved_is_found():
    class Forgetful(RunningSum):
        def save_snapshot(self):
            return ()

    with pytest.raises(AssertionError, match="mode 'restored at every pause' differs"):
        verify_processor(Forgetful, INPUTS, EXPECTED)


def test_saving_that_changes_the_state_is_found():
    class Draining(RunningSum):
        def save_snapshot(self):
            yield StateBatch(0, "total", pa.record_batch({"total": [self.total]}))
            self.total = 0

    with pytest.raises(AssertionError, match="saving twice in succession gave two different states"):
        verify_processor(Draining, INPUTS, EXPECTED)


def test_saved_state_that_goes_on_changing_is_found():
    class Sharing(RunningSum):
        def open(self, context):
            super().open(context)
            self.shared = np.zeros(1, np.int64)

        def process(self, ordinal, batch):
            yield from super().process(ordinal, batch)
            self.shared[0] = self.total

        def restore_snapshot(self, state):
            super().restore_snapshot(state)
            self.shared[0] = self.total

        def save_snapshot(self):
            yield StateBatch(0, "total", pa.RecordBatch.from_arrays([pa.array(self.shared)], ["total"]))

    with pytest.raises(AssertionError, match="state 'total' of partition 0 changed after it was saved"):
        verify_processor(Sharing, INPUTS, EXPECTED)


def test_state_of_one_kind_in_two_schemas_is_found():
    class Changing(RunningSum):
        def save_snapshot(self):
            yield from super().save_snapshot()
            yield StateBatch(0, "total", pa.record_batch({"total": ["text"]}))

    with pytest.raises(AssertionError, match="state 'total' has two schemas"):
        verify_processor(Changing, INPUTS, EXPECTED)


def test_a_processor_that_cannot_save_after_its_end_is_found():
    class Released(RunningSum):
        def complete(self):
            del self.total
            return ()

    with pytest.raises(AssertionError, match="no attribute 'total'"):
        verify_processor(Released, INPUTS, EXPECTED)


def test_a_result_that_depends_on_where_batches_are_cut_is_found():
    class PerBatch(Processor):
        def process(self, ordinal, batch):
            return (Batch.from_arrow(rows(batch.row_count)),)

    with pytest.raises(AssertionError, match="mode 'one row at a time' differs"):
        verify_processor(PerBatch, INPUTS)


def test_an_output_that_changes_after_it_was_given_is_found():
    class Reusing(RunningSum):
        def __init__(self):
            super().__init__()
            self.memory = bytearray(8)

        def process(self, ordinal, batch):
            for value in batch.to_arrow().column("value").to_pylist():
                self.total += value
                self.memory[:] = self.total.to_bytes(8, "little")
                array = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(self.memory)])
                yield Batch.from_arrow(pa.record_batch({"value": array}))

    with pytest.raises(AssertionError, match="mode 'full outbox' differs"):
        verify_processor(Reusing, INPUTS, EXPECTED)


class CountingByKey(Processor):
    """Gives how often each value has been seen; state by partition of the value."""

    def __init__(self):
        self.counts = {}

    def open(self, context):
        self.context = context

    def process(self, ordinal, batch):
        for value in batch.to_arrow().column("value").to_pylist():
            self.counts[value] = self.counts.get(value, 0) + 1
            yield Batch.from_arrow(rows(value * 100 + self.counts[value]))

    def partition(self, value):
        from jetfast.kernels.partitioning import assign_partitions

        return int(assign_partitions(pa.array([value], pa.int64()))[0])

    def save_snapshot(self):
        for value, count in self.counts.items():
            yield StateBatch(self.partition(value), "counts", pa.record_batch({"value": [value], "count": [count]}))

    def restore_snapshot(self, state):
        ((value, count),) = zip(*state.rows.to_pydict().values(), strict=True)
        self.counts[value] = count


KEYED = [rows(1, 2, 3, 4), rows(1, 2, 3, 4), rows(4, 3, 2, 1)]


def test_state_by_partition_is_moved_between_one_processor_and_two():
    verify_processor(CountingByKey, KEYED, keys=["value"])


def test_state_in_the_wrong_partition_is_found():
    class Misplaced(CountingByKey):
        def partition(self, value):
            return value

    with pytest.raises(AssertionError, match="mode 'restored onto two processors and back, at every pause' differs"):
        verify_processor(Misplaced, KEYED, keys=["value"])


def test_a_partition_that_does_not_exist_is_found():
    class Outside(RunningSum):
        def save_snapshot(self):
            yield StateBatch(271, "total", pa.record_batch({"total": [self.total]}))

    with pytest.raises(AssertionError, match="belongs to partition 271; there are 0 to 270"):
        verify_processor(Outside, INPUTS)


def test_a_row_that_leaves_behind_the_watermark_is_found():
    with pytest.raises(AssertionError, match=r"this row leaves behind watermark 3: \{'value': 1\}"):
        verify_processor(
            lambda: CountingByKeyLess(),
            [Watermark(3), rows(1)],
            event_time_us=lambda row: row["value"],
        )


def test_a_row_that_was_late_when_it_came_in_may_leave_late():
    inputs = [rows(4), Watermark(3), rows(1, 5)]
    verify_processor(lambda: CountingByKeyLess(), inputs, event_time_us=time_of, input_time_us=time_of)


def test_a_step_that_makes_a_row_late_is_found():
    class Keeping(Processor):
        """Gives each batch when the next one comes, and does not hold its watermark back by as much."""

        def __init__(self):
            self.kept = []

        def process(self, ordinal, batch):
            kept, self.kept = self.kept, [batch]
            return kept

    inputs = [rows(4), Watermark(5), rows(6)]
    with pytest.raises(AssertionError, match=r"this row leaves behind watermark 5: \{'value': 4\}"):
        verify_processor(Keeping, inputs, event_time_us=time_of, input_time_us=time_of)


def time_of(row):
    return row["value"]


class CountingByKeyLess(Processor):
    def process(self, ordinal, batch):
        return (batch,)


def test_rows_of_other_ports_are_shown_with_their_port():
    class Split(Processor):
        def process(self, ordinal, batch):
            return (Emit(1, batch),)

    verify_processor(Split, [rows(1)], [OnPort(1, {"value": 1})])


def test_an_error_tells_the_inputs_that_led_to_it():
    class Failing(Processor):
        def process(self, ordinal, batch):
            raise KeyError("airport")

    with pytest.raises(AssertionError, match=r"(?s)mode 'as given': KeyError: 'airport'.*1 rows \[\{'value': 5\}\]"):
        verify_processor(Failing, [rows(5)])


class Counting(SourceProcessor):
    """Gives 0, 1, 2; its position is state."""

    def __init__(self):
        self.next = 0

    def poll(self):
        if self.next == 3:
            return None
        self.next += 1
        return (Batch.from_arrow(rows(self.next - 1)), Watermark(self.next - 1))

    def save_snapshot(self):
        yield StateBatch(BROADCAST, "position", pa.record_batch({"next": [self.next]}))

    def restore_snapshot(self, state):
        self.next = state.rows.column("next")[0].as_py()


def test_a_source_is_polled_to_its_end():
    verify_processor(
        Counting, expected=[{"value": 0}, Watermark(0), {"value": 1}, Watermark(1), {"value": 2}, Watermark(2)]
    )


def test_a_source_that_forgets_its_position_is_found():
    class Forgetful(Counting):
        def restore_snapshot(self, state):
            self.next = state.rows.column("next")[0].as_py() + 1 if state.rows.column("next")[0].as_py() < 3 else 3

    with pytest.raises(AssertionError, match="mode 'restored at every pause' differs"):
        verify_processor(Forgetful)


def test_a_processor_that_cannot_be_closed_unopened_is_found():
    class Late(Processor):
        def open(self, context):
            self.file = context

        def process(self, ordinal, batch):
            return (batch,)

        def close(self, error):
            del self.file

    with pytest.raises(AttributeError):
        verify_processor(Late, [rows(1)])
