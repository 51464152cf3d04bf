"""What a simulated job does: random sources, steps and sinks out of a seed, and the rows that must come out.

Rows are told apart by `id`. Times ascend within each source partition, so no row is ever late and every result is
known beforehand. The answers are computed here by plain Python from the rows alone.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast import col
from jetfast.api.stage import Stage
from jetfast.connectors.memory import EMPTY, MemoryReader, MemorySource
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, Rows
from jetfast.testing import AcknowledgingQueue, Faults, StoredRows, TransactionalMemory
from tests.simulation.growing_source import GrowingSource
from tests.simulation.programs.answer import Answer
from tests.simulation.programs.operator import Builder
from tests.simulation.programs.program import Program

SECOND_US = 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("t", pa.timestamp("us"))])
TIMEOUT_US = 3600 * SECOND_US
"""Of transactions in systems that have one: longer than any outage here, for what times out is lost."""

GAP_US_MAX = 80_000
GROWING_US = 600_000
"""Within this time all partitions of a growing source have come."""

Row = tuple[Any, ...]
RawRow = tuple[int, int, int]
"""id, k, t in microseconds."""


@dataclass
class Sink:
    """A sink of a scenario: the outside system, and what must be in it in the end."""

    system: TransactionalMemory | StoredRows
    answer: Answer
    repeats: bool
    """Are rows allowed to come more than once? (At least once.)"""

    def rows(self) -> "Counter[Row]":
        """What is visible."""
        return self.answer.of(self.system.rows(), self.repeats)

    def problems(self) -> tuple[list[Row], list[Row]]:
        """Rows that are lost, and rows that are there too often or should not be there at all."""
        found = self.rows()
        expected = self.answer.expected
        lost = list((expected - found).elements())
        surplus = found - expected
        if self.repeats:
            surplus = Counter({row: count for row, count in surplus.items() if row not in expected})
        return lost, list(surplus.elements())

    def in_doubt(self) -> list[str]:
        """Transactions that are open or prepared."""
        return self.system.in_doubt() if isinstance(self.system, TransactionalMemory) else []


@dataclass
class Scenario:
    """A pipeline, its sinks, and the terms of its job."""

    pipeline: jf.Pipeline
    guarantee: Guarantee
    all_repeat: bool = False
    """Do all sinks repeat rows, so that only state needs aligned barriers?"""
    sinks: list[Sink] = field(default_factory=list)
    faults: list[Faults] = field(default_factory=list)
    sources: int = 0
    rows: int = 0

    def calm(self) -> None:
        """From now on the systems around the job do what they are asked for."""
        for faults in self.faults:
            faults.active = False


class SlowSource(MemorySource):
    """Rows of the memory source, not faster than one batch every few milliseconds: snapshots fall between them."""

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> MemoryReader:
        return SlowReader(self, partition, position, context.now_us)


class SlowReader(MemoryReader):
    """Gives a batch when it is due."""

    due_us: int | None = None

    def read(self) -> Rows | None:
        now_us = self.now_us()
        if self.due_us is None:
            self.due_us = now_us + zlib.crc32(f"{self.partition} {self.item}".encode()) % GAP_US_MAX
        if now_us < self.due_us:
            return Rows(self.empty, self._position())
        self.due_us = None
        return super().read()


class SlowGrowingSource(GrowingSource):
    """Likewise, and partitions come one after the other."""

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> MemoryReader:
        return SlowReader(self, partition, position, context.now_us)


def slow(source: MemorySource) -> SlowSource:
    """The same rows, slowly."""
    return SlowSource(
        source.name, source.schema, source.scripts, source.bounded, source.batch_rows, source.identity, source.ends
    )


def make_scenario(random: Random, now_us: Callable[[], int], program: Program | None = None) -> Scenario:
    """Return a scenario, that of a program if there is one. `now_us`: the clock of the systems around the job."""
    if program is not None:
        return run_program(program, random, now_us)
    guarantee = Guarantee.EXACTLY_ONCE if random.random() < 0.85 else Guarantee.AT_LEAST_ONCE
    scenario = Scenario(jf.Pipeline("simulated"), guarantee, all_repeat=random.random() < 0.2)
    for _ in range(1 if random.random() < 0.75 else 2):
        add_source(scenario, random, now_us)
    return scenario


def run_program(program: Program, random: Random, now_us: Callable[[], int]) -> Scenario:
    """Return the scenario of a program, exactly once: what it says of each row is certain then."""
    scenario = Scenario(jf.Pipeline("simulated"), Guarantee.EXACTLY_ONCE)
    answers = program.answers()
    for name, stage in program.build(Builder(scenario.pipeline, slow)).items():
        _add_sink(scenario, random, now_us, stage, answers[name], (), name)
    return scenario


def add_source(scenario: Scenario, random: Random, now_us: Callable[[], int]) -> None:
    """Add a source with what follows it."""
    number, first_id = scenario.sources, scenario.rows
    if random.random() < 0.2:
        stage, rows = _queue(scenario, random, number, first_id)
        timed = False
    elif random.random() < 0.2:
        stage, rows = _growing(scenario, random, now_us, number, first_id)
        timed = False  # rows of a partition that comes later may be late
    else:
        stage, rows = _partitions(scenario, random, number, first_id)
        timed = scenario.guarantee is Guarantee.EXACTLY_ONCE
    scenario.sources += 1
    scenario.rows += len(rows)
    if random.random() < 0.35:
        stage, rows = _filtered(stage, rows, random)
    for index in range(1 if random.random() < 0.7 else 2):
        name = f"{number}-{index}"
        if timed and random.random() < 0.6:
            _add_windows(scenario, random, now_us, stage, rows, name)
        else:
            answer = Answer(("id", "k"), Counter((row[0], row[1]) for row in rows))
            _add_sink(scenario, random, now_us, stage.select("id", "k"), answer, ("id",), name)


def _partitions(scenario: Scenario, random: Random, number: int, first_id: int) -> tuple[Stage, list[RawRow]]:
    """A replayable source whose partitions are in time order."""
    partitions: dict[str, list[Any]] = {}
    rows: list[RawRow] = []
    keys = random.randint(1, 5)
    for partition in range(random.randint(1, 3)):
        script: list[Any] = []
        time_us = random.randrange(5) * SECOND_US
        for _ in range(random.randint(1, 6)):
            if random.random() < 0.15:
                script.append(EMPTY)
                continue
            batch: list[RawRow] = []
            for _ in range(random.randint(1, 4)):
                time_us += random.randrange(500_000)
                batch.append((first_id + len(rows) + len(batch), random.randrange(keys), time_us))
            rows += batch
            script.append(_record_batch(batch))
        partitions[f"{number}-{partition}"] = script
    source = slow(jf.memory(partitions=partitions, schema=SCHEMA))
    stage = scenario.pipeline.read(source, name=f"source {number}")
    return stage.with_event_time("t", jf.watermarks.fixed_lag("0s")), rows


def _growing(
    scenario: Scenario, random: Random, now_us: Callable[[], int], number: int, first_id: int
) -> tuple[Stage, list[RawRow]]:
    """A replayable source whose partitions come while it is read."""
    partitions: dict[str, list[Any]] = {}
    rows: list[RawRow] = []
    for partition in range(random.randint(1, 6)):
        batches = []
        for _ in range(random.randint(0, 4)):
            first = first_id + len(rows)
            batch = [(first + row, random.randrange(5), 0) for row in range(random.randint(1, 4))]
            rows += batch
            batches.append(_record_batch(batch))
        partitions[f"{number}-{partition}"] = batches
    names = list(partitions)
    start_us = now_us()
    births = {name: start_us + random.choice([0, random.randrange(GROWING_US)]) for name in names}
    source = jf.memory(partitions=partitions, schema=SCHEMA)
    growing = SlowGrowingSource(source, births, now_us, Random(random.getrandbits(32)))
    return scenario.pipeline.read(growing, name=f"source {number}"), rows


def _queue(scenario: Scenario, random: Random, number: int, first_id: int) -> tuple[Stage, list[RawRow]]:
    """An acknowledging source: messages come in any order, and again."""
    rates = {call: random.choice([0.0, 0.0, 0.03]) for call in ("read", "acknowledge", "redeliver", "lose")}
    faults = Faults(Random(random.getrandbits(32)), rates)
    scenario.faults.append(faults)
    queue = AcknowledgingQueue(
        pa.schema([("id", pa.int64()), ("k", pa.int64())]),
        confirms=random.random() < 0.5,
        batch_rows=random.randint(1, 4),
        name=f"queue {number}",
        faults=faults,
    )
    rows = [(first_id + row, random.randrange(5), 0) for row in range(random.randint(1, 40))]
    queue.publish({"id": row[0], "k": row[1]} for row in rows)
    return scenario.pipeline.read(queue.source(), name=f"source {number}"), rows


def _filtered(stage: Stage, rows: list[RawRow], random: Random) -> tuple[Stage, list[RawRow]]:
    kept = random.randint(2, 5)
    return stage.where(col("id") % kept != 0), [row for row in rows if row[0] % kept != 0]


def _add_windows(
    scenario: Scenario, random: Random, now_us: Callable[[], int], stage: Stage, rows: list[RawRow], name: str
) -> None:
    kind = random.choice(["tumbling", "sliding", "session", "global"])
    spans: Callable[[list[RawRow]], Iterable[tuple[int, int, list[RawRow]]]]
    if kind == "session":
        timeout_us = random.choice([200_000, 400_000])
        window: Any = jf.session(f"{timeout_us // 1000}ms")
        spans = lambda of_key: _sessions(of_key, timeout_us)  # noqa: E731
    else:
        slide_us = random.choice([SECOND_US // 2, SECOND_US])
        frames = 1 if kind == "tumbling" else random.randint(1, 4)
        window = jf.sliding(f"{frames * slide_us // 1000}ms", f"{slide_us // 1000}ms")
        spans = lambda of_key: _windows(of_key, frames * slide_us, slide_us)  # noqa: E731
    keyed = kind != "global"
    by_key: dict[int, list[RawRow]] = {}
    for row in rows:
        by_key.setdefault(row[1] if keyed else 0, []).append(row)
    grouped = stage.group_by("k") if keyed else stage
    collects = random.random() < 0.2
    aggregates = {"n": jf.count(), "s": jf.sum("id"), "lo": jf.min("id"), "hi": jf.max("id")}
    if collects:
        aggregates["ids"] = jf.collect_list("id")
    results = grouped.window(window).agg(**aggregates, name=f"windows {name}")
    expected: Counter[Row] = Counter()
    for key, of_key in by_key.items():
        for start, end, held in spans(of_key):
            ids = sorted(row[0] for row in held)
            row: Row = (*([key] if keyed else []), start, end, len(ids), sum(ids), ids[0], ids[-1])
            # Collected by time: ties are possible, so values are compared as a set.
            expected[(*row, tuple(ids)) if collects else row] += 1
    identity = (*(["k"] if keyed else []), "window_start", "window_end")
    columns = (*identity, *aggregates)
    _add_sink(scenario, random, now_us, results, Answer(columns, expected, any_order=True), identity, name)


def _windows(rows: list[RawRow], size_us: int, slide_us: int) -> list[tuple[int, int, list[RawRow]]]:
    held: dict[int, list[RawRow]] = {}
    for row in rows:
        end = row[2] - row[2] % slide_us + slide_us
        for _ in range(size_us // slide_us):
            held.setdefault(end, []).append(row)
            end += slide_us
    return [(end - size_us, end, rows) for end, rows in held.items()]


def _sessions(rows: list[RawRow], timeout_us: int) -> list[tuple[int, int, list[RawRow]]]:
    found: list[tuple[int, int, list[RawRow]]] = []
    for row in sorted(rows, key=lambda row: row[2]):
        if found and row[2] <= found[-1][1]:
            start, _, held = found.pop()
            found.append((start, row[2] + timeout_us, [*held, row]))
        else:
            found.append((row[2], row[2] + timeout_us, [row]))
    return found


def _add_sink(
    scenario: Scenario,
    random: Random,
    now_us: Callable[[], int],
    stage: Stage,
    answer: Answer,
    identity: tuple[str, ...],
    name: str,
) -> None:
    """Write to a system of a random kind, which fails at random. `identity`: columns that tell rows apart, if any."""
    rates = {call: random.choice([0.0, 0.0, 0.03]) for call in _CALLS}
    rates["slow"] = random.choice([0.0, 0.3])
    faults = Faults(Random(random.getrandbits(32)), rates)
    options: dict[str, Any] = {"name": f"system {name}", "faults": faults}
    kinds = ["named", "overlapping", "pool of 2", "pool of 3", "staged", "repeating"]
    kind = random.choice([*kinds, "by key"] if identity else kinds)
    if scenario.all_repeat:
        kind = "repeating"
    system: TransactionalMemory | StoredRows
    if kind == "by key":
        system = StoredRows(*identity, **options)
    elif kind == "repeating":  # weakens itself and nothing else: the other sinks and all state stay exactly once
        system = StoredRows(**options)
    elif kind == "staged":
        system = TransactionalMemory.staged(overlaps=random.random() < 0.5, **options)
    elif kind.startswith("pool"):
        revocable = random.random() < 0.5
        system = TransactionalMemory.pooled(
            int(kind[-1]), revocable=revocable, now_us=now_us, timeout_us=TIMEOUT_US, **options
        )
    else:
        system = TransactionalMemory.named(overlaps=kind == "overlapping", **options)
    scenario.faults.append(faults)
    repeats = kind == "repeating" or scenario.guarantee is Guarantee.AT_LEAST_ONCE
    scenario.sinks.append(Sink(system, answer, repeats))
    stage.write(system.sink(), name=f"sink {name}")


_CALLS = ("begin", "write", "prepare", "commit", "rollback", "list", "forget")


def _record_batch(rows: list[RawRow]) -> pa.RecordBatch:
    ids, keys, times = ([row[index] for row in rows] for index in range(3))
    return pa.record_batch([pa.array(ids), pa.array(keys), pa.array(times, pa.timestamp("us"))], schema=SCHEMA)
