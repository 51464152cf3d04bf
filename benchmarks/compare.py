"""Runs the goals side by side with other engines and prints one report.

    python -m benchmarks.compare [--goal N ...] [--peer NAME] [--quick] [--json]

Exit 0: all gates hold; 1: one missed; 2: answers differ. CPU time decides; everything runs on one thread.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import sys

# Before the peers are imported: they read these once.
os.environ["POLARS_MAX_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import pyarrow as pa

from benchmarks.goals import GOALS, Entry, Options, as_dict
from jetfast import __version__


def machine() -> dict[str, object]:
    """Where this ran, and with what."""
    model = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    names = ["pyarrow", "numpy", "polars", "duckdb"]
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {"jetfast": __version__} | {name: importlib.metadata.version(name) for name in names},
    }


def print_table(entries: list[Entry]) -> None:
    """For people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="jetfast beside its peers (CPU time, higher is better)", title_justify="left")
    for name in ("goal", "what", "case", "peer"):
        table.add_column(name)
    for name in ("ratio", "gate", "stretch", "jetfast", "peer", "M rows/s"):
        table.add_column(name, justify="right")
    table.add_column("")
    for found in entries:
        verdict = "[red]answers differ" if not found.answers_equal else "" if found.passed else "[red]missed"
        if not verdict and found.gate is not None:
            verdict = "[green]stretch" if found.stretch is not None and found.value >= found.stretch else "[green]gate"
        table.add_row(
            str(found.goal or ""), found.name, found.case, found.peer, f"{found.value:.2f}x",
            f"{found.gate}x" if found.gate else "", f"{found.stretch}x" if found.stretch else "",
            f"{found.cpu_s:.3f} s", f"{found.peer_cpu_s:.3f} s", f"{found.rows / found.cpu_s / 1e6:.0f}", verdict,
        )  # fmt: skip
    console = Console()
    console.width = max(console.width, 160)  # a narrow terminal wraps lines; a cut cell would say nothing
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.splitlines()[0])
    parser.add_argument("--goal", type=int, nargs="+", choices=sorted(GOALS), help="only these goals")
    parser.add_argument("--peer", help="only this peer: polars, polars-batch, duckdb, pyarrow, numpy")
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    options = Options(quick=arguments.quick, peer=arguments.peer)
    entries: list[Entry] = []
    for goal in arguments.goal or sorted(GOALS):
        if not arguments.json:
            print(f"goal {goal} ...", file=sys.stderr, flush=True)
        entries.extend(GOALS[goal](options))
    if arguments.json:
        print(
            json.dumps({"machine": machine(), "quick": options.quick, "goals": [as_dict(found) for found in entries]})
        )
    else:
        print_table(entries)
    if not all(found.answers_equal for found in entries):
        return 2
    return 0 if all(found.passed for found in entries) else 1


if __name__ == "__main__":
    sys.exit(main())
