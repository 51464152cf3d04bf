"""Rows that members have handed over: kept by vertex, once, in order."""

import pyarrow as pa
import pytest

from jetfast.control.delivered_rows import DeliveredRows
from jetfast.control.messages import Delivered
from jetfast.errors import ProtocolError


def delivered(value: int, publication: str = "") -> Delivered:
    rows = pa.record_batch({"x": [value]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data = sink.getvalue().to_pybytes()
    return Delivered(execution_id=1, member=0, vertex="v", rows=data, publication=publication)


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


def test_bytes_that_are_no_rows_are_an_error_of_the_member_that_sent_them() -> None:
    rows = DeliveredRows()
    with pytest.raises(ProtocolError, match="member 4 delivered 3 bytes that are no rows"):
        rows.add(Delivered(execution_id=1, member=4, vertex="v", rows=b"abc"))
    assert rows.of("v") == []
