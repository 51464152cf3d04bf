"""A job on processes whose ports are attacked: where they are, what is logged, and what becomes of the rows."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import jetfast as jf
from jetfast.clusters import processes
from jetfast.clusters.member_processes import MemberProcesses
from jetfast.control.endpoint import Address
from jetfast.control.member_links import OnEnd
from jetfast.control.remote_member import MemberTask
from jetfast.control.wire import COORDINATOR
from jetfast.core.crash_points import set_crash_hook
from tests.chaos.hunted_pipeline import hunted_pipeline
from tests.chaos.targets import Found, Target
from tests.chaos.watched import Watched, end_source
from tests.chaos.works import ROWS_MARGIN
from tests.fuzz.attacks import Port

MEMBERS = 2
END_S = 300.0


class AttackedJob:
    """Submitted when it is made; `close` it. Only one at a time in a process.

    `address_for` is asked what members shall take for the coordinator's address.
    """

    def __init__(self, folder: Path, rate: float, address_for: Callable[[Address], Address] = lambda own: own) -> None:
        self.target = Target("files", "attacked", str(folder))
        self.log = LogLines()
        self._folder = folder
        self._rate = rate
        self._began_s = time.monotonic()
        self._carrier = _ListedProcesses(address_for)
        self._excepthook = threading.excepthook
        logging.getLogger("jetfast").addHandler(self.log)
        threading.excepthook = self.log.take_failure
        pipeline = hunted_pipeline(self.target.sink(), rate, Watched(folder))
        store = jf.snapshots.directory(folder / "snapshots")
        cluster = jf.ProcessCluster(MEMBERS, snapshot_store=store)
        with mock.patch.object(processes, "MemberProcesses", return_value=self._carrier):
            self.job = cluster.submit(pipeline, name=self.target.job, snapshot_interval="50ms", progress=False)

    @property
    def runs(self) -> bool:
        """Do rows flow, and are all ports there?"""
        return self.job.status is jf.JobStatus.RUNNING and self.job.metrics["rows_read"] > 0

    def ports(self) -> Sequence[Port]:
        """The coordinator's, and those of members to which others connect. The job must be running."""
        runner = self.job.runner
        task = self._carrier.tasks[0]
        addresses = {COORDINATOR: task.coordinator}
        for member in range(MEMBERS - 1):
            addresses[member] = Address.decode(runner.members[member].registered.address)
        execution_id = runner.coordinator.execution_id
        return [Port(address, listener, task.token, MEMBERS, execution_id) for listener, address in addresses.items()]

    def finish(self) -> Found:
        """Let the job come to its end, and compare. Raises what it failed with."""
        rows = int(self._rate * (time.monotonic() - self._began_s) * ROWS_MARGIN)
        end_source(self._folder, rows)
        self.job.wait(END_S)
        return self.target.compare(rows)

    def close(self) -> None:
        """Nothing of it runs after this."""
        self.job.cancel()
        self.job.runner.wait(END_S)
        set_crash_hook(None)
        threading.excepthook = self._excepthook
        logging.getLogger("jetfast").removeHandler(self.log)


class LogLines(logging.Handler):
    """Keeps what a job and its members log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.failures: list[str] = []
        """What nobody has thought of: tracebacks, and threads that ended with an error."""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        self.lines.append(line)
        if record.exc_info or "Traceback" in line:
            self.failures.append(f"{line} {record.exc_info}")

    def take_failure(self, failure: threading.ExceptHookArgs) -> None:
        self.failures.append(f"{failure.thread} ended with {failure.exc_value!r}")


class _ListedProcesses(MemberProcesses):
    """Keeps what members are told."""

    def __init__(self, address_for: Callable[[Address], Address]) -> None:
        super().__init__()
        self.tasks: list[MemberTask] = []
        self._address_for = address_for

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        self.tasks.append(task)
        told = replace(task, coordinator=self._address_for(task.coordinator))
        return super().start(group, description, told, on_end)
