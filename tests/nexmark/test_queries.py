"""NEXMark's queries give the rows that DuckDB gives for their SQL, and a difference is found."""

import pyarrow as pa
import pytest

from jetfast.clusters.local import LocalCluster
from jetfast.nexmark.answer import answer_with_jetfast
from jetfast.nexmark.check import find_difference
from jetfast.nexmark.queries import QUERIES
from jetfast.nexmark.query import Events
from tests.nexmark.comparison import check_answer


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_the_rows_of_its_sql(name: str) -> None:
    check_answer(name, LocalCluster(workers=2))


def test_a_query_that_wrote_no_file_gives_no_rows_and_its_columns() -> None:
    answer = answer_with_jetfast(QUERIES["q10"], Events(0), LocalCluster(workers=1))
    assert (answer.num_rows, answer.column_names[-2:]) == (0, ["day", "minute"])


def test_rows_that_differ_are_shown_in_whatever_order_they_came() -> None:
    rows = pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]})
    assert find_difference(rows, rows.take([2, 0, 1]).select(["b", "a"])) is None
    assert find_difference(rows, rows.slice(1)) == "3 rows, not 2"
    assert find_difference(rows, rows.rename_columns(["a", "c"])) == "columns ['a', 'b'], not ['a', 'c']"
    other = pa.table({"a": [1, 3, None], "b": ["x", "y", "z"]})
    assert find_difference(rows, other) == "row 1 in order is {'a': 2, 'b': 'y'}, not {'a': 3, 'b': 'y'}"
