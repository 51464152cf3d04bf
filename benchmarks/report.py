"""What a comparison found: one entry per goal, case and peer; the machine; and a table of them for people."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.measure import Clock, Cost
from jetfast import __version__


class Goal(NamedTuple):
    """What a ratio must reach, and about what prototypes reached; None: it is shown beside those that must."""

    number: int
    gate: float | None = None
    stretch: float | None = None


@dataclass(frozen=True)
class Entry:
    """One line of the report. `value` is the peer's seconds over ours, higher is better; or as `unit` and `better` say.

    `goal` is null for what is measured beside the goals. Without a gate it counts as passed.
    """

    goal: int | None
    name: str
    case: str
    peer: str
    unit: str
    value: float
    better: str
    gate: float | None
    stretch: float | None
    passed: bool
    cpu_s: float
    peer_cpu_s: float
    wall_s: float
    peer_wall_s: float
    rows: int
    answers_equal: bool


def ratio(
    name: str, case: str, peer: str, ours: Cost, theirs: Cost, rows: int, answers_equal: bool, goal: Goal | None = None,
    clock: Clock = "cpu_s",
) -> Entry:  # fmt: skip
    """Return the entry of a ratio of seconds."""
    value = getattr(theirs, clock) / getattr(ours, clock)
    number, gate, stretch = (goal.number, goal.gate, goal.stretch) if goal is not None else (None, None, None)
    return Entry(
        goal=number,
        name=name,
        case=case,
        peer=peer,
        unit="ratio",
        value=round(value, 3),
        better="higher",
        gate=gate,
        stretch=None if stretch is None else round(stretch, 3),
        passed=gate is None or value >= gate,
        cpu_s=round(ours.cpu_s, 5),
        peer_cpu_s=round(theirs.cpu_s, 5),
        wall_s=round(ours.wall_s, 5),
        peer_wall_s=round(theirs.wall_s, 5),
        rows=rows,
        answers_equal=answers_equal,
    )


def milliseconds(
    name: str, case: str, peer: str, value_ms: float, ours: Cost, theirs: Cost, rows: int, answers_equal: bool,
    goal: Goal,
) -> Entry:  # fmt: skip
    """Return the entry of a time, of which less is better; at least a microsecond, so that none looks like none."""
    value = max(value_ms, 0.001)
    return Entry(
        goal=goal.number, name=name, case=case, peer=peer, unit="ms", value=round(value, 3), better="lower",
        gate=goal.gate, stretch=goal.stretch, passed=goal.gate is None or value <= goal.gate,
        cpu_s=round(ours.cpu_s, 5), peer_cpu_s=round(theirs.cpu_s, 5), wall_s=round(ours.wall_s, 5),
        peer_wall_s=round(theirs.wall_s, 5), rows=rows, answers_equal=answers_equal,
    )  # fmt: skip


def machine() -> dict[str, object]:
    """Where this ran, and with what."""
    model = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    names = ["pyarrow", "numpy", "polars", "duckdb", "pyspark"]
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "versions": {"jetfast": __version__} | {name: importlib.metadata.version(name) for name in names},
    }


def print_table(entries: list[Entry]) -> None:
    """For people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="jetfast beside its peers: seconds of the peer over ours", title_justify="left")
    for name in ("goal", "name", "case", "peer"):
        table.add_column(name)
    for name in ("ratio", "gate", "stretch", "jetfast", "peer", "ns/row"):
        table.add_column(name, justify="right")
    table.add_column("")
    for found in entries:
        seconds, peer_seconds = (
            (found.wall_s, found.peer_wall_s) if found.goal == 9 else (found.cpu_s, found.peer_cpu_s)
        )
        table.add_row(
            str(found.goal or ""), found.name, found.case, found.peer, 
            f"{found.value:.2f}" if found.unit == "ratio" else f"{found.value:.2f} {found.unit}",
            f"{found.gate:g}" if found.gate is not None else "",
            f"{found.stretch:g}" if found.stretch is not None else "",
            f"{seconds:.4f} s", f"{peer_seconds:.4f} s", f"{seconds / found.rows * 1e9:.2f}", verdict(found),
        )  # fmt: skip
    console = Console()
    console.width = max(console.width, 160)  # a narrow terminal wraps lines; a cut cell would say nothing
    console.print(table)


def verdict(found: Entry) -> str:
    """One word, coloured."""
    if not found.answers_equal:
        return "[red]answers differ"
    if not found.passed:
        return "[red]missed"
    if found.gate is None:
        return ""
    return "[green]stretch" if found.stretch is not None and found.value >= found.stretch else "[green]gate"
