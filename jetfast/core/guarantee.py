"""What a job promises about each row after a failure, and what its connectors can keep of it."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Guarantee(Enum):
    """NONE: a restart starts over. AT_LEAST_ONCE: no row lost, some twice. EXACTLY_ONCE: each row counts once."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"

    @property
    def strength(self) -> int:
        """0 for NONE, 2 for EXACTLY_ONCE."""
        return list(Guarantee).index(self)


class Delivery(Enum):
    """How a source or a sink keeps its part of a guarantee: `source_delivery` and `sink_delivery` of connectors."""

    REPLAYABLE = "it is read again from the position in the snapshot"
    ACKNOWLEDGING = "it is acknowledged in phase 2, and what comes again is known by its id"
    FLEETING = "what it has given cannot be read again"
    TRANSACTIONAL = "its rows become visible with the snapshot that they belong to"
    PUBLISHING = "its rows are given away when their snapshot is decided, and known if they come again"
    IDEMPOTENT = "a row that is written again replaces itself, by its key"
    WHOLE = "it is written as a whole, from the beginning of the job"
    REPEATING = "rows since the last snapshot are written again after a restart"

    @property
    def strongest(self) -> Guarantee:
        """The strongest guarantee of a job that has such a part."""
        if self in (Delivery.FLEETING, Delivery.WHOLE):
            return Guarantee.NONE
        return Guarantee.AT_LEAST_ONCE if self is Delivery.REPEATING else Guarantee.EXACTLY_ONCE


class WeakestGuarantee(NamedTuple):
    """What a job can keep."""

    guarantee: Guarantee
    weakened_by: list[str]
    """One sentence for each part that cannot keep what was wanted, naming it."""


def weakest_guarantee(wanted: Guarantee, parts: Iterable[tuple[str, Delivery]]) -> WeakestGuarantee:
    """Return the guarantee of a job: the weakest of what is wanted and of its sources and sinks (by name of step)."""
    found = wanted
    weakened_by = []
    for step, delivery in parts:
        strongest = delivery.strongest
        if strongest.strength < wanted.strength:
            weakened_by.append(f"step {step!r} keeps {strongest.name} at most: {delivery.value}")
            found = min(found, strongest, key=lambda guarantee: guarantee.strength)
    return WeakestGuarantee(found, weakened_by)
