"""Ids of transactions: short, canonical, and nobody else's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.transaction import (
    ID_BYTES_MAX,
    TransactionId,
    TransactionOwner,
    TransactionRules,
    prepared_outlives_connection,
)
from jetfast.testing import Faults, TransactionalMemory
from jetfast.testing.transactional_memory import TransactionalMemoryWriter

TEXT = st.text(max_size=80)
IDS = st.builds(
    TransactionId, st.none() | st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
)


@settings(max_examples=50, deadline=None)
@given(TEXT, st.text(alphabet="0123456789abcdef", max_size=32), TEXT, IDS)
def test_the_text_of_an_id_is_short_plain_and_read_back(job, job_id, vertex, transaction):
    owner = TransactionOwner(job, job_id, vertex)
    text = owner.text(transaction)
    assert text.isascii()
    assert len(text) <= ID_BYTES_MAX
    assert not set(text) & set("/\\ '\"%:*?")
    assert owner.parse(text) == transaction


@settings(max_examples=50, deadline=None)
@given(st.tuples(TEXT, TEXT, TEXT), st.tuples(TEXT, TEXT, TEXT), IDS)
def test_an_id_of_another_job_or_vertex_is_not_ours(ours, theirs, transaction):
    text = TransactionOwner(*theirs).text(transaction)
    assert (TransactionOwner(*ours).parse(text) is None) == (ours != theirs)


def test_an_id_looks_like_this():
    owner = TransactionOwner("delays", "a1b2", "files(out)")
    assert owner.text(TransactionId(17, 3, 5)) == "jetfast.delays.a1b2.files=28out=29.17.3.5"
    assert owner.text(TransactionId(None, 3, 1)) == "jetfast.delays.a1b2.files=28out=29.pool.3.1"


@pytest.mark.parametrize("rest", ["", "1.2", "1.2.x", "1.2.3.4", "01.2.3", "1.2.-3", "1.2. 3", "pools.1.2"])
def test_text_that_is_not_canonical_is_no_id(rest):
    owner = TransactionOwner("delays", "a1b2", "sink")
    assert owner.parse(owner.prefix + rest) is None


def test_a_pool_has_two_ids_or_three():
    with pytest.raises(ValueError, match="pool_size must be 2, 3 or None, got 1"):
        TransactionRules(pool_size=1)


class AbortedByDisconnect(TransactionalMemoryWriter):
    def close(self) -> None:
        self.system.transactions.clear()


def test_a_system_is_asked_whether_what_is_prepared_outlives_its_connection():
    outside = TransactionalMemory.named(faults=Faults(rates={"slow": 0.5}))
    text = TransactionOwner("job", "", "probe").text(TransactionId(0, 0, 0))
    assert prepared_outlives_connection(lambda: TransactionalMemoryWriter(outside, 0), text)
    assert (outside.in_doubt(), outside.outcomes) == ([], {})
    assert not prepared_outlives_connection(lambda: AbortedByDisconnect(outside, 0), text)
