"""NEXMark's events: a row is a function of its number and the seed, and the rules of the benchmark hold."""

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.api.pipeline import Pipeline
from jetfast.clusters.local import LocalCluster
from jetfast.errors import JobDefinitionError
from jetfast.nexmark import auctions, bids, persons
from jetfast.nexmark.events import AUCTION, BID, PERSON
from tests.connectors.reading import check_resuming, read_all, read_partition

SOURCES = (persons, auctions, bids)


def rows_in_order(source: Any) -> list[dict[str, Any]]:
    return sorted(read_all(source), key=lambda row: [str(value) for value in row.values()])


@pytest.mark.parametrize("source", SOURCES)
def test_rows_do_not_depend_on_partitions_or_on_the_process_that_makes_them(source: Any) -> None:
    one = rows_in_order(source(2_000, seed=3))
    assert rows_in_order(pickle.loads(pickle.dumps(source(2_000, seed=3, partitions=3)))) == one
    assert rows_in_order(source(2_000, seed=4)) != one


@pytest.mark.parametrize("kind", [PERSON, AUCTION, BID], ids=lambda kind: kind.name)
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_rows_do_not_depend_on_how_they_are_cut_or_which_columns_are_made(kind: Any, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, 10_000_000))
    count = data.draw(st.integers(1, 50))
    cut = data.draw(st.integers(0, count))
    names = data.draw(st.lists(st.sampled_from(list(kind.columns)), unique=True, min_size=1))
    numbers = np.arange(first, first + count)
    whole = kind.make_rows(numbers, list(kind.columns), 1, 10_000.0).to_pylist()
    parts = [kind.make_rows(part, names, 1, 10_000.0).to_pylist() for part in (numbers[:cut], numbers[cut:])]
    assert parts[0] + parts[1] == [{name: row[name] for name in names} for row in whole]


def test_rows_do_not_depend_on_the_rate_at_which_they_are_given_out() -> None:
    now = iter(range(0, 1 << 40, 2_777))
    slow = bids(5_000, rate=1_000_000)
    assert read_partition(slow, "0", now_us=lambda: next(now)).rows == read_all(bids(5_000))


def test_reading_goes_on_from_any_position() -> None:
    check_resuming(bids(20_000, partitions=2).with_columns(["auction", "price"]), "1")


@settings(deadline=None, max_examples=30)
@given(events=st.integers(0, 10**9))
def test_every_event_is_of_one_kind(events: int) -> None:
    assert sum(kind.count_rows(events) for kind in (PERSON, AUCTION, BID)) == events


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids_each_at_its_own_time() -> None:
    times = [row["date_time"] for source in SOURCES for row in read_all(source(1_000).with_columns(["date_time"]))]
    assert len(set(times)) == 1_000
    assert (max(times) - min(times)).total_seconds() == 999 / 10_000
    assert [len(read_all(source(1_000))) for source in SOURCES] == [20, 60, 920]


def test_ids_are_those_of_persons_and_auctions_there_are_or_that_come_soon() -> None:
    people, lots, offers = (read_all(source(20_000)) for source in SOURCES)
    assert [row["id"] for row in people] == list(range(1000, 1400))
    assert [row["id"] for row in lots] == list(range(1000, 2200))
    for number, row in enumerate(offers):
        assert 1000 <= row["bidder"] <= 1000 + number // 46 + 10
        assert 1000 <= row["auction"] <= 1000 + number // 46 * 3 + 2 + 10
    for number, row in enumerate(lots):
        assert 1000 <= row["seller"] <= 1000 + number // 3 + 10
        assert row["date_time"] < row["expires"]
        assert row["initial_bid"] < row["reserve"]
        assert 10 <= row["category"] < 15


def test_half_of_the_bids_are_for_hot_auctions_and_most_people_are_hot() -> None:
    offers = read_all(bids(100_000).with_columns(["auction", "bidder", "price"]))
    assert 0.49 < np.mean([row["auction"] % 100 == 0 for row in offers]) < 0.52
    assert 0.74 < np.mean([row["bidder"] % 100 == 1 for row in offers]) < 0.77
    powers = Counter(len(str(row["price"])) for row in offers)
    assert set(powers) <= {3, 4, 5, 6, 7, 8, 9}
    assert all(0.15 < powers[digits] / len(offers) < 0.18 for digits in range(3, 9))


def test_half_of_the_bids_come_from_hot_channels_and_the_others_name_theirs_in_the_url() -> None:
    offers = read_all(bids(5_000).with_columns(["channel", "url"]))
    hot = [row for row in offers if not row["channel"].startswith("channel-")]
    assert {row["channel"] for row in hot} == {"Google", "Facebook", "Baidu", "Apple"}
    assert 0.45 < len(hot) / len(offers) < 0.55
    assert all(("channel_id=" in row["url"]) == row["channel"].startswith("channel-") for row in offers)


def test_workers_read_the_same_rows_together() -> None:
    answers = []
    for workers, partitions in ((1, 1), (2, 3)):
        pipeline = Pipeline("bids")
        pipeline.read(bids(30_000, partitions=partitions), name="bids").select("auction", "price").collect()
        table = LocalCluster(workers=workers).submit(pipeline, progress=False).to_arrow()
        answers.append(table.sort_by([("auction", "ascending"), ("price", "ascending")]))
    assert answers[0].num_rows == 27_600
    assert answers[0].equals(answers[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"events": -1}, "events must not be negative"),
        ({"event_rate": 0}, "event_rate must be greater than 0"),
        ({"event_rate": 2_000_000}, "at most 1000000 events/s"),
        ({"rate": 0}, "rate must be greater than zero"),
        ({"seed": -1}, "seed must not be negative"),
        ({"partitions": 0}, "partitions must be at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(JobDefinitionError, match=message):
        bids(**options)
