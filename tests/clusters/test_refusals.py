"""Ports of a running job refuse who does not belong there, say so in the log, and the job is unharmed."""

import re
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

import jetfast as jf
from tests.chaos.targets import Found
from tests.fuzz.attacked_job import AttackedJob
from tests.fuzz.attacks import ATTACKS, fitting

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < give_up, what
        threading.Event().wait(0.005)


def test_each_attack_is_refused_with_a_line_in_the_log_and_the_job_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    random = Random(1)
    tried = set()
    with closing(AttackedJob(tmp_path, rate=5_000.0)) as attacked:
        until(lambda: attacked.runs, "the job runs")
        for port in attacked.ports():
            for name in fitting(port):
                tried.add(name)
                before = len(attacked.log.lines)
                ATTACKS[name].attempt(port, random)
                refusal = re.compile(ATTACKS[name].refusal)
                until(
                    lambda before=before, refusal=refusal: any(map(refusal.search, attacked.log.lines[before:])),  # type: ignore[misc]
                    f"{name} at {port.listener} is refused with {refusal}, in {attacked.log.lines[before:]}",
                )
        assert tried == set(ATTACKS)
        assert attacked.job.status is jf.JobStatus.RUNNING
        found = attacked.finish()
        assert found == Found(found.rows, lost=0, duplicated=0, wrong=0, left=0)
        assert attacked.job.metrics["restarts"] == 0
        assert attacked.log.failures == []
