"""Who owns which partition."""

import numpy as np
import pytest

from jetfast.core.routing import local_partition_owners, partition_owners


@pytest.mark.parametrize(("members", "local"), [(1, 1), (1, 5), (2, 1), (2, 3), (3, 2), (7, 4)])
def test_every_processor_owns_its_even_share(members, local):
    owners = partition_owners(271, members, local)
    shares = np.bincount(owners, minlength=members * local)
    assert len(owners) == 271
    assert len(shares) == members * local
    assert shares.max() - shares.min() <= 2


@pytest.mark.parametrize(("members", "local"), [(2, 1), (3, 2)])
def test_partition_p_belongs_to_member_p_mod_n(members, local):
    owners = partition_owners(271, members, local)
    assert (owners // local == np.arange(271) % members).all()


def test_one_member_owns_what_a_local_edge_gives_it():
    assert (partition_owners(271, 1, 4) == local_partition_owners(271, 4)).all()
