"""Faults of the world around a hunted job: what each does, and what the job must do about it.

    store-full      no byte can be written to the store for some seconds: snapshots fail, and succeed again afterwards
    store-put-back  the store is replaced by an older copy of itself while nothing runs: the job refuses to start
    record-lost     the newest execution record is deleted while nothing runs: the job refuses to start
    state-cut       a file of saved state loses its end while nothing runs: the job refuses to start
    database-away   the database server stops, and starts again some seconds later
    connection-cut  a proxy before the database cuts connections, each after a random number of bytes

After a refusal what was taken away is put back, and the job continues.
"""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, get_args

Fault = Literal["store-full", "store-put-back", "record-lost", "state-cut", "database-away", "connection-cut"]
FAULTS: Sequence[Fault] = get_args(Fault)
OF_DATABASES: frozenset[Fault] = frozenset(("database-away", "connection-cut"))
REFUSED: frozenset[Fault] = frozenset(("store-put-back", "record-lost", "state-cut"))
"""A job that starts after one of these would lose rows or write them twice."""

STORE_BYTES = 64 * 1024 * 1024
"""Room of a store that is to become full: a file system of its own."""
LASTS_S = (0.5, 3.0)


@dataclass(frozen=True)
class PlannedFault:
    """One fault of a campaign."""

    kind: Fault
    lasts_s: float
    bytes_max: int
    """A connection is cut after so many bytes at most."""


def possible_faults(sink: str) -> list[Fault]:
    """Return the faults that a job with such a sink can meet."""
    return [fault for fault in FAULTS if sink == "postgres" or fault not in OF_DATABASES]


def plan_faults(count: int, seed: int, kinds: Sequence[Fault]) -> list[PlannedFault]:
    """Return `count` faults: each kind alike often, in an order drawn from the seed."""
    random = Random(f"{seed} faults")
    planned = [
        PlannedFault(kinds[number % len(kinds)], random.uniform(*LASTS_S), random.choice((1, 100, 10_000, 300_000)))
        for number in range(count)
    ]
    random.shuffle(planned)
    return planned


class Disk:
    """A file system of a few megabytes for one store, which can be filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        options = f"size={STORE_BYTES},mode=700"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "jetfast-chaos", str(folder)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"faults of stores mount a small tmpfs; run this as root: {done.stderr.strip()}")

    def fill(self) -> None:
        """Leave no room; called again, no room that was given back since."""
        with (self.folder / ".ballast").open("ab", buffering=0) as ballast:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    continue

    def empty(self) -> None:
        """Give the room back."""
        (self.folder / ".ballast").unlink()

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=False, capture_output=True)


def copy_store(store: Path, to: Path) -> None:
    """Copy what lies in a store, with times and modes, in place of what lies in `to`."""
    to.mkdir(exist_ok=True)
    for path in to.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(store, to, dirs_exist_ok=True, symlinks=True)


def newest_record(store: Path) -> Path:
    """Return the file of the newest execution record."""
    return max(store.glob("*/records/*"), key=lambda path: path.name)


def state_files(store: Path) -> list[Path]:
    """Return files of saved state, one of each area, the largest."""
    areas = [area for area in store.glob("*/areas/*") if area.is_dir()]
    files = [max((path for path in area.rglob("*") if path.is_file()), key=size_of, default=None) for area in areas]
    return [path for path in files if path is not None and size_of(path) > 0]


def size_of(path: Path) -> int:
    return path.stat().st_size


def cut_end(path: Path) -> None:
    """Take the second half of a file away."""
    with path.open("r+b") as file:
        file.truncate(size_of(path) // 2)
