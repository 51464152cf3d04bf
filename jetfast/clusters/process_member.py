"""What runs in a process that `member_processes` starts: one member, until it is let go or the submitter is gone.

    standard input    where to import from (JSON), then the task, token included; closed after that
    standard output   that of the submitter: what functions of the user print
    standard error    log records as lines (`log_lines`), and whatever else is written there

Nothing of it outlives the submitter: the connection to it ends with it, however that was, and then this process ends at
once, as in a crash. Ctrl-C of a terminal does not reach it: it leads a process group of its own.

When the member has ended the process does, whatever threads are left: one may wait for a store that hangs, or belong to
a function of the user. The interpreter is not taken down under them: C code of theirs would meet freed memory.
"""

import atexit
import contextlib
import faulthandler
import logging
import os
import sys
from typing import NoReturn

import msgspec

from jetfast.clusters.log_lines import LogLineHandler
from jetfast.control.endpoint import Address
from jetfast.control.remote_member import MemberTask, Surroundings, run_member
from jetfast.control.wire import Token
from jetfast.errors import JetfastError, ProtocolError, RestartableError, TransportError

START = "import json, sys; sys.path[:] = json.loads(sys.stdin.buffer.readline()); from {module} import main; main()"
"""Code for the interpreter; `{module}` is this one. The path of imports (`child_python`) is set before all else."""

LOST_STATUS = 75
"""Ends a process that could be this member no longer, though another one could (EX_TEMPFAIL of sysexits.h)."""

logger = logging.getLogger("jetfast.member")


class Told(msgspec.Struct, frozen=True):
    """What stands in standard input after the line for `sys.path`, as MessagePack."""

    member: int
    incarnation: int
    coordinator: str
    token: bytes
    log_level: int
    """As `MemberTask.log_level`."""
    lease_s: float


def encode_told(task: MemberTask) -> bytes:
    """Return what a member is told."""
    return msgspec.msgpack.encode(
        Told(task.member, task.incarnation, task.coordinator.encode(), bytes(task.token), task.log_level, task.lease_s)
    )


def main() -> NoReturn:
    """Be a member, then end this process."""
    faulthandler.enable()  # the submitter logs where it crashes
    try:
        status = _be_member()
    except SystemExit as asked:  # by what it imports for the job
        status = asked.code if isinstance(asked.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    end_process(status)


def end_process(status: int) -> NoReturn:
    """Call what asked for it, write out what was printed, and end this process under all its threads."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever read it has gone, or it is closed
            stream.flush()
    os._exit(status)


def _be_member() -> int:
    """Return the status of the process."""
    told = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Told)
    sys.stdin.close()
    logging.getLogger().addHandler(LogLineHandler())
    logging.getLogger("jetfast").setLevel(told.log_level)
    task = MemberTask(
        told.member,
        Address.decode(told.coordinator),
        Token(told.token),
        incarnation=told.incarnation,
        lease_s=told.lease_s,
    )
    try:
        # Whatever runs on one host is reached unless it has ended. The state of a job is in its store: no farewells.
        run_member(task, Surroundings(exit_grace_s=0.0, unreachable=TransportError))
    except (RestartableError, ProtocolError) as error:
        logger.info("%s", error)
        return LOST_STATUS
    except JetfastError as error:
        logger.error("%s", error)
        return 1
    return 0
