"""States of one batch aggregate by frame, and those of the window that slides over the frames.

A window is made of its frames' states in one of two ways, so that a slide costs O(1) combinations for each key,
amortised: by deducting the frame that leaves, if the aggregate can; else in two stacks (Tangwongsan, Hirzel, Schneider
2017): frames up to `front_end` are the front, where each frame knows what it and all newer front frames amount to;
those after it are the back, which is one log.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch_aggregate import BoundAggregate
from jetfast.core.windows import Window
from jetfast.kernels.grouping import number_places
from jetfast.processors.state_log import Piece, Places, StateLog, gather_all, merged
from jetfast.types import MAX_TIME, MIN_TIME

Frames = Mapping[int, StateLog]


class TwoStacks:
    """The frames that the window holds; they enter and leave in the order of time."""

    def __init__(self, aggregate: BoundAggregate) -> None:
        self.aggregate = aggregate
        self.front: dict[int, StateLog] = {}
        self.front_ends: list[int] = []
        self.back_ends: list[int] = []
        self.back = StateLog(aggregate)

    def enter(self, end: int, frame: StateLog) -> None:
        """The frame that ends at `end`, later than all that are here, becomes part of the window."""
        self.back_ends.append(end)
        self.back.add(frame.compact())

    def add(self, end: int, piece: Piece) -> None:
        """More states for a frame that the window holds, or now holds."""
        if not self.front_ends or end > self.front_ends[-1]:
            if end not in self.back_ends:
                insort(self.back_ends, end)
            self.back.add(piece)
            return
        position = bisect_left(self.front_ends, end)
        if self.front_ends[position] != end:
            newer = self.front[self.front_ends[position]]
            self.front[end] = StateLog(self.aggregate, newer.pieces)
            self.front_ends.insert(position, end)
        for older in self.front_ends[: position + 1]:
            self.front[older].add(piece)

    def leave(self, end: int, frames: Frames) -> None:
        """The frame `end`, the oldest one, leaves; `frames` are all."""
        if self.front_ends:
            self.front_ends.pop(0)
            del self.front[end]
            return
        suffix: list[Piece] = []  # the back becomes the front
        self.front_ends, self.back_ends, self.back = self.back_ends[1:], [], StateLog(self.aggregate)
        for newer in reversed(self.front_ends):
            suffix = [merged(self.aggregate, [*frames[newer].pieces, *suffix])]
            self.front[newer] = StateLog(self.aggregate, suffix)

    def states(self, places: Places) -> pa.Array:
        """States of the whole window."""
        front = [self.front[self.front_ends[0]]] if self.front_ends else []
        return gather_all(self.aggregate, [*front, self.back], places)


class Running:
    """One state for each place of the window, from which frames that leave are deducted."""

    def __init__(self, aggregate: BoundAggregate) -> None:
        self.aggregate = aggregate
        self.places: Places = np.empty(0, np.int64)
        self.last_frames: npt.NDArray[np.int64] = np.empty(0, np.int64)
        """The newest frame that each place has: when it leaves, nothing is left of the place."""
        self.current = pa.array([], aggregate.state_type)

    def enter(self, end: int, frame: StateLog) -> None:
        self.add(end, frame.compact())

    def add(self, end: int, piece: Piece) -> None:
        groups, places, _ = number_places(np.concatenate([self.places, piece.places]))
        last_frames = np.full(len(places), MIN_TIME)
        last_frames[groups[: len(self.places)]] = self.last_frames
        added = groups[len(self.places) :]
        last_frames[added] = np.maximum(last_frames[added], end)
        if len(self.places) == 0:
            self.current = piece.states
        else:
            self.current = self.aggregate.combine(pa.concat_arrays([self.current, piece.states]), groups, len(places))
        self.places, self.last_frames = places, last_frames

    def leave(self, end: int, frames: Frames) -> None:
        leaving = frames[end].compact()
        kept = np.flatnonzero(self.last_frames > end)
        places = self.places[kept]
        found, rows = leaving.find(places)
        current = self.current.take(pa.array(kept))
        if len(found) > 0:
            less = self.aggregate.deduct(current.take(pa.array(found)), leaving.states.take(pa.array(rows)))
            source = np.arange(len(kept))
            source[found] = len(kept) + np.arange(len(found))
            current = pa.concat_arrays([current, less]).take(pa.array(source))
        self.places, self.last_frames, self.current = places, self.last_frames[kept], current

    def states(self, places: Places) -> pa.Array:
        return gather_all(self.aggregate, [StateLog(self.aggregate, [Piece(self.places, self.current)])], places)


class FrameStates:
    """States of the frames of tumbling or sliding windows. Follows the table that gives out places and emits.

    Parameters
    ----------
    aggregate : whose states
    window : its definition
    """

    def __init__(self, aggregate: BoundAggregate, window: Window) -> None:
        self.aggregate = aggregate
        self.window = window
        self.frames: dict[int, StateLog] = {}
        self.ends: list[int] = []
        self.entered = MIN_TIME
        """Frames up to here are part of the sliding window."""
        self.sliding: TwoStacks | Running | None = None
        if window.frames > 1:
            self.sliding = Running(aggregate) if aggregate.deducts else TwoStacks(aggregate)

    def add(self, end: int, places: Places, states: pa.Array) -> None:
        """More states for the frame that ends at `end`; `places` ascend."""
        self.aggregate.window = (end - self.window.slide_us, end)
        piece = Piece(places, states)
        frame = self.frames.get(end)
        if frame is None:
            frame = self.frames[end] = StateLog(self.aggregate)
            insort(self.ends, end)
        if self.sliding is not None and end <= self.entered:
            self.sliding.add(end, piece)
        frame.add(piece)

    def window_states(self, end: int, places: Places) -> pa.Array:
        """States of the window that ends at `end`, which is not before the one asked for last."""
        self.aggregate.window = (end - self.window.size_us, end)
        if self.sliding is None:
            return gather_all(self.aggregate, [self.frames[end]], places)
        self.leave(self.window.floor(end - 1))
        self.enter(end)
        return self.sliding.states(places)

    def finish(self, due: int) -> None:
        """All windows up to `due` have been emitted."""
        due = due if due == MAX_TIME else self.window.floor(due)
        self.leave(due)
        self.enter(due)

    def leave(self, emitted: int) -> None:
        """Let go of the frames whose last window has been emitted."""
        count = 0
        reach = self.window.size_us - self.window.slide_us
        for end in self.ends:
            if min(MAX_TIME, end + reach) > emitted:
                break
            if self.sliding is not None and end <= self.entered:
                self.sliding.leave(end, self.frames)
            count += 1
        for end in self.ends[:count]:
            del self.frames[end]
        del self.ends[:count]

    def enter(self, emitted: int) -> None:
        """Frames up to `emitted` become part of the sliding window."""
        if self.sliding is not None:
            for end in self.ends[bisect_right(self.ends, self.entered) : bisect_right(self.ends, emitted)]:
                self.sliding.enter(end, self.frames[end])
        self.entered = max(self.entered, emitted)


def by_frame(
    aggregate: BoundAggregate,
    frames: Frames,
    ends: npt.NDArray[np.int64],
    places: Places,
    *,
    remove: bool = False,
) -> pa.Array:
    """Return the state of each pair of frame and place, in the order of the pairs."""
    order = np.argsort(ends, kind="stable")
    sorted_ends = ends[order]
    parts = []
    for rows in np.split(order, np.flatnonzero(np.diff(sorted_ends)) + 1):
        if len(rows) > 0:
            parts.append(gather_all(aggregate, [frames[int(ends[rows[0]])]], places[rows], remove=remove))
    if len(parts) <= 1:
        return parts[0] if parts else pa.array([], aggregate.state_type)
    place_of = np.empty(len(order), np.int64)
    place_of[order] = np.arange(len(order))
    return pa.concat_arrays(parts).take(pa.array(place_of))
