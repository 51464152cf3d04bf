"""How soon a job on processes gives results again after a member was killed, with the windows of many keys open.

    python -m benchmarks.recovery [--keys 1000000] [--kills 5] [--members 2] [--gate SECONDS] [--json]

Keys take turns, so that of session windows so many are open at any time, while others close all the time: a result is
never far off. A member is killed by SIGKILL while rows flow and the last snapshot holds them all; the clock runs from
the kill until the first result leaves the new execution. Prints

    {"keys":..,"members":..,"snapshot_mb":..,"recovery_s":[..],"mean":..,"worst":..}

Exit 1 if the worst takes longer than the gate (default 2 s), 0 otherwise.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import mean

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import jetfast as jf
from benchmarks.suite.pipelines import CountingSink

RATE = 150_000.0
CLOSED = 0.1
"""Part of the keys that have no open window."""
PATIENCE_S = 120.0
RESULT = pa.schema({"rows": pa.int64()})


class TakingTurns:
    """Rows whose keys take turns, RATE of them in a second of event time."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, rows: npt.NDArray[np.int64], random: np.random.Generator) -> pa.RecordBatch:
        times = pa.array((rows * (1e6 / RATE)).astype(np.int64)).cast(pa.timestamp("us"))
        keys = rows % round(self.keys * (1 + CLOSED))
        return pa.record_batch({"key": keys, "time": times, "value": rows.astype(np.float64)})


class Noting:
    """Writes down, once an execution, when the first result came, and when the execution was made."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.made_s = time.monotonic()
        self.noted = False

    def __reduce__(self) -> tuple[Callable[[str], "Noting"], tuple[str]]:
        return Noting, (self.file,)  # unpickled in each execution

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.noted and batch.num_rows:
            self.noted = True
            line = f"{self.made_s} {time.monotonic()}\n".encode()
            with open(self.file, "ab", buffering=0) as file:
                file.write(line)
        return pa.record_batch({"rows": [batch.num_rows]}, schema=RESULT)


def first_result_s(file: Path, made_after_s: float, job: jf.Job) -> float:
    """Wait for the first result of an execution that began after some time; return when it came."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        notes = [tuple(map(float, line.split())) for line in file.read_text().splitlines()] if file.exists() else []
        found = [came_s for made_s, came_s in notes if made_s > made_after_s]
        if found:
            return min(found)
        if job.runner.wait(0.005) or time.monotonic() > give_up:
            raise TimeoutError(f"no result comes: the job is {job.status.value}, {job.error}")


def whole_snapshots(job: jf.Job, keys: int, after: int) -> dict[str, float]:
    """Wait for a snapshot that holds all keys, and is not one of the first `after`; return it."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        metrics = job.metrics
        found = [each for each in metrics["snapshots"] if each["bytes"] > 40 * keys and not each["errors"]]
        if metrics["snapshots_taken"] > after and found:
            return found[-1]
        if job.runner.wait(0.01) or time.monotonic() > give_up:
            raise TimeoutError(f"no snapshot holds {keys} keys: the job is {job.status.value}, {job.error}")


def recover(keys: int, members: int, kills: int, seed: int, folder: Path) -> dict[str, object]:
    """Run a job, kill its members, and return what is printed."""
    chosen = random.Random(seed)
    notes = folder / "notes"
    pipeline = jf.Pipeline("recovery")
    rows = pipeline.read(jf.generator(TakingTurns(keys), rate=RATE, partitions=members), name="rows")
    timed = rows.with_event_time("time", jf.watermarks.fixed_lag("0s"))
    windows = timed.group_by("key").window(jf.session(timedelta(seconds=keys / RATE)))
    results = windows.agg(count=jf.count(), mean=jf.mean("value"), name="windows")
    results.map_batches(Noting(str(notes)), schema=RESULT, name="noting").write(CountingSink())
    cluster = jf.ProcessCluster(members, snapshot_store=jf.snapshots.directory(folder / "snapshots"))
    recoveries: list[float] = []
    with cluster.submit(pipeline, snapshot_interval="1s", progress=False) as job:
        snapshot: dict[str, float] = {}
        for _ in range(kills):
            snapshot = whole_snapshots(job, keys, job.metrics["snapshots_taken"])
            job.runner.wait(chosen.uniform(0.0, 1.0))
            pid = chosen.choice(job.metrics["members"])["pid"]
            killed_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            recoveries.append(first_result_s(notes, killed_s, job) - killed_s)
            print(f"recovered in {recoveries[-1]:.2f} s", file=sys.stderr, flush=True)
        restarts = job.metrics["restarts"]
    if restarts != kills:
        raise AssertionError(f"{kills} kills, and {restarts} restarts")
    return {
        "keys": keys,
        "members": members,
        "snapshot_mb": round(snapshot["bytes"] / 1e6, 1),
        "recovery_s": [round(seconds, 3) for seconds in recoveries],
        "mean": round(mean(recoveries), 3),
        "worst": round(max(recoveries), 3),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gate", type=float, default=2.0, help="seconds that the worst may take")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="jetfast-recovery-") as folder, contextlib.redirect_stdout(sys.stderr):
        found = recover(parsed.keys, parsed.members, parsed.kills, parsed.seed, Path(folder))
    if parsed.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:>12}  {value}")
    return 0 if max(found["recovery_s"]) <= parsed.gate else 1  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
