"""How much work the goals do, and which peers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """Rows and turns.

    rows : measured in a turn, after the warm-up
    expansion_rows, expansion_rows_many_keys : of goal 5, whose peer makes 100 of each
    many_keys : the greatest number of keys
    many_keys_zipf : those as Zipf, too; making and checking them takes long
    repeats, expansion_repeats : turns that count
    wall_repeats : turns that count where wall time does: what holds up one of two cores holds up the turn
    partition_passes : over 2 M rows
    warm_up : one window length of rows that does not count; tests leave it out
    snapshot_rows, snapshot_rows_many_keys : of a turn of goal 10: a few seconds, so that it has a few snapshots
    snapshot_pairs : turns with snapshots, and as many without
    process_rows : of a turn of two processes against one, shared out among their source partitions
    snapshots_min : that each of these turns must have, besides that of the end
    latency_batches, latency_turns : of 1000 rows, that are due one a millisecond; and turns of a job that gets them
    nexmark_events : persons, auctions and bids together
    spark_rows, spark_sliding_rows : of goal 12, and of Spark's sliding windows there, whose rows become 100 each
    spark_repeats : turns of goal 12 that count; of Spark's sliding windows it is one
    peer : only this one; None: all
    """

    rows: int = 8_000_000
    expansion_rows: int = 1_000_000
    expansion_rows_many_keys: int = 300_000
    many_keys: int = 1_000_000
    many_keys_zipf: bool = True
    repeats: int = 5
    expansion_repeats: int = 3
    wall_repeats: int = 15
    partition_passes: int = 12
    warm_up: bool = True
    snapshot_rows: int = 96 << 22
    snapshot_rows_many_keys: int = 48 << 22
    snapshot_pairs: int = 15
    process_rows: int = 48 << 23
    snapshots_min: int = 1
    latency_batches: int = 20_000
    latency_turns: int = 3
    nexmark_events: int = 4_000_000
    spark_rows: int = 20_000_000
    spark_sliding_rows: int = 5_000_000
    spark_repeats: int = 3
    peer: str | None = None

    def chosen(self, peers: Mapping[str, T]) -> dict[str, T]:
        """The peers that take part."""
        return {name: peer for name, peer in peers.items() if self.peer in (None, name)}


QUICK = Options(
    rows=4_000_000,
    many_keys_zipf=False,
    repeats=3,
    expansion_repeats=2,
    wall_repeats=5,
    partition_passes=4,
    snapshot_pairs=3,
    process_rows=24 << 23,
    latency_batches=5_000,
    latency_turns=1,
    nexmark_events=1_000_000,
    spark_rows=5_000_000,
    spark_sliding_rows=250_000,
    spark_repeats=1,
)
