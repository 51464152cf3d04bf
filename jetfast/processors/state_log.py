"""States of one batch aggregate by place: pieces in the order of arrival, combined when there are many."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch_aggregate import BoundAggregate
from jetfast.errors import ProtocolError
from jetfast.kernels.grouping import number_places

Places = npt.NDArray[np.int64]
PIECES_MAX = 16


class Piece:
    """States of different places: `places` ascend. Those that were taken out are marked in `alive`."""

    __slots__ = ("alive", "places", "states", "weight")

    def __init__(self, places: Places, states: pa.Array) -> None:
        self.places = places
        self.states = states
        self.alive: npt.NDArray[np.bool_] | None = None
        self.weight = states.nbytes + 8 * len(places)

    def find(self, places: Places) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return which of `places` are here, and at which rows."""
        if len(self.places) == len(places) and self.alive is None and np.array_equal(self.places, places):
            every = np.arange(len(places))
            return every, every
        rows = np.searchsorted(self.places, places)
        np.minimum(rows, len(self.places) - 1, out=rows)
        here = self.places[rows] == places
        if self.alive is not None:
            here &= self.alive[rows]
        found = np.flatnonzero(here)
        return found, rows[found]

    def remove(self, rows: npt.NDArray[np.intp]) -> None:
        if self.alive is None:
            self.alive = np.ones(len(self.places), np.bool_)
        self.alive[rows] = False

    def living(self) -> "Piece":
        """This piece without what was taken out of it."""
        if self.alive is None:
            return self
        rows = np.flatnonzero(self.alive)
        return Piece(self.places[rows], self.states.take(pa.array(rows)))


def merged(aggregate: BoundAggregate, pieces: Iterable[Piece]) -> Piece:
    """Return one piece for several, the oldest of which comes first."""
    living = [piece.living() for piece in pieces]
    if len(living) == 1:
        return living[0]
    groups, places, _ = number_places(np.concatenate([piece.places for piece in living]))
    states = pa.concat_arrays([piece.states for piece in living])
    return Piece(places, aggregate.combine(states, groups, len(places)))


class StateLog:
    """What has come for some places so far, as pieces. Adding costs O(log n) amortised (as in a binary counter)."""

    def __init__(self, aggregate: BoundAggregate, pieces: Iterable[Piece] = ()) -> None:
        self.aggregate = aggregate
        self.pieces = list(pieces)

    def add(self, piece: Piece) -> None:
        """Add states that are newer than those that are here."""
        pieces = self.pieces
        pieces.append(piece)
        if len(pieces) <= PIECES_MAX:
            return
        first, weight = len(pieces) - 1, piece.weight
        while first > 0 and pieces[first - 1].weight <= 2 * weight:
            first -= 1
            weight += pieces[first].weight
        if first == len(pieces) - 1:
            first -= 1
        pieces[first:] = [merged(self.aggregate, pieces[first:])]

    def compact(self) -> Piece:
        """Make one piece of all, and return it."""
        if len(self.pieces) != 1 or self.pieces[0].alive is not None:
            self.pieces = [merged(self.aggregate, self.pieces)]
        return self.pieces[0]

    def drop_dead(self) -> None:
        """Let go of pieces that were taken out for the greater part."""
        kept = []
        for piece in self.pieces:
            living = len(piece.places) if piece.alive is None else int(np.count_nonzero(piece.alive))
            if living > 0:
                kept.append(piece if 2 * living >= len(piece.places) else piece.living())
        self.pieces = kept


def gather(
    aggregate: BoundAggregate, logs: Sequence[StateLog], places: Places, *, remove: bool = False
) -> tuple[npt.NDArray[np.intp], pa.Array]:
    """Return the states of those `places` that are in the logs, the oldest of which comes first.

    Returns
    -------
    found : indices into `places`, ascending
    states : of each
    """
    groups: list[npt.NDArray[np.intp]] = []
    states: list[pa.Array] = []
    for log in logs:
        for piece in log.pieces:
            found, rows = piece.find(places)
            if len(found) == 0:
                continue
            whole = len(rows) == len(piece.places) and rows[0] == 0 and bool((np.diff(rows) == 1).all())
            groups.append(found)
            states.append(piece.states if whole else piece.states.take(pa.array(rows)))
            if remove:
                piece.remove(rows)
    if not groups:
        return np.empty(0, np.intp), pa.array([], aggregate.state_type)
    if len(groups) == 1:
        return groups[0], states[0]
    parts, found, _ = number_places(np.concatenate(groups))
    return found, aggregate.combine(pa.concat_arrays(states), parts, len(found))


def gather_all(
    aggregate: BoundAggregate, logs: Sequence[StateLog], places: Places, *, remove: bool = False
) -> pa.Array:
    """As `gather`, of places each of which must be there."""
    found, states = gather(aggregate, logs, places, remove=remove)
    if len(found) != len(places):
        raise ProtocolError(f"aggregate {aggregate.name!r} has lost the state of {len(places) - len(found)} keys")
    return states
