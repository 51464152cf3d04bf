"""Rows that members have handed over: kept by vertex, once, in order."""

import pyarrow as pa

from jetfast.control.delivered_rows import DeliveredRows
from jetfast.control.messages import Delivered


def delivered(value: int, publication: str = "") -> Delivered:
    rows = pa.record_batch({"x": [value]})
    return Delivered(execution_id=1, member=0, vertex="v", rows=rows, publication=publication)


def test_delivered_rows_are_kept_by_vertex_in_order() -> None:
    rows = DeliveredRows()
    rows.add(delivered(1))
    rows.add(delivered(2))
    assert pa.Table.from_batches(rows.of("v")).to_pydict() == {"x": [1, 2]}
    assert rows.of("other") == []


def test_rows_that_come_again_under_the_id_of_their_publication_are_kept_once() -> None:
    rows = DeliveredRows()
    for publication, value in (("a", 1), ("b", 2), ("a", 1), ("", 3), ("", 3)):
        rows.add(delivered(value, publication))
    assert pa.Table.from_batches(rows.of("v")).to_pydict() == {"x": [1, 2, 3, 3]}
