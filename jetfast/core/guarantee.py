"""What a job promises about each row after a failure, and what its connectors can keep of it."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from jetfast.types import SpelledEnum


class Guarantee(SpelledEnum):
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
        """The strongest guarantee that such a part keeps."""
        if self in (Delivery.FLEETING, Delivery.WHOLE):
            return Guarantee.NONE
        return Guarantee.AT_LEAST_ONCE if self.repeats else Guarantee.EXACTLY_ONCE

    @property
    def repeats(self) -> bool:
        """Does it weaken only what it shows itself?"""
        return self is Delivery.REPEATING

    @property
    def of_sink(self) -> bool:
        """Is it how a sink keeps its part? Otherwise it is a source's."""
        return self not in (Delivery.REPLAYABLE, Delivery.ACKNOWLEDGING, Delivery.FLEETING)


class Part(NamedTuple):
    """What a step has to do with the guarantees of its job."""

    step: str
    delivery: Delivery | None = None
    """None: the step is neither a source nor a sink."""
    counts: bool = True
    """Of a sink: does the guarantee of the job depend on it?"""
    keeps_state: bool = False
    """Of a step that is neither: would a barrier that is not aligned change what it computes?"""


class JobGuarantees(NamedTuple):
    """What a job keeps, as a whole and in each of its sinks (semantics, "Guarantees of a job")."""

    job: Guarantee
    """Weakest guarantee of the sinks that count."""
    state: Guarantee
    """What the engine runs with: whether it takes snapshots, and whether it aligns their barriers."""
    sinks: dict[str, Guarantee]
    """Guarantee of each sink, by name of step."""
    weakened_by: list[str]
    """One sentence for each part that cannot keep what was wanted, naming it."""


def job_guarantees(wanted: Guarantee, parts: Iterable[Part]) -> JobGuarantees:
    """Return what a job keeps of the guarantee that is wanted.

    A source that cannot be read again, and a sink that is written as a whole, leave nothing to restore: they weaken
    state and every sink. A sink that repeats rows weakens itself, and the job if it counts.
    """
    parts = list(parts)
    deliveries = [(part, part.delivery) for part in parts if part.delivery is not None]
    weakened_by = [
        f"step {part.step!r} keeps {delivery.strongest.name} at most: {delivery.value}"
        for part, delivery in deliveries
        if delivery.strongest.strength < wanted.strength
    ]
    sinks = [(part, delivery) for part, delivery in deliveries if delivery.of_sink]
    restored = (delivery.strongest for _, delivery in deliveries if not delivery.repeats)
    state = weakest(wanted, restored)
    kept = {part.step: weakest(state, [delivery.strongest]) for part, delivery in sinks}
    job = weakest(state, (kept[part.step] for part, _ in sinks if part.counts))
    if not any(part.keeps_state for part in parts):
        # Alignment changes nothing but what a sink shows that keeps more than the job does.
        state = max([job, *kept.values()], key=lambda guarantee: guarantee.strength)
    return JobGuarantees(job, state, kept, weakened_by)


def weakest(first: Guarantee, others: Iterable[Guarantee]) -> Guarantee:
    """Return the weakest of several guarantees."""
    return min([first, *others], key=lambda guarantee: guarantee.strength)
