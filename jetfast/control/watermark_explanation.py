"""Says what holds the watermark of a job back, since when, and what it waits for: `job.explain_watermark()`.

Made of what each member last reported (`jetfast.engine.metrics`, key "event_time"), so about a quarter of a second old.
"""

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from jetfast.types import MIN_TIME, format_duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LateBehindSource:
    """Rows of a source partition that came behind the watermark of their source: it had not waited for them."""

    rows: int
    rows_by_all_idle: int
    """Of these, rows that the watermark passed when all partitions were idle."""
    first_us: int
    """Wall clock when the first and the last of them came, microseconds since 1970."""
    last_us: int
    most_us: int
    """How far a row was behind the watermark, at most."""


@dataclass(frozen=True)
class IdleLeap:
    """Inputs were idle, and the watermark went on without waiting for them."""

    at_us: int
    """Wall clock, microseconds since 1970."""
    from_us: int
    to_us: int
    all_idle: bool
    """All inputs were: the watermark went on to that of the one that was furthest ahead."""


@dataclass(frozen=True)
class PartitionWatermark:
    """One source partition."""

    source: str
    partition: str
    member: int
    processor: int
    watermark_us: int | None
    """None: no row has been read yet."""
    behind_us: int
    """How far it is behind the partition of its source that is furthest ahead."""
    state: str
    """reading, silent, idle, unread, blocked (its rows wait for room downstream) or finished."""
    since_us: int
    """Wall clock when its watermark last rose, or its source started."""
    rows_us: int | None
    """Wall clock when its last rows came."""
    idle_in_us: int | None
    """After how long without a row it will not be waited for any more; None: never, or it is idle."""
    waits_for: str
    """What must happen for its watermark to rise."""
    late: LateBehindSource | None


@dataclass(frozen=True)
class SourceWatermark:
    """One source step: the lowest of its processors, and the partition that holds it back."""

    source: str
    watermark_us: int | None
    policy: str
    partition_count: int
    idle: bool
    """All its partitions are idle: nobody waits for it."""
    finished: bool
    held_back_by: PartitionWatermark | None
    """The unfinished partition, not idle, that is furthest behind; None: there is none."""
    partitions: tuple[PartitionWatermark, ...]
    """Those furthest behind, the one furthest ahead, and those with late rows."""
    leap: IdleLeap | None


@dataclass(frozen=True)
class StepWatermark:
    """One step that receives watermarks: its processor that is furthest behind, and the input that holds it back."""

    step: str
    member: int
    processor: int
    watermark_us: int | None
    since_us: int
    """Wall clock when it was first seen there."""
    idle: bool
    finished: bool
    input: str | None
    """The upstream processor that holds it back ("flights-1"); None: no input is awake."""
    input_watermark_us: int | None
    late_rows: int
    partly_late_rows: int
    leap: IdleLeap | None
    lagging_partitions: tuple[str, ...]
    """Source partitions that were behind when the step's inputs were idle: their rows before leap.to_us are late."""


@dataclass(frozen=True)
class WatermarkExplanation:
    """What holds the watermark of a job back. `print` it; or look at its fields."""

    job: str
    now_us: int
    """Wall clock of the reports, microseconds since 1970."""
    sources: tuple[SourceWatermark, ...]
    steps: tuple[StepWatermark, ...]

    @property
    def watermark_us(self) -> int | None:
        """The lowest watermark of the sources that are not idle and not finished; None: none yet."""
        waited_for = [s for s in self.sources if not s.finished and not s.idle] or list(self.sources)
        known = [source.watermark_us for source in waited_for]
        return min((w for w in known if w is not None), default=None) if None not in known else None

    @property
    def held_back_by(self) -> PartitionWatermark | None:
        """The source partition that is furthest behind of all that are waited for."""
        holders = [source.held_back_by for source in self.sources if source.held_back_by is not None]
        return min(holders, key=_lowest_first, default=None)

    @property
    def late(self) -> tuple[PartitionWatermark, ...]:
        """Source partitions with rows that came behind the watermark of their source."""
        return tuple(p for source in self.sources for p in source.partitions if p.late is not None)

    def __str__(self) -> str:
        if not self.sources and not self.steps:
            return f"job {self.job!r}: no source with event time has reported yet"
        come = "has not begun" if self.watermark_us is None else f"has come to {format_moment(self.watermark_us)}"
        lines = [f"job {self.job!r}: event time {come if self.sources else 'is the wall clock'}"]
        for source in self.sources:
            lines += self._source_lines(source)
        for step in self.steps:
            lines += self._step_lines(step)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _source_lines(self, source: SourceWatermark) -> list[str]:
        lines = [f"source {source.source!r}, {source.policy}: {format_watermark(source.watermark_us)}"]
        holder = source.held_back_by
        if source.finished:
            lines.append("    finished: nobody waits for it")
        elif holder is None:
            lines.append("    all its source partitions are idle or finished: nobody waits for it")
        else:
            where = f"member {holder.member}, processor {holder.processor}"
            lines.append(
                f"    held back by source partition {holder.partition!r} ({where}), "
                f"which is {format_watermark(holder.watermark_us)}{self._since(holder.since_us)}"
            )
            lines.append(f"    it is {holder.state}; {holder.waits_for}")
            if holder.behind_us > 0:
                lines.append(
                    f"    the partition that is furthest ahead is {format_duration(holder.behind_us)} ahead; what came "
                    "from there waits in open windows"
                )
        if source.leap is not None:
            who = "all partitions were idle" if source.leap.all_idle else "it did not wait for an idle partition"
            lines.append(f"    {self._leap(source.leap)}: {who}")
        for partition in source.partitions:
            late = partition.late
            if late is not None:
                idle = f", {late.rows_by_all_idle} of them because all were idle" if late.rows_by_all_idle else ""
                lines.append(
                    f"    source partition {partition.partition!r}: {format_rows(late.rows)} came behind the watermark,"
                    f" up to {format_duration(late.most_us)}{idle}; "
                    f"the first at {format_wall_time(late.first_us)} of wall time"
                )
        return lines

    def _step_lines(self, step: StepWatermark) -> list[str]:
        text = f"step {step.step!r}: {format_watermark(step.watermark_us)}"
        if step.finished:
            text += ", finished"
        elif step.input is None:
            text += ", all its inputs are idle or finished"
        else:
            text += f"{self._since(step.since_us)}, held back by its input from {step.input!r}"
        late = [
            f"{format_rows(rows)} {what}"
            for rows, what in ((step.late_rows, "late"), (step.partly_late_rows, "partly late"))
            if rows
        ]
        lines = [", ".join([text, *late])]
        if step.leap is not None:
            who = "all inputs were idle" if step.leap.all_idle else "it did not wait for an idle input"
            lines.append(f"    {self._leap(step.leap)}: {who}")
            if step.lagging_partitions:
                names = ", ".join(map(repr, step.lagging_partitions))
                lines.append(f"    rows of {names} before {format_moment(step.leap.to_us)} are late since then")
        return lines

    def _leap(self, leap: IdleLeap) -> str:
        return (
            f"at {format_wall_time(leap.at_us)} of wall time the watermark went from {format_moment(leap.from_us)} "
            f"to {format_moment(leap.to_us)}"
        )

    def _since(self, since_us: int) -> str:
        return f" since {format_wall_time(since_us)} of wall time, {format_age(self.now_us - since_us)} ago"


def explain_watermark(
    job: str, reports: Iterable[tuple[int, Mapping[str, Any]]], reads_from: Mapping[str, Collection[str]]
) -> WatermarkExplanation:
    """Return the explanation.

    Parameters
    ----------
    reports : (member, what it last reported) of each member
    reads_from : names of the sources that each step is fed by, directly or not, in the order in which steps are shown
    """
    sources: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    steps: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    counters: dict[str, dict[str, int]] = {}
    now_us = 0
    for member, values in sorted(reports, key=lambda report: report[0]):
        event_time = values.get("event_time", {})
        now_us = max(now_us, event_time.get("now_us", 0))
        for source in event_time.get("sources", ()):
            sources.setdefault(source["vertex"], []).append((member, source))
        for step in event_time.get("steps", ()):
            steps.setdefault(step["vertex"], []).append((member, step))
        for name, vertex in values.get("vertices", {}).items():
            for counter in ("late_rows", "partly_late_rows"):
                totals = counters.setdefault(name, {})
                totals[counter] = totals.get(counter, 0) + int(vertex.get(counter, 0))
    explained = tuple(_source(name, processors, now_us) for name, processors in sources.items())
    # Steps behind one that stamps rows with the wall clock have watermarks, too, and no source that makes them.
    timed = {name for name, found in steps.items() if any(step["watermark_us"] is not None for _, step in found)}
    order = [
        name
        for name, fed_by in reads_from.items()
        if name in steps and (name in timed or not sources.keys().isdisjoint(fed_by))
    ]
    return WatermarkExplanation(
        job,
        now_us,
        explained,
        tuple(
            _step(name, steps[name], counters.get(name, {}), [s for s in explained if s.source in reads_from[name]])
            for name in order
        ),
    )


def _source(name: str, processors: Sequence[tuple[int, Mapping[str, Any]]], now_us: int) -> SourceWatermark:
    known = [p["watermark_us"] for _, source in processors for p in source["partitions"]]
    furthest = max((watermark for watermark in known if watermark is not None), default=None)
    partitions = [
        _partition(name, member, source, partition, furthest, now_us)
        for member, source in processors
        for partition in source["partitions"]
    ]
    shown = tuple(sorted(partitions, key=lambda partition: (*_lowest_first(partition), partition.partition)))
    waited_for = [partition for partition in shown if partition.state not in ("idle", "finished")]
    live = [source for _, source in processors if not source["idle"] and not source["finished"]]
    reached = [source["watermark_us"] for source in live or [source for _, source in processors]]
    leaps = [source["leap"] for _, source in processors if source["leap"] is not None]
    last = max(leaps, key=lambda leap: leap["at_us"], default=None)
    return SourceWatermark(
        name,
        None if live and None in reached else _reached(reached, lowest=bool(live)),
        next((source["policy"] for _, source in processors if source["policy"]), ""),
        sum(source["partition_count"] for _, source in processors),
        all(source["idle"] for _, source in processors),
        all(source["finished"] for _, source in processors),
        min(waited_for, key=_lowest_first, default=None),
        shown,
        None if last is None else IdleLeap(**last),
    )


def _reached(watermarks: Sequence[int | None], *, lowest: bool) -> int | None:
    """The lowest of those that are waited for; if nobody is, the highest that was sent."""
    known = [watermark for watermark in watermarks if watermark is not None]
    return (min if lowest else max)(known, default=None)


def _partition(
    source_name: str,
    member: int,
    source: Mapping[str, Any],
    partition: Mapping[str, Any],
    furthest: int | None,
    now_us: int,
) -> PartitionWatermark:
    watermark = partition["watermark_us"]
    state = _state(source, partition)
    return PartitionWatermark(
        source_name,
        partition["partition"],
        member,
        source["processor"],
        watermark,
        0 if watermark is None or furthest is None else furthest - watermark,
        state,
        partition["raised_us"],
        partition["rows_us"],
        partition["idle_in_us"],
        _waits_for(state, source, partition, now_us),
        None if partition["overtaken"] is None else LateBehindSource(**partition["overtaken"]),
    )


def _state(source: Mapping[str, Any], partition: Mapping[str, Any]) -> str:
    if partition["finished"] or source["finished"]:
        return "finished"
    if partition["idle"]:
        return "idle"
    if source["blocked"]:
        return "blocked"
    if not partition["opened"]:
        return "unread"
    return "silent" if partition["silent_us"] else "reading"


def _waits_for(state: str, source: Mapping[str, Any], partition: Mapping[str, Any], now_us: int) -> str:
    if state == "finished":
        return "nothing more will come"
    if state == "blocked":
        return "it waits for room downstream: a later step is slower than the source"
    if state == "unread":
        return "it waits to be opened"
    rows_us = partition["rows_us"]
    last = "no row has come yet" if rows_us is None else f"its last rows came {format_age(now_us - rows_us)} ago"
    later = "it waits for a row"
    if partition["needs_us"] is not None:
        later += f" later than {format_moment(partition['needs_us'])}"
    if state == "idle":
        return f"{last}; nobody waits for it"
    if partition["idle_in_us"] is None:
        return f"{last}; {later}, however long that takes: it is never idle"
    in_us = format_age(partition["idle_in_us"])
    return f"{last}; {later}, or until it has been silent for another {in_us} and counts as idle"


def _step(
    name: str,
    processors: Sequence[tuple[int, Mapping[str, Any]]],
    counters: Mapping[str, int],
    sources: Sequence[SourceWatermark],
) -> StepWatermark:
    live = [(m, s) for m, s in processors if not s["finished"] and not s["idle"]]
    member, step = min(
        live or list(processors), key=lambda p: (p[1]["watermark_us"] is not None, p[1]["watermark_us"] or 0)
    )
    leaps = [s["leap"] for _, s in processors if s["leap"] is not None]
    last = max(leaps, key=lambda leap: leap["at_us"], default=None)
    lagging: list[str] = []
    if last is not None:
        lagging = [
            partition.partition
            for source in sources
            for partition in source.partitions
            if partition.state != "finished"
            and (partition.watermark_us is None or partition.watermark_us < last["to_us"])
        ]
    return StepWatermark(
        name,
        member,
        step["processor"],
        step["watermark_us"],
        step["since_us"],
        all(s["idle"] for _, s in processors),
        all(s["finished"] for _, s in processors),
        step["input"],
        step["input_watermark_us"],
        counters.get("late_rows", 0),
        counters.get("partly_late_rows", 0),
        None if last is None else IdleLeap(**last),
        tuple(lagging),
    )


def _lowest_first(partition: PartitionWatermark) -> tuple[bool, int]:
    return partition.watermark_us is not None, partition.watermark_us or 0


def format_moment(time_us: int | None) -> str:
    """Return a time as text in UTC: "2024-01-01 00:00:59.5"."""
    if time_us is None or time_us == MIN_TIME:
        return "the beginning"
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us} us"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")


def format_watermark(watermark_us: int | None) -> str:
    """Return where a watermark is, as text."""
    return "without a watermark yet" if watermark_us is None else f"at {format_moment(watermark_us)}"


def format_wall_time(time_us: int) -> str:
    """Return wall time as text in UTC, to the millisecond."""
    return format_moment(time_us // 1000 * 1000)


def format_rows(rows: int) -> str:
    """Return "1 row", "2 rows"."""
    return f"{rows:,} row{'' if rows == 1 else 's'}"


def format_age(duration_us: int) -> str:
    """Return a length of wall time, rounded to what is worth reading: "2m 3s", "150ms"."""
    unit_us = 1_000_000 if duration_us >= 10_000_000 else 1_000
    return format_duration(max(0, round(duration_us / unit_us) * unit_us))
