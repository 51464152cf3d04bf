"""Rows from memory: every kind of table, source partitions, scripts, resuming."""

import pickle
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.connectors.memory import CRASH, EMPTY, memory
from jetfast.errors import JobDefinitionError, JobFailedError, RestartableError
from tests.connectors.reading import check_resuming, context, read_all, read_partition

COLUMNS = {"id": [1, 2, 3], "name": ["a", None, "c"]}
EXPECTED = [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]


@pytest.mark.parametrize(
    "data",
    [
        COLUMNS,
        pa.table(COLUMNS),
        pa.record_batch(COLUMNS),
        pa.table(COLUMNS).to_reader(),
        pl.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS),
        [pa.record_batch(COLUMNS).slice(0, 1), pa.table(COLUMNS).slice(1)],
        pa.concat_tables([pa.table(COLUMNS).slice(0, 2), pa.table(COLUMNS).slice(2)]),
    ],
    ids=lambda data: type(data).__module__.split(".")[0] + "." + type(data).__name__,
)
def test_anything_that_is_a_table_can_be_read(data: Any) -> None:
    assert read_all(memory(data)) == EXPECTED


def test_partitions_come_from_a_mapping_a_list_or_a_number() -> None:
    table = pa.table(COLUMNS)
    assert memory(partitions={"x": table, "y": [table, table]}).partitions() == ["x", "y"]
    assert memory(partitions=[table, table]).partitions() == ["0", "1"]
    divided = memory(table, partitions=2)
    assert [len(read_partition(divided, name).rows) for name in divided.partitions()] == [1, 2]
    assert read_all(divided) == EXPECTED


def test_more_partitions_than_rows_leave_some_empty() -> None:
    assert read_all(memory(pa.table(COLUMNS), partitions=7)) == EXPECTED


def test_types_are_converted_to_the_schema() -> None:
    schema = pa.schema([("name", pa.large_string()), ("id", pa.int32())])
    source = memory(pa.table(COLUMNS), schema=schema)
    assert source.schema.equals(schema)
    assert read_all(source)[0] == {"name": "a", "id": 1}


def test_pieces_with_other_columns_are_refused() -> None:
    with pytest.raises(
        JobDefinitionError, match="piece 1 of partition 'b' has the columns id int32; .* before were id int64"
    ):
        memory(partitions={"a": {"id": [1]}, "b": [{"id": [1]}, pa.table({"id": pa.array([1], pa.int32())})]})


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(JobDefinitionError, match=r"memory: piece 0 \(int\) cannot be read as a table"):
        memory([5])
    with pytest.raises(JobDefinitionError, match="there are no rows that tell the columns"):
        memory([])
    with pytest.raises(JobDefinitionError, match="not both"):
        memory(COLUMNS, partitions=[COLUMNS])
    with pytest.raises(JobDefinitionError, match="partitions must be at least 1"):
        memory(COLUMNS, partitions=0)


def test_an_empty_table_still_tells_its_columns() -> None:
    source = memory(pa.table(COLUMNS).slice(0, 0))
    assert source.schema.names == ["id", "name"]
    assert read_all(source) == []


def test_an_empty_item_is_one_empty_answer() -> None:
    source = memory([EMPTY, COLUMNS, EMPTY])
    assert read_partition(source, "0").batch_rows == [0, 3, 0]


def test_an_unbounded_source_stays_silent_at_its_end() -> None:
    source = memory(COLUMNS, unbounded=True)
    reader = source.open_reader("0", None, context())
    answers = [reader.read() for _ in range(4)]
    assert [rows.batch.row_count for rows in answers if rows is not None] == [3, 0, 0, 0]
    assert not source.bounded


def test_a_crash_happens_once_in_all_copies_of_a_source() -> None:
    source = memory([COLUMNS, CRASH, COLUMNS])
    with pytest.raises(RestartableError):
        read_partition(pickle.loads(pickle.dumps(source)), "0")
    assert len(read_partition(source.with_columns(["id"]), "0").rows) == 6
    with pytest.raises(RestartableError):
        read_partition(memory([COLUMNS, CRASH]), "0")


def test_fewer_columns_are_read_in_the_order_asked() -> None:
    source = memory(pa.table(COLUMNS)).with_columns(["name"])
    assert read_all(source)[0] == {"name": "a"}
    with pytest.raises(KeyError):
        source.with_columns(["id"])


def test_row_numbers_count_in_the_partition() -> None:
    reader = memory([COLUMNS, COLUMNS], batch_rows=2).open_reader("0", None, context())
    assert [rows.first_row for rows in iter(reader.read, None) if rows is not None] == [0, 2, 3, 5]


@given(
    st.lists(st.one_of(st.integers(0, 7), st.just(EMPTY)), max_size=8).filter(lambda s: any(i is not EMPTY for i in s)),
    st.integers(1, 4),
)
@settings(max_examples=60)
def test_reading_resumes_at_any_position(script: list[Any], batch_rows: int) -> None:
    tables = [item if item is EMPTY else pa.table({"x": pa.array(range(item), pa.int64())}) for item in script]
    whole = check_resuming(memory(tables, batch_rows=batch_rows), "0")
    assert len(whole.rows) == sum(item for item in script if item is not EMPTY)
    assert all(count <= batch_rows for count in whole.batch_rows)


def test_a_position_is_refused_if_the_data_was_divided_into_another_number_of_partitions() -> None:
    position = read_partition(memory(COLUMNS, partitions=2), "0").positions[-1]
    assert read_partition(memory(COLUMNS, partitions=2).with_columns(["name"]), "0", position).rows == []
    with pytest.raises(JobFailedError, match="taken with partitions=2, and now there is partitions=3"):
        read_partition(memory(COLUMNS, partitions=3), "0", position)
    with pytest.raises(JobFailedError, match="taken with partitions=2, and now there is no number of partitions"):
        read_partition(memory(COLUMNS), "0", position)
    whole = read_partition(memory(COLUMNS), "0").positions[-1]
    assert read_partition(memory(COLUMNS, partitions=1), "0", whole).rows == []
    assert read_partition(memory(partitions={"0": COLUMNS, "1": COLUMNS}), "0", whole).rows == []
