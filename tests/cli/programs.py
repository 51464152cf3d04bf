"""Programs that tests of the command line start: waiting until their job has come so far."""

import subprocess
import threading
from collections.abc import Callable
from typing import Any

from jetfast.control.job_client import find_job, find_jobs
from jetfast.control.job_report import JobReport
from jetfast.errors import JobNotFound, JobUnreachable

PATIENCE_S = 120.0


def until(condition: Callable[[], Any], program: subprocess.Popen[str]) -> Any:
    """What the condition gives, once it is something; the program must live until then."""
    moment = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        if found := condition():
            return found
        assert program.poll() is None, program.communicate()
        moment.wait(0.02)
    raise AssertionError(f"{condition}: {find_jobs()}")


def running(but: int | None = None) -> JobReport | None:
    """The job, if it runs and has read rows, and not in the process `but`."""
    try:
        report = find_job("copy")[1]
    except (JobNotFound, JobUnreachable):
        return None
    return report if report.status == "running" and report.rows_read > 0 and report.pid != but else None
