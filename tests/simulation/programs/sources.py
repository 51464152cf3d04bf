"""Sources of random programs: one or several partitions, disorder, silence, with event time or without."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import pyarrow as pa

import jetfast as jf
from jetfast.api.stage import Stage
from jetfast.connectors.memory import EMPTY
from tests.simulation.programs.flow import SCHEMA, Flow, Row
from tests.simulation.programs.operator import Builder

STEP_US = 100_000
SLACK_US = 1000
"""Rows are more out of order than was asked for by less than this."""
KEYS = 4


@dataclass(frozen=True)
class Source:
    """Rows out of a seed: fewer of them are the first ones, so that they can be left out."""

    INPUTS = 0
    seed: int
    rows: int
    partitions: int
    by_key: bool
    """Are all rows of a key in one partition?"""
    disorder_us: int
    """Rows are older than those before them by so much at most."""
    lag_us: int
    timed: bool
    never_idle: bool

    @classmethod
    def draw(cls, random: Random) -> "Source":
        disorder_us = random.choice([0, 3, 20]) * STEP_US
        return cls(
            seed=random.randrange(10_000),
            rows=random.randint(1, 30),
            partitions=random.randint(1, 3),
            by_key=random.random() < 0.6,
            disorder_us=disorder_us,
            lag_us=disorder_us + SLACK_US if random.random() < 0.85 else disorder_us // 4,
            timed=random.random() < 0.85,
            never_idle=random.random() < 0.5,
        )

    def smaller(self) -> Iterator["Source"]:
        """Sources of fewer rows, or of fewer partitions."""
        for rows in (self.rows // 2, self.rows - 1):
            if 0 < rows < self.rows:
                yield replace(self, rows=rows)
        if self.partitions > 1:
            yield replace(self, partitions=self.partitions - 1)

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        source = jf.memory(partitions=self.scripts(name), schema=SCHEMA, batch_rows=4)
        stage = builder.pipeline.read(builder.adapt(source), name=name)
        if not self.timed:
            return stage
        policy = jf.watermarks.fixed_lag(f"{self.lag_us}us")
        return stage.with_event_time("time", policy, idle_timeout="0s" if self.never_idle else "60s")

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        rows = [row for row, _ in self.draw_rows()]
        return Flow(
            (),
            ordered=self.by_key or self.partitions == 1,
            timed=self.timed,
            punctual=not self.timed or self.lag_us >= self.disorder_us + SLACK_US,
            marked=self.timed,
            sources=frozenset([node]),
        ).of(rows)

    def draw_rows(self) -> list[tuple[Row, int]]:
        """Rows, and the partition of each."""
        random = Random(self.seed)
        arrival = random.randint(-30, 30) * STEP_US
        taken: set[int] = set()
        found = []
        for number in range(self.rows):
            arrival += random.randrange(8) * STEP_US
            time = arrival - random.randrange(self.disorder_us // STEP_US + 1) * STEP_US
            key = random.randrange(KEYS + 1)
            value = random.randint(-20, 20) if random.random() < 0.9 else None
            partition = (key if self.by_key else random.randrange(self.partitions)) % self.partitions
            while time in taken:  # no two rows of a source have one time; those of two sources may
                time += 1
            taken.add(time)
            row = Row(1000 * self.seed + number, time, None if key == KEYS else f"k{key}", value)
            found.append((row, partition))
        return found

    def scripts(self, name: str) -> dict[str, list[object]]:
        """What each partition gives: a few rows at a time, or nothing."""
        random = Random(f"pieces of {self.seed}")
        drawn = self.draw_rows()
        scripts: dict[str, list[object]] = {}
        for partition in range(self.partitions):
            rows = [row for row, home in drawn if home == partition]
            script = scripts[f"{name} {partition}"] = []
            while rows or random.random() < 0.3:
                count = random.randint(0, 4)
                script.append(batch_of(rows[:count]) if rows[:count] else EMPTY)
                del rows[:count]
        return scripts


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as the pipeline sees them."""
    columns = [pa.array(column, pa.int64()) for column in ([row.id for row in rows], [row.time for row in rows])]
    columns[1] = columns[1].cast(pa.timestamp("us"))
    columns += [pa.array([row.key for row in rows], pa.string()), pa.array([row.v for row in rows], pa.int64())]
    return pa.record_batch(columns, schema=SCHEMA)
