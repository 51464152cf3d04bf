"""Which id a sink may begin next: free ones counted up, or those of a small pool in turn."""

from collections.abc import Collection

from jetfast.core.transaction import TransactionId, TransactionOwner

POOL_SIZE_MAX = 3


class FreeIds:
    """Each id is used once: they bear the execution."""

    def __init__(self, owner: TransactionOwner, execution_id: int, processor: int) -> None:
        self.owner = owner
        self.execution_id = execution_id
        self.processor = processor
        self.sequence = 0

    def next_id(self, undecided: Collection[str], decided: Collection[str]) -> str | None:
        return self.owner.text(TransactionId(self.execution_id, self.processor, self.sequence))

    def take(self, transaction: str) -> None:
        self.sequence += 1


class PooledIds:
    """The ids of one processor, used in turn.

    Invariants, of which `undecided` are the ids that the next snapshot will contain so far, and `decided` those in the
    last decided one:

    - neither is begun again: what the last decided snapshot contains may be committed again after a restart;
    - a snapshot never contains all ids: after its decision, and after a restart from it, one is left to begin.
    """

    def __init__(self, owner: TransactionOwner, processor: int, pool_size: int) -> None:
        self.ids = [owner.text(TransactionId(None, processor, place)) for place in range(pool_size)]
        self.turn = 0

    def next_id(self, undecided: Collection[str], decided: Collection[str]) -> str | None:
        """The id to begin now; None: there is none until a newer snapshot is decided."""
        if len(undecided) + 1 >= len(self.ids):
            return None
        size = len(self.ids)
        for step in range(size):
            transaction = self.ids[(self.turn + step) % size]
            if transaction not in undecided and transaction not in decided:
                return transaction
        return None

    def take(self, transaction: str) -> None:
        """It has been begun."""
        self.turn = self.ids.index(transaction) + 1


def ids_to_probe(owner: TransactionOwner, processors: range) -> list[str]:
    """Return all ids that pools of these processors can ever have used."""
    return [
        owner.text(TransactionId(None, processor, place)) for processor in processors for place in range(POOL_SIZE_MAX)
    ]
