"""The processes that members are: started with the running interpreter, their logs read, killed for certain.

What a member must know goes through its standard input, which nobody else can read; not through its arguments or its
environment, which every process of the user can. A process is started by exec, never by fork alone: threads of this one
hold locks.
"""

import collections
import contextlib
import json
import logging
import signal
import subprocess
import sys
import threading
from typing import IO

from jetfast.clusters import process_member
from jetfast.clusters.child_python import import_path, interpreter_arguments
from jetfast.clusters.log_lines import log_line
from jetfast.control.lifeline import HeldLifeline
from jetfast.control.member_links import OnEnd
from jetfast.control.messages import Registered
from jetfast.control.remote_member import MemberTask
from jetfast.errors import MemberLostError, ResourcesError

logger = logging.getLogger("jetfast.member")

_LAST_LINES = 20
"""Of what a member wrote, kept for the message about one that did not start."""


class ProcessEnded(Exception):
    """A member's process has ended with a status other than 0."""

    def __init__(self, status: int, last_lines: str) -> None:
        super().__init__(_describe(status))
        self.status = status
        """As of `subprocess`: negative for a signal."""
        self.last_lines = last_lines


class MemberProcesses:
    """MemberCarrier: each member a process of this host, killed when it is lost and started anew."""

    def __init__(self, lifeline: HeldLifeline | None = None) -> None:
        """`lifeline` is that which members share with this process."""
        self._inherited = () if lifeline is None else (lifeline.descriptor,)
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        """Start a member's process; the thread reads what it logs and waits for its end."""
        if not sys.executable:
            raise OSError("sys.executable is empty: this program embeds Python, and there is no interpreter to start")
        process = subprocess.Popen(
            [*interpreter_arguments(), "-c", process_member.START.format(module=process_member.__name__)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=self._inherited,
            process_group=0,  # Ctrl-C at the terminal is for the submitter, which ends its members in order
        )
        with self._lock:
            self._processes[group] = process
        thread = threading.Thread(
            target=_attend, args=(process, task, on_end), name=f"jetfast-process-{task.member}", daemon=True
        )
        thread.start()
        return thread

    def cancel(self, group: str) -> None:
        """Kill the process that was started last as `group`."""
        with self._lock:
            process = self._processes.get(group)
        if process is not None:
            process.kill()

    def has_ended(self, registered: Registered) -> bool:
        """Its thread has waited for it."""
        return True

    def explain_start(self, member: int, error: Exception | None) -> Exception:
        """Return why a member did not come."""
        if isinstance(error, ProcessEnded):
            said = f"; it wrote:\n{error.last_lines}" if error.last_lines else ""
            another_may_come = error.status < 0 or error.status == process_member.LOST_STATUS
            kind = MemberLostError if another_may_come else ResourcesError
            return kind(f"member {member} did not start: its process {error}{said}")
        explained = ResourcesError(f"member {member} did not start: {error or 'its process ended at once'}")
        explained.__cause__ = error
        return explained

    def explain_absence(self, member: int, seconds: float) -> Exception:
        """Return what it means that a member has not come for so long."""
        return ResourcesError(
            f"member {member} did not start within {seconds:.0f} s: {sys.executable} takes so long to import jetfast, "
            "or this host is overloaded; start_timeout= of ProcessCluster sets the time"
        )

    def explain_end(self, error: Exception | None) -> str:
        """Return how a member that had come has ended."""
        return "its process ended by itself" if error is None else f"its process {error}"


def _attend(process: subprocess.Popen[bytes], task: MemberTask, on_end: OnEnd) -> None:
    """Tell a member what it must know, hand on what it logs, and tell of its end."""
    assert process.stdin is not None
    assert process.stderr is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already: its status says why
        process.stdin.write(json.dumps(import_path()).encode() + b"\n" + process_member.encode_told(task))
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    last_lines = _hand_on_lines(process.stderr, f"member {task.member}")
    status = process.wait()
    on_end(ProcessEnded(status, last_lines) if status else None)


def _hand_on_lines(lines: IO[bytes], who: str) -> str:
    """Log here what a member writes, until it has ended; return the last of it."""
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    with lines:
        for line in lines:
            text = line.decode(errors="replace")
            last.append(text)
            log_line(text, who, logger)
    return "".join(last).rstrip()


def _describe(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
