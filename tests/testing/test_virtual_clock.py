"""Tests of users' pipelines: a clock that a script moves, partitions that fall silent, nobody sleeps."""

from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.memory import memory
from jetfast.core.processor import ProcessorContext
from jetfast.testing import EMPTY, VirtualClock, scripted, silence

SCHEMA = pa.schema([("time", pa.timestamp("us")), ("key", pa.string())])


def rows(key: str, *seconds: int) -> pa.Table:
    return pa.table({"time": [second * 1_000_000 for second in seconds], "key": [key] * len(seconds)}, schema=SCHEMA)


def test_a_virtual_clock_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock("1970-01-01T00:00:01.5+00:00")
    assert [clock(), clock()] == [1_500_000, 1_500_000]
    assert clock.advance("10s") == clock() == 11_500_000
    assert repr(clock) == "VirtualClock('1970-01-01T00:00:11.500000+00:00')"
    assert VirtualClock()() == 1_704_067_200_000_000
    with pytest.raises(ValueError, match="duration must not be negative"):
        clock.advance("-1s")


def answers(script: list[Any], now_us: Any) -> list[int]:
    reader = memory(script, schema=SCHEMA).open_reader("0", None, ProcessorContext("v", now_us=now_us))
    return [read.batch.row_count for read in iter(reader.read, None) if read is not None]


def test_a_silence_moves_a_virtual_clock_to_its_end() -> None:
    clock = VirtualClock("1970-01-01")
    assert answers([rows("a", 1), silence("1200ms"), silence("100ms"), rows("a", 2), EMPTY], clock) == [
        *[1, 0, 0, 0, 0, 0, 0, 1, 0]
    ]
    assert clock() == 1_300_000


def test_of_several_silent_readers_one_moves_the_clock() -> None:
    clock = VirtualClock("1970-01-01")
    source = memory(partitions=[[silence("10s")], [silence("10s")]], schema=SCHEMA)
    readers = [source.open_reader(partition, None, ProcessorContext("v", now_us=clock)) for partition in ("0", "1")]
    rounds = 0
    while all(reader.read() is not None for reader in readers):
        rounds += 1
    assert clock() == 10_000_000
    assert rounds == 20


def test_a_silence_lasts_as_long_as_the_clock_says_that_nobody_can_move() -> None:
    times = iter(range(0, 10_000_000, 400_000))
    assert answers([silence("1s"), rows("a", 1)], lambda: next(times)) == [0, 0, 0, 1]


def test_a_scripted_partition_turns_idle_wakes_and_ends() -> None:
    source = scripted(
        {
            "slow": [rows("slow", 0), silence("70s"), rows("slow", 5, 200)],
            "fast": [rows("fast", 0), silence("40s"), rows("fast", 40), silence("25s"), rows("fast", 65)],
        }
    )
    assert not source.bounded
    pipeline = jf.Pipeline("silence")
    counts = (
        pipeline.read(source, name="rows")
        .with_event_time("time", jf.watermarks.fixed_lag("10s"), idle_timeout="60s")
        .group_by("key")
        .window(jf.tumbling("10s"))
        .agg(n=jf.count(), name="counts")
    )
    counts.collect()
    counts.late_rows.collect("late")
    clock = VirtualClock()
    job = jf.LocalCluster(workers=1, clock=clock).submit(pipeline, progress=False)
    job.wait()
    assert job.collected("late")["key"].to_pylist() == ["slow"]  # idle after 60 s, the other went on to 65 - 10
    assert sum(job.collected("result")["n"].to_pylist()) == 5
    assert clock() == VirtualClock().advance("70s")


def test_a_clock_must_be_callable() -> None:
    with pytest.raises(TypeError, match="clock must be a function that returns microseconds"):
        jf.LocalCluster(clock=5)  # type: ignore[arg-type]
