"""The first stage of windows: frames of many keys leave whole, by owner, and come to the same as all rows at once."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jetfast.kernels.columns import Batch, ReceivedColumns, SentColumns
from jetfast.kernels.partitioning import assign_partitions
from jetfast.kernels.windows import FrameTable, WindowTable
from jetfast.types import MAX_TIME

KEYS = 1000
OWNERS = 2
SLIDE_US = 1000
SCHEMA = pa.schema([("key", pa.int64()), ("time", pa.timestamp("us")), ("value", pa.float64())])
AGGREGATES = [
    *[("rows", "count", None), ("values", "count_values", "value"), ("mean", "mean", "value")],
    *[("least", "min", "value"), ("deviation", "stddev_pop", "value")],
]
WINDOWS = {"tumbling": (SLIDE_US, SLIDE_US), "sliding": (5 * SLIDE_US, SLIDE_US)}


def frames(count: int, rows: int) -> Iterator[Batch]:
    """Of one frame each. Keys come and go, in ranges that move; one key in 20 is null, and one value in 9."""
    random = np.random.default_rng(2)
    for frame in range(count):
        keys = random.integers(frame * 30, frame * 30 + KEYS, rows)
        times = random.integers(frame * SLIDE_US, (frame + 1) * SLIDE_US, rows)
        columns = [
            pa.array(keys, mask=keys % 20 == 0),
            pa.array(times).cast(pa.timestamp("us")),
            pa.array(random.integers(-999, 999, rows) / 64, mask=random.random(rows) < 1 / 9),
        ]
        yield Batch.from_arrow(pa.record_batch(columns, schema=SCHEMA))


def first_stage(window: str, shares: bool = False) -> FrameTable:
    table = FrameTable(SCHEMA, ["key"], "time", AGGREGATES, *WINDOWS[window])
    table.set_owners(np.arange(271, dtype=np.int32) % OWNERS, OWNERS)
    if shares:
        table.share_frames()
    return table


def second_stage(window: str, owner: int | None = None) -> WindowTable:
    partitions = None if owner is None else range(owner, 271, OWNERS)
    return WindowTable(SCHEMA, ["key"], "time", AGGREGATES, *WINDOWS[window], partitions=partitions)


def taken(table: FrameTable) -> Iterator[tuple[int, Batch]]:
    while (partials := table.take_partials()) is not None:
        yield table.owner, partials


def is_shared(table: FrameTable, partials: Batch) -> bool:
    return partials.schema.equals(table.frame_schema)


def results(table: WindowTable) -> Iterator[dict[str, Any]]:
    while (batch := table.emit()) is not None:
        yield from batch.to_arrow().to_pylist()


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({name: round(v, 9) if isinstance(v, float) else v for name, v in row.items()}) for row in rows)


def sent_through(sent: SentColumns, received: ReceivedColumns, batch: Batch) -> tuple[Batch, int]:
    """The batch at the other end of a channel, and the bytes that crossed."""
    message = b"".join(batch.encode(sent))
    sent.settle()
    return Batch.decode(batch.schema, message, received), len(message)


def test_of_whole_frames_only_what_differs_crosses_a_channel() -> None:
    """Of the second frame on: counts of rows and of nulls, a sum and the least value; eight bytes each."""
    first = FrameTable(SCHEMA, ["key"], "time", AGGREGATES[:4], *WINDOWS["tumbling"])
    first.set_owners(np.zeros(271, dtype=np.int32), 1)
    first.share_frames()
    second = WindowTable(SCHEMA, ["key"], "time", AGGREGATES[:4], *WINDOWS["tumbling"])
    channel = SentColumns(), ReceivedColumns()
    (batch,) = frames(1, 20 * KEYS)
    sizes = []
    for _ in range(3):
        first.accumulate(batch)
        first.flush()
        ((_, partials),) = taken(first)
        found, size = sent_through(*channel, partials)
        second.accumulate_partials(found)
        sizes.append(size)
    fields = 4
    assert sizes[0] > (fields + 2) * 8 * partials.row_count
    assert sizes[1] == sizes[2] < fields * 8 * partials.row_count + 1000
    second.advance(MAX_TIME)
    assert sum(row["rows"] for row in results(second)) == 3 * 20 * KEYS


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("rows", [3000, 450], ids=["nearly all keys", "less than half of the keys"])
@pytest.mark.parametrize("way", ["copied", "shared", "sent"])
def test_frames_of_many_keys_come_to_what_all_rows_at_once_do(window: str, rows: int, way: str) -> None:
    all_rows, first = second_stage(window), first_stage(window, way != "copied")
    channels = [(SentColumns(), ReceivedColumns()) for _ in range(OWNERS)]
    second = [second_stage(window, owner) for owner in range(OWNERS)]
    wanted, found = [], []
    for number, batch in enumerate(frames(8, rows)):
        all_rows.accumulate(batch)
        first.accumulate(batch)
        watermark = MAX_TIME if number == 7 else (number + 1) * SLIDE_US
        first.advance(watermark)
        for owner, partials in taken(first):
            given = sent_through(*channels[owner], partials)[0] if way == "sent" else partials
            second[owner].accumulate_partials(given)
        for table, output in [(all_rows, wanted), *((table, found) for table in second)]:
            table.advance(watermark)
            output += results(table)
    assert in_order(found) == in_order(wanted)
    assert sum(table.rows for table in second) == all_rows.rows == first.partial_rows


def test_partials_of_a_whole_frame_are_those_of_the_keys_that_an_owner_has() -> None:
    first = first_stage("tumbling")
    for batch in frames(2, 3000):
        first.accumulate(batch)
    first.flush()
    for owner, partials in taken(first):
        assert (assign_partitions([partials.to_arrow().column("key")]) % OWNERS == owner).all()
    assert first.partials < first.partial_rows == 6000


def test_keys_without_rows_in_a_whole_frame_have_no_results_after_a_restore() -> None:
    """Restored and late frames are lists of keys: those without rows are not among them."""
    first, second = first_stage("tumbling"), second_stage("tumbling")
    early, late = frames(2, 3000)
    for batch in (early, late):
        first.accumulate(batch)
    first.flush()
    partials = [partials for _, partials in taken(first)]
    zeros = sum(sum(rows == 0 for rows in batch.to_arrow().column("rows").to_pylist()) for batch in partials)
    assert zeros > 0
    for batch in partials:
        second.restore(batch.to_arrow())
    second.finish_restore()
    second.advance(MAX_TIME)
    assert all(row["rows"] > 0 for row in results(second))


def test_each_owner_gets_his_part_of_a_shared_frame_as_it_lies() -> None:
    first = first_stage("tumbling", shares=True)
    (batch,) = frames(1, 6000)
    first.accumulate(batch)
    keys = first.keys
    first.flush()
    given = [(owner, partials) for owner, run in first.take_partial_run() for partials in run]
    assert [owner for owner, _ in given] == list(range(OWNERS))
    assert all(is_shared(first, partials) for _, partials in given)
    columns = [partials.to_arrow().column("rows") for _, partials in given]
    assert sum(map(len, columns)) == keys
    starts = [column.buffers()[1].address for column in columns]
    assert starts[1] == starts[0] + 8 * len(columns[0])  # one array
    assert first.take_partial_run() == []


def test_keys_keep_their_places_until_many_partials_had_none() -> None:
    """By the memory of their columns the second stage knows them again; those that have come since leave in lists."""
    first = first_stage("tumbling", shares=True)
    places, listed = [], []
    for number, batch in enumerate(frames(8, 6000)):
        first.accumulate(batch)
        first.advance((number + 1) * SLIDE_US)
        given = list(taken(first))
        keys = [partials.to_arrow().column("key") for _, partials in given if is_shared(first, partials)]
        places.append([(column.buffers()[1].address, len(column)) for column in keys])
        listed.append(sum(partials.row_count for _, partials in given if not is_shared(first, partials)))
    again = listed.index(0, 1)
    assert 0 < listed[1] < listed[again - 1]
    assert sum(listed[:again]) <= sum(count for _, count in places[0])
    assert all(place == places[0] for place in places[:again])
    assert places[again] != places[0]
    assert places[again][1] != places[0][1]


def test_first_stages_give_the_keys_of_an_owner_in_one_order() -> None:
    keys = []
    (rows,) = (batch.to_arrow() for batch in frames(1, 6000))
    for order in (np.arange(6000), np.arange(6000)[::-1]):
        first = first_stage("tumbling", shares=True)
        first.accumulate(Batch.from_arrow(rows.take(pa.array(order))))
        first.flush()
        keys.append([partials.to_arrow().column("key").to_pylist() for _, partials in taken(first)])
    assert keys[0] == keys[1]


def late_and_early(first: FrameTable, second: list[WindowTable]) -> list[dict[str, Any]]:
    """Frame 1 comes when its first windows have ended; frames 0 and 2 as usual."""
    batches = list(frames(3, 3000))
    found = []
    for order, watermark in ((0, 2 * SLIDE_US), (1, 2 * SLIDE_US), (2, MAX_TIME)):
        first.accumulate(batches[order])
        first.flush()
        for owner, partials in taken(first):
            second[owner].accumulate_partials(partials)
        for table in second:
            table.advance(watermark)
            found += results(table)
    return found


@pytest.mark.parametrize("bound", [None, 3 * SLIDE_US])
def test_a_shared_frame_that_is_late_is_judged_as_its_rows_are(bound: int | None) -> None:
    outcomes = []
    for shares in (False, True):
        second = [second_stage("sliding", owner) for owner in range(OWNERS)]
        if bound is not None:
            for table in second:
                for partition in range(0, 271, 3):
                    table.restore_bound(partition, bound)
                table.finish_restore()
        found = late_and_early(first_stage("sliding", shares), second)
        outcomes.append((in_order(found), [table.row_counts() for table in second]))
    assert outcomes[0] == outcomes[1]
    assert sum(counts[2] for counts in outcomes[1][1]) > 1000  # partly late ones


def test_results_and_partials_in_runs_are_those_one_by_one() -> None:
    at_once, one_by_one = first_stage("sliding"), first_stage("sliding")
    tables = second_stage("sliding"), second_stage("sliding")
    for batch in frames(8, 3000):
        at_once.accumulate(batch)
        one_by_one.accumulate(batch)
    at_once.flush()
    one_by_one.flush()
    run = at_once.take_partial_run(1000)
    assert 1000 <= sum(batches.row_count for _, batches in run) < 2500
    while more := at_once.take_partial_run():
        assert [owner for owner, _ in more] == [0, 1]
        run += more
    singly = list(taken(one_by_one))
    for owner in range(OWNERS):
        batches = [partials for whose, given in run for partials in given if whose == owner]
        assert [repr(partials.to_arrow().to_pylist()) for partials in batches] == [
            repr(partials.to_arrow().to_pylist()) for whose, partials in singly if whose == owner
        ]
        tables[0].accumulate_all_partials(batches)
    for _, partials in singly:
        tables[1].accumulate_partials(partials)
    for table in tables:
        table.advance(MAX_TIME)
    rows = []
    while given := tables[0].emit_run(1500):
        assert given.slice(0, len(given) - 1).row_count < 1500
        rows += [row for batch in given for row in batch.to_arrow().to_pylist()]
    assert rows == list(results(tables[1]))
    for wrong in (tables[0].emit_run, at_once.take_partial_run):
        with pytest.raises(ValueError, match="rows_max"):
            wrong(0)


def test_owners_are_checked() -> None:
    for owners, count in (([0, 2], 2), ([-1], 1), ([], 1), ([0], 0)):
        with pytest.raises(ValueError, match="owners must be in"):
            first_stage("tumbling").set_owners(owners, count)


def test_keys_that_are_forgotten_give_up_their_slots_and_come_back() -> None:
    first = first_stage("tumbling")
    (batch,) = frames(1, 6000)
    for _ in range(2):
        first.accumulate(batch)
        keys = first.keys
        first.flush()
        assert sum(partials.row_count for _, partials in taken(first)) == keys > 900
        first.forget_keys()
        assert first.keys == 0
