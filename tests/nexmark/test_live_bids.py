"""Live bids come when the clock has reached them, and the clock waits until they have been seen."""

import numpy as np
import pyarrow as pa
import pytest

from jetfast.clusters.local import LocalCluster
from jetfast.errors import JobDefinitionError, JobFailedError
from jetfast.nexmark.events import BASE_TIME_US
from jetfast.nexmark.live_bids import BidClock
from jetfast.nexmark.queries import QUERIES
from jetfast.nexmark.query import Events

SECOND_US = 1_000_000


def test_the_clock_goes_to_the_second_of_the_next_bid_when_all_that_are_due_were_seen() -> None:
    clock = BidClock(BASE_TIME_US + np.array([0, 500_000, SECOND_US, 4_200_000]))
    seconds, due = [], []
    for bidder in (7, 8, 9, 10):
        clock.move_on()
        seconds.append((clock() - BASE_TIME_US) // SECOND_US)
        due.append(clock.count_due())
        clock.see(pa.record_batch({"bidder": [bidder]}))
    clock.move_on()
    assert seconds == [0, 1, 1, 5]
    assert due == [1, 3, 3, 4]
    assert clock() == BASE_TIME_US + 5 * SECOND_US


def test_a_query_by_a_clock_is_not_made_without_one() -> None:
    with pytest.raises(JobDefinitionError, match="bids are seen by a clock"):
        QUERIES["q12"].make_pipeline(Events(100))


def test_live_bids_on_another_clock_are_refused() -> None:
    events = Events(1000)
    pipeline, answer = QUERIES["q12"].make_pipeline(events, events.make_clock())
    answer.collect()
    with pytest.raises(JobFailedError, match="live bids come by a BidClock"):
        LocalCluster(workers=1).submit(pipeline, progress=False).to_arrow()
