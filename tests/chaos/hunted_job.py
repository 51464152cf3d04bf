"""A hunted job from outside: runs the coordinator's program, again whenever it has been killed, and reads the notes."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from tests.chaos.faults import Disk
from tests.chaos.grounds import SHAPES, descendants_of, executor_of, kill_all, kill_driver
from tests.chaos.program import AWAY, REFUSED, Settings
from tests.chaos.targets import Target
from tests.chaos.watched import Order, end_source
from tests.chaos.works import Work

ROOT = Path(__file__).parents[2]
STUCK_S = 900.0
"""A job that shows nothing for so long is stuck, however slow the machine is."""
LOOK_S = 0.003
LOG_LINES = 60


class StuckError(Exception):
    """The job does not go on, or has failed."""


class Note(msgspec.Struct, frozen=True):
    """What a process of the job has noted, see `watched`."""

    what: str
    time_s: float
    pid: int
    execution_id: int = 0
    member: int = 0
    member_count: int = 0
    point: str = ""
    order: int = 0


@dataclass
class Execution:
    """What is known of one execution."""

    member_count: int
    processes: dict[int, int] = field(default_factory=dict)
    """Process id to descriptor, of members that read rows."""
    results_s: dict[int, float] = field(default_factory=dict)
    """Process id to when its first results came."""

    @property
    def flows(self) -> bool:
        """Have results come from all members?"""
        return len(self.results_s) == self.member_count


@dataclass(frozen=True)
class Death:
    """A process has obeyed an order."""

    time_s: float
    execution_id: int
    """The last one that had read rows."""
    by_coordinator: bool


class HuntedJob:
    """Runs from when it is made until `close`. `update` takes note of what has happened since."""

    def __init__(self, target: Target, work: Work, random: Random) -> None:
        self.target = target
        self.work = work
        self.folder = Path(target.folder)
        self.executions: dict[int, Execution] = {}
        self.deaths: dict[int, Death] = {}
        """By the number of the order."""
        self.shape = SHAPES[work.cluster][0]
        """Of the present coordinator."""
        self.next_shape: tuple[int, int] | None = None
        """Of the next one; None: as chance has it."""
        self.decided = 0
        """Snapshots."""
        self.completed = False
        self._random = random
        self._began_s = now_s()
        self._log = (self.folder / "log").open("ab")
        (self.folder / "notes").touch()
        self._notes = (self.folder / "notes").open("rb")
        self._begun = b""
        """What has been read of a note that is still being written: a reader may meet the end of a page within it."""
        self._coordinators: set[int] = set()
        self._frozen: int | None = None
        """Descriptor of the member that does not run at present."""
        self._frozen_program: subprocess.Popen[bytes] | None = None
        """Its coordinator, if that does not run either."""
        self.disk = Disk(self.folder / "snapshots") if work.faults else None
        """Of the store, where it may become full."""
        self._held = False
        self._refusal: str | None = None
        self._program = self._start()

    def close(self) -> None:
        """End it."""
        started = descendants_of(self._program.pid)
        self._program.kill()
        self._program.wait()
        kill_all(started)
        if self._frozen is not None:  # perhaps nobody's child any more
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._frozen, signal.SIGKILL)
            os.close(self._frozen)
        if self._frozen_program is not None:
            self._frozen_program.kill()
            self._frozen_program.wait()
        for execution in self.executions.values():
            for descriptor in execution.processes.values():
                os.close(descriptor)
        self._notes.close()
        self._log.close()
        if self.disk is not None:
            self.disk.close()

    @property
    def present(self) -> int:
        """The last execution that has read rows."""
        return max(self.executions, default=0)

    def flowing_after(self, execution_id: int) -> Execution | None:
        """Return the first execution, after this one, that has given results on all members."""
        later = (self.executions[number] for number in sorted(self.executions) if number > execution_id)
        return next((execution for execution in later if execution.flows), None)

    def kill_coordinator(self, *, with_members: bool = False) -> None:
        """SIGKILL; `update` starts the next."""
        started = descendants_of(self._program.pid) if with_members else []
        kill_driver(self._program.pid)
        kill_all(started)
        self._program.wait()

    def hold(self) -> None:
        """Kill the coordinator and its members; nothing is started until `start_again`."""
        self._held = True
        self.kill_coordinator(with_members=True)

    def start_again(self) -> None:
        """Start the coordinator after `hold`."""
        self._held = False
        self._refusal = None
        self._program = self._start()

    @property
    def refusal(self) -> str | None:
        """What the coordinator that was started last has said if it refused to start."""
        return self._refusal

    def kill_member(self, *, with_executor: bool = False) -> bool:
        """SIGKILL to any member of the present execution that is alive, or to its executor; False: there is none."""
        processes = self.executions[self.present].processes
        if not processes:
            return False
        member = self._random.choice(list(processes))
        descriptor = processes.pop(member)
        try:
            if with_executor:
                os.kill(executor_of(member), signal.SIGKILL)
                return True
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:  # it has ended with its coordinator
            return False
        finally:
            os.close(descriptor)
        return True

    def freeze_member(self, *, with_coordinator: bool = False) -> bool:
        """SIGSTOP to any member of the present execution that is alive; False: there is none.

        with_coordinator : to the coordinator, too, before; another one is started. (If it was killed, the kernel would
            wake a member that is stopped, by SIGHUP.)
        """
        processes = self.executions[self.present].processes
        if not processes:
            return False
        descriptor = processes.pop(self._random.choice(list(processes)))
        if with_coordinator:
            self._frozen_program = self._program
            self._program.send_signal(signal.SIGSTOP)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
        except ProcessLookupError:
            os.close(descriptor)
            if self._frozen_program is not None:
                self._frozen_program.send_signal(signal.SIGCONT)
                self._frozen_program = None
            return False
        self._frozen = descriptor
        if with_coordinator:
            self._program = self._start()
        return True

    def wake_member(self) -> bool:
        """SIGCONT to the one that was frozen; False: somebody has killed it."""
        assert self._frozen is not None
        if self.frozen_has_ended:
            return False
        signal.pidfd_send_signal(self._frozen, signal.SIGCONT)
        return True

    def wake_coordinator(self) -> None:
        """SIGCONT to the one that was frozen, if one was."""
        if self._frozen_program is not None:
            self._frozen_program.send_signal(signal.SIGCONT)

    @property
    def frozen_has_ended(self) -> bool:
        """Is the member gone that was frozen?"""
        assert self._frozen is not None
        return bool(select.select([self._frozen], [], [], 0)[0])

    @property
    def frozen_coordinator_has_ended(self) -> bool:
        """Is the coordinator gone that was frozen, or was there none?"""
        return self._frozen_program is None or self._frozen_program.poll() is not None

    def forget_frozen(self) -> None:
        """They are gone: others may be frozen."""
        assert self._frozen is not None
        os.close(self._frozen)
        self._frozen = self._frozen_program = None

    def place(self, order: Order) -> None:
        """Give an order to all processes."""
        order.place(self.folder)

    def end_source(self) -> int:
        """Let the job come to its end; return how many rows it will have read: more than have been given out by now."""
        (self.folder / "order.json").unlink(missing_ok=True)
        rows = self.work.rows_until(now_s() - self._began_s)
        end_source(self.folder, rows)
        return rows

    def update(self) -> None:
        """Read what has been noted, and start the coordinator again if it was killed."""
        for part in self._notes:
            self._begun += part
            if self._begun.endswith(b"\n"):
                self._take(msgspec.json.decode(self._begun, type=Note))
                self._begun = b""
        status = self._program.poll()
        if status is not None and self._held:
            return
        if status == REFUSED and self.work.faults:
            self._held = True
            self._refusal = self._last_lines()
        elif status == -signal.SIGKILL or (status == AWAY and self.work.faults):
            self._program = self._start()
        elif status:
            raise StuckError(f"the coordinator ended with status {status}:\n{self._last_lines()}")

    def explain(self) -> str:
        """Have the coordinator write what it waits for, and return the end of the log before and after that."""
        before = self._last_lines()
        self._program.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(2.0)
        return f"{before}\n----- asked for:\n{self._last_lines()}"

    def _take(self, note: Note) -> None:
        if note.what == "reads":
            execution = self.executions.setdefault(note.execution_id, Execution(note.member_count))
            with contextlib.suppress(ProcessLookupError):  # dead already
                execution.processes[note.pid] = os.pidfd_open(note.pid)
        elif note.what == "results":
            self.executions[note.execution_id].results_s[note.pid] = note.time_s
        elif note.what == "dies":
            self.deaths[note.order] = Death(note.time_s, self.present, note.pid in self._coordinators)
        elif note.what == "decided":
            self.decided += 1
        elif note.what == "completed":
            self.completed = True

    def _start(self) -> "subprocess.Popen[bytes]":
        self.shape = self._random.choice(SHAPES[self.work.cluster]) if self.next_shape is None else self.next_shape
        self.next_shape = None
        settings = Settings(self.target, self.work, *self.shape)
        command = [sys.executable, "-m", "tests.chaos.program", msgspec.json.encode(settings).decode()]
        program = subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log)
        self._coordinators.add(program.pid)
        return program

    def _last_lines(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])


def look_again() -> None:
    """Wait a moment, as between two updates."""
    threading.Event().wait(LOOK_S)


def now_s() -> float:
    """The clock of notes."""
    return time.monotonic()
