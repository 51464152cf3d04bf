"""Attacks the ports of running jobs, and meddles with what members and coordinator say to each other.

    python -m tests.fuzz.ports --seconds 600 [--seed N] [--json]

Jobs run one after the other, on real processes. Strangers, and holders of the token that are not who they say, try
what `attacks` has, at random ports; and between members and coordinator somebody alters, cuts, repeats, leaves out and
swaps messages (`meddler`), so that jobs lose their members now and then and begin again from a snapshot. Each job must
come to its end with each row once, no thread may end with an error, and nothing may stay open.

Exit code 0: all is as it should be; 1: it is not, and standard error says what.
"""

import argparse
import json
import math
import os
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from jetfast.errors import JetfastError
from tests.fuzz.attacked_job import AttackedJob
from tests.fuzz.attacks import ATTACKS, LetInError, fitting, reach
from tests.fuzz.meddler import Meddler

JOB_S = 30.0
"""So long a job is attacked at most, from when it runs."""
RATE = 5_000.0
MEDDLE_EVERY = 100
"""Messages of one direction of a connection, on average."""
MEDDLE_EVERY_HANDSHAKE = 4
LINGERERS_MAX = 100
"""Connections that say nothing and stay; more than handshakes may be under way."""
START_S = 300.0
BETWEEN = frozenset({"older execution", "connected already"})
"""Who comes with these while a member starts is let wait at its door, and dropped when the execution begins."""
DESCRIPTORS_MORE = 3
"""That this process may have open after a job, compared to before the first."""


class Fuzz:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.attacks: Counter[str] = Counter()
        self.meddled: Counter[str] = Counter()
        self.jobs = self.restarts = self.refusals = 0
        self.problems: list[str] = []

    def run(self, seconds: float) -> None:
        """Run jobs until the time is up; the last one may take a little longer to end."""
        end_s = time.monotonic() + seconds
        descriptors = None
        while time.monotonic() < end_s and not self.problems:
            with tempfile.TemporaryDirectory(prefix="jetfast-fuzz-") as folder:
                self._run_job(Path(folder), min(JOB_S, end_s - time.monotonic()))
            open_now = len(os.listdir("/proc/self/fd"))
            if descriptors is None:
                descriptors = open_now
            elif open_now > descriptors + DESCRIPTORS_MORE:
                self.problems.append(f"{open_now} descriptors are open after {self.jobs} jobs, {descriptors} after one")

    def _run_job(self, folder: Path, seconds: float) -> None:
        self.jobs += 1
        meddler = Meddler(MEDDLE_EVERY, MEDDLE_EVERY_HANDSHAKE, Random(self.random.random()))
        with closing(meddler), closing(AttackedJob(folder, RATE, meddler.address_for)) as attacked:
            try:
                self._attack(attacked, seconds)
                found = attacked.finish()
            except (JetfastError, TimeoutError, AssertionError) as error:
                self.problems.append(f"job {self.jobs}: {type(error).__name__}: {error}")
            else:
                if any((found.lost, found.duplicated, found.wrong, found.left)):
                    self.problems.append(f"job {self.jobs}: {found}")
            self.restarts += attacked.job.metrics["restarts"]
            self.refusals += sum("refused" in line or "turned away" in line for line in attacked.log.lines)
            self.problems += [f"job {self.jobs}: {failure}" for failure in attacked.log.failures]
            self.meddled += meddler.done

    def _attack(self, attacked: AttackedJob, seconds: float) -> None:
        lingerers: list[socket.socket] = []
        try:
            self._attack_for(attacked, seconds, lingerers)
        finally:
            for connected in lingerers:
                connected.close()

    def _attack_for(self, attacked: AttackedJob, seconds: float, lingerers: list[socket.socket]) -> None:
        waiting_since_s = time.monotonic()
        end_s = math.inf
        while (now_s := time.monotonic()) < end_s:
            if attacked.job.runner.has_ended:
                return
            if not attacked.runs:
                if now_s > waiting_since_s + START_S:
                    raise TimeoutError(f"it does not run: {attacked.job.explain_snapshot()}")
                threading.Event().wait(0.01)
                continue
            waiting_since_s = now_s
            end_s = min(end_s, now_s + seconds)
            try:
                port = self.random.choice(attacked.ports())
            except KeyError:  # a member is lost at this moment
                continue
            name = self.random.choice(fitting(port))
            try:
                if self.random.randrange(4) == 0:
                    lingerers.append(reach(port))
                    if len(lingerers) > LINGERERS_MAX:
                        lingerers.pop(self.random.randrange(len(lingerers))).close()
                ATTACKS[name].attempt(port, self.random)
            except ConnectionError:
                continue  # that member is being replaced
            except TimeoutError as error:
                raise TimeoutError(f"{name} at {port.listener}: the port keeps the connection") from error
            except LetInError:
                if name not in BETWEEN:
                    raise
            self.attacks[name] += 1


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.ports", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args(arguments)
    fuzz = Fuzz(options.seed)
    fuzz.run(options.seconds)
    for problem in fuzz.problems:
        print(f"seed {options.seed}: {problem}", file=sys.stderr)
    figures: dict[str, Any] = {
        "jobs": fuzz.jobs,
        "attacks": fuzz.attacks.total(),
        "attacks_by_kind": dict(sorted(fuzz.attacks.items())),
        "messages_meddled_with": dict(sorted(fuzz.meddled.items())),
        "lines_of_refusal": fuzz.refusals,
        "restarts": fuzz.restarts,
        "problems": len(fuzz.problems),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name}: {value}")
    return 1 if fuzz.problems else 0


if __name__ == "__main__":
    sys.exit(main())
