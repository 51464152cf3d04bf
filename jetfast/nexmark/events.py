"""The events of NEXMark, column by column: persons, auctions and bids, numbered through.

The rules are those of the public benchmark (Tucker, Tufte, Papadimos and Maier, 2008; the generator of Apache Beam):
of 50 events in a row one is a new person, three are new auctions, 46 are bids; half of the bids are for one hot auction
of the last hundred, three quarters of bids and auctions come from one hot person of the last hundred, the others from
those that are in flight or a little ahead; prices are spread evenly over six powers of ten. Random numbers and texts
are our own, so rows are not those of another generator.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.nexmark import texts
from jetfast.nexmark.random_numbers import draw_words, one_in, pick_below

EPOCH_EVENTS = 50
FIRST_ID = 1000
"""Of persons and auctions."""
FIRST_CATEGORY = 10
CATEGORIES = 5
BASE_TIME_US = int(np.datetime64("2015-07-15T00:00:00", "us").astype(np.int64))

_HOT_EVERY = 100
_IN_FLIGHT_AUCTIONS = 100
_ACTIVE_PERSONS = 1000
_AHEAD = 10
_PRICES = np.rint(10 ** (np.arange(1 << 16) / (1 << 16) * 6) * 100).astype(np.int64)  # cents

Integers = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """Which rows of a kind to make, and by which settings."""

    numbers: Integers
    times_us: Callable[[], Integers]
    """Event times of the rows, made only if a column wants them."""
    seed: int
    event_rate: float
    """Events in a second of event time."""

    def words(self, column: int) -> npt.NDArray[np.uint64]:
        return draw_words(self.numbers, self.seed, column)


class Column(NamedTuple):
    """A column: its type, and how to make its values."""

    type: pa.DataType
    make: Callable[[Rows], Integers | pa.Array]


class Kind(NamedTuple):
    """A kind of events: where it stands among the 50 of an epoch, and its columns."""

    name: str
    first: int
    rows_per_epoch: int
    columns: Mapping[str, Column]

    def __reduce__(self) -> tuple[Any, ...]:
        return kind_named, (self.name,)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, column.type) for name, column in self.columns.items()])

    def count_rows(self, events: int) -> int:
        """Return how many of the first `events` events are of this kind."""
        epochs, rest = divmod(events, EPOCH_EVENTS)
        return epochs * self.rows_per_epoch + min(max(rest - self.first, 0), self.rows_per_epoch)

    def make_rows(self, numbers: Integers, names: Sequence[str], seed: int, event_rate: float) -> pa.RecordBatch:
        """Return columns of rows of this kind.

        Parameters
        ----------
        numbers : numbers of the rows among those of this kind, from 0, shape (rows,)
        names : columns
        seed : another seed gives other rows
        event_rate : events of all kinds in a second of event time
        """

        def times_us() -> Integers:
            epochs = numbers // self.rows_per_epoch
            events = epochs * (EPOCH_EVENTS - self.rows_per_epoch) + numbers + self.first
            interval_us = 1e6 / event_rate
            if interval_us.is_integer():
                return BASE_TIME_US + events * int(interval_us)
            return BASE_TIME_US + (events * interval_us).astype(np.int64)

        rows = Rows(numbers, times_us, seed, event_rate)
        schema = pa.schema([(name, self.columns[name].type) for name in names])
        arrays = []
        for field in schema:
            values = self.columns[field.name].make(rows)
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values).view(field.type))
        return pa.record_batch(arrays, schema=schema)


def _pick_person(rows: Rows, column: int, last: Integers, hot_person: int) -> Integers:
    """Return ids: one in four any active person or one to come, else the hot one of the last hundred."""
    words = rows.words(column)
    active = np.minimum(last + 1, _ACTIVE_PERSONS)
    persons = last + 1 - active + pick_below(words, active + _AHEAD)
    hot = last // _HOT_EVERY * _HOT_EVERY + hot_person
    return np.where(one_in(words, 4), persons, hot) + FIRST_ID


def _bid_auction(rows: Rows) -> Integers:
    words = rows.words(0)
    last = rows.numbers // BID_COUNT * AUCTION_COUNT + (AUCTION_COUNT - 1)
    first = np.maximum(last - _IN_FLIGHT_AUCTIONS, 0)
    auctions = first + pick_below(words, last - first + 1 + _AHEAD)
    return np.where(one_in(words, 2), auctions, last // _HOT_EVERY * _HOT_EVERY) + FIRST_ID


def _price(column: int) -> Callable[[Rows], Integers]:
    return lambda rows: _PRICES[rows.words(column) >> np.uint64(48)]


def _auction_expires(rows: Rows) -> Integers:
    horizon_us = int(_IN_FLIGHT_AUCTIONS * EPOCH_EVENTS // AUCTION_COUNT * 1e6 / rows.event_rate)
    lengths_ms = 1 + pick_below(rows.words(23), max(2 * horizon_us // 1000, 1))
    return rows.times_us() + lengths_ms * 1000


def _channel(rows: Rows) -> Integers:
    words = rows.words(3)
    hot = pick_below(words, len(texts.HOT_CHANNELS))
    return np.where(one_in(words, 2), hot, len(texts.HOT_CHANNELS) + pick_below(words, texts.OTHER_CHANNELS))


def _taken(column: int, make_pool: Callable[[int, int], pa.Array]) -> Column:
    """Return a column of texts, of a pool that depends on the seed and the column."""

    def take(rows: Rows) -> pa.Array:
        pool = make_pool(rows.seed, column)
        return pool.take(pa.array(pick_below(rows.words(column), len(pool))))

    return Column(pa.string(), take)


def _words(column: int, shortest: int, longest: int) -> Column:
    return _taken(column, lambda seed, place: texts.make_words(seed, place, shortest, longest))


PERSON_COUNT, AUCTION_COUNT, BID_COUNT = 1, 3, 46
_TIME = pa.timestamp("us")
_DATE_TIME = Column(_TIME, lambda rows: rows.times_us())
_ID = Column(pa.int64(), lambda rows: rows.numbers + FIRST_ID)

# Numbers of random series: those of persons from 32, of auctions from 16, of bids from 0.
PERSON = Kind(
    "person",
    0,
    PERSON_COUNT,
    {
        "id": _ID,
        "name": _taken(32, lambda seed, column: texts.NAMES),
        "email": _taken(33, texts.make_emails),
        "credit_card": _taken(34, texts.make_credit_cards),
        "city": _taken(35, lambda seed, column: texts.CITIES),
        "state": _taken(36, lambda seed, column: texts.STATES),
        "date_time": _DATE_TIME,
        "extra": _words(37, 80, 160),
    },
)
AUCTION = Kind(
    "auction",
    PERSON_COUNT,
    AUCTION_COUNT,
    {
        "id": _ID,
        "item_name": _words(16, 3, 20),
        "description": _words(17, 3, 100),
        "initial_bid": Column(pa.int64(), _price(18)),
        "reserve": Column(pa.int64(), lambda rows: _price(18)(rows) + _price(19)(rows)),
        "date_time": _DATE_TIME,
        "expires": Column(_TIME, _auction_expires),
        "seller": Column(pa.int64(), lambda rows: _pick_person(rows, 20, rows.numbers // AUCTION_COUNT, 0)),
        "category": Column(pa.int64(), lambda rows: pick_below(rows.words(21), CATEGORIES) + FIRST_CATEGORY),
        "extra": _words(22, 200, 500),
    },
)
BID = Kind(
    "bid",
    PERSON_COUNT + AUCTION_COUNT,
    BID_COUNT,
    {
        "auction": Column(pa.int64(), _bid_auction),
        "bidder": Column(pa.int64(), lambda rows: _pick_person(rows, 1, rows.numbers // BID_COUNT, 1)),
        "price": Column(pa.int64(), _price(2)),
        "channel": Column(pa.string(), lambda rows: texts.make_channels().take(pa.array(_channel(rows)))),
        "url": Column(pa.string(), lambda rows: texts.make_urls(rows.seed, 3).take(pa.array(_channel(rows)))),
        "date_time": _DATE_TIME,
        "extra": _words(4, 20, 70),
    },
)


def kind_named(name: str) -> Kind:
    """Return PERSON, AUCTION or BID by its name: a kind is pickled as that."""
    return next(kind for kind in (PERSON, AUCTION, BID) if kind.name == name)
