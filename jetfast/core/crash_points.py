"""The places of a snapshot round, by name, at which tests let a member or the coordinator crash (SEMANTICS 4).

Code calls `reach` where it stands at one of them, a few times a snapshot and never on the way of rows. Without a hook
that does nothing. A hook may raise, end the process, or take note.
"""

from collections.abc import Callable
from typing import Literal, get_args

CrashPoint = Literal[
    "before_barrier",  # a processor has its barrier on all inputs and has saved nothing yet
    "after_state_saved",  # its state is frozen, nothing is stored
    "after_ids_saved",  # its state is stored, ids of transactions included; nothing is prepared
    "after_prepare",
    "before_ack",
    "before_validation_record",
    "between_records",
    "after_execution_record",
    "before_phase2",
    "between_two_commits",
    "after_commit_before_ack",
    "restore_before_commit",
    "restore_between_commit_and_rollback",
]
CRASH_POINTS: tuple[CrashPoint, ...] = get_args(CrashPoint)

_hook: Callable[[CrashPoint], None] | None = None


def reach(point: CrashPoint) -> None:
    """Tell the hook, if there is one, that the caller stands at `point`."""
    if _hook is not None:
        _hook(point)


def set_crash_hook(hook: Callable[[CrashPoint], None] | None) -> None:
    """Have `hook` called at each crash point of this process, by whatever thread comes there; None: nobody."""
    global _hook
    _hook = hook
