"""State of processors as entries of a snapshot store, and back."""

import pyarrow as pa
import pytest

from jetfast.core.processor import BROADCAST, BY_KEYS, StateBatch
from jetfast.engine.snapshot_store import SnapshotDamaged, StateEntry
from jetfast.engine.state_encoding import decode_state, encode_state


def batch(**columns):
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


def test_batches_of_a_kind_become_one_entry_and_come_back_in_their_order():
    wide = batch(text=["a", None, "c" * 5000], number=[1.5, 2.5, None])
    states = [
        StateBatch(5, "windows", batch(key=[1, 2])),
        StateBatch(BROADCAST, "ids", wide),
        StateBatch(0, "windows", batch(key=[3]).slice(0, 0)),
        StateBatch(7, "windows", batch(key=[4, 5, 6]).slice(1, 2)),
    ]
    entries = encode_state(3, states)
    assert [(entry.processor, entry.kind, entry.partitions) for entry in entries] == [
        (3, "windows", (5, 0, 7)),
        (3, "ids", (BROADCAST,)),
    ]
    decoded = [state for entry in entries for state in decode_state(entry)]
    assert decoded == [states[0], states[2], states[3], states[1]]


def test_dictionaries_and_nested_columns_survive():
    rows = pa.record_batch({"word": pa.array(["a", "b", "a"]).dictionary_encode(), "list": pa.array([[1], [], [2, 3]])})
    (entry,) = encode_state(0, [StateBatch(0, "state", rows), StateBatch(1, "state", rows)])
    assert [state.rows.to_pydict() for state in decode_state(entry)] == [rows.to_pydict()] * 2


def test_no_state_is_no_entry():
    assert encode_state(0, []) == []


def test_a_kind_of_two_schemas_is_an_error():
    with pytest.raises(ValueError, match="state 'windows' has batches of two schemas"):
        encode_state(0, [StateBatch(0, "windows", batch(key=[1])), StateBatch(1, "windows", batch(key=["a"]))])


def test_what_is_no_stream_is_reported_as_damaged():
    with pytest.raises(SnapshotDamaged, match="state 'windows' of processor 3 cannot be read"):
        list(decode_state(StateEntry(3, "windows", (0,), (), (b"no stream",))))


def test_a_stream_of_another_number_of_batches_than_partitions_is_reported_as_damaged():
    (entry,) = encode_state(0, [StateBatch(0, "windows", batch(key=[1]))])
    with pytest.raises(SnapshotDamaged, match="cannot be read"):
        list(decode_state(entry._replace(partitions=(0, 1))))


def test_large_buffers_are_stored_where_they_are():
    states = [StateBatch(BY_KEYS, "windows", batch(key=range(20_000), text=["a"] * 20_000), ("key", "text"))]
    (entry,) = encode_state(0, states)
    kept = [piece for piece in entry.pieces if len(piece) == 160_000]
    assert [pa.py_buffer(piece).address for piece in kept] == [states[0].rows["key"].buffers()[1].address]
    assert list(decode_state(entry)) == states


def test_a_kind_that_goes_by_two_sets_of_keys_is_an_error():
    with pytest.raises(ValueError, match="state 'windows' goes by two sets of keys"):
        encode_state(0, [StateBatch(BY_KEYS, "windows", batch(key=[1]), keys) for keys in (("key",), ())])
