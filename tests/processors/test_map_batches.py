"""A function of the user over record batches: what it may return, and how its failures are told."""

from itertools import chain

import pyarrow as pa
import pytest

from jetfast.core.batch import Batch
from jetfast.errors import JobFailedError
from jetfast.processors.map_batches import MapBatches
from jetfast.testing import verify_processor

SCHEMA = pa.schema([("name", pa.string()), ("length", pa.int64())])


def rows(*names):
    return pa.record_batch({"name": pa.array(names, pa.string())})


def measured(batch):
    lengths = [len(name) for name in batch.column("name").to_pylist()]
    return pa.record_batch([batch.column("name"), pa.array(lengths, pa.int64())], schema=SCHEMA)


EXPECTED = [{"name": "a", "length": 1}, {"name": "bb", "length": 2}, {"name": "ccc", "length": 3}]


@pytest.mark.parametrize(
    "function",
    [
        measured,
        lambda batch: pa.Table.from_batches([measured(batch)]),
        lambda batch: [measured(batch.slice(row, 1)) for row in range(batch.num_rows)],
        lambda batch: (measured(batch.slice(row, 1)) for row in range(batch.num_rows)),
        lambda batch: measured(batch).select(["length", "name"]),
        lambda batch: [measured(batch), measured(batch).slice(0, 0)],
    ],
)
def test_batches_tables_and_iterables_of_them_are_taken(function):
    verify_processor(lambda: MapBatches(function, SCHEMA), [rows("a", "bb"), rows("ccc")], EXPECTED)


def test_none_is_no_rows():
    verify_processor(lambda: MapBatches(lambda batch: None, SCHEMA), [rows("a")], [])


def failure(function, *batches):
    processor = MapBatches(function, SCHEMA)
    with pytest.raises(JobFailedError) as raised:
        list(chain.from_iterable(processor.process(0, Batch.from_arrow(batch)) for batch in batches))
    return raised.value


def test_an_error_names_the_function_the_rows_and_the_first_of_them():
    def enrich(batch):
        if batch.num_rows == 2:
            raise KeyError("no such name")
        return measured(batch)

    error = failure(enrich, rows("a"), rows("b", "c"))
    assert "enrich failed on rows 1 to 2, the first of them {'name': 'b'}: KeyError: 'no such name'" in str(error)
    assert isinstance(error.__cause__, KeyError)


def test_an_error_in_the_middle_of_an_iterable_is_told_the_same_way():
    def enrich(batch):
        yield measured(batch)
        raise OSError("gone")

    assert "enrich failed on rows 0 to 0" in str(failure(enrich, rows("a")))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (7, "it returned int; a pyarrow.RecordBatch is needed"),
        ([7], "it returned int; a pyarrow.RecordBatch is needed"),
        (rows("a"), "it returned the columns name; declared are name, length"),
        (
            pa.record_batch({"name": ["a"], "length": pa.array([1], pa.int32())}),
            "it returned column 'length' as int32; declared is int64",
        ),
    ],
)
def test_a_result_that_is_not_what_was_declared_is_named(result, message):
    assert message in str(failure(lambda batch: result, rows("a")))
