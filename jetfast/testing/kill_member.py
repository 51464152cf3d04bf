"""Lets a member of a job on a LocalCluster die, as a process does that is killed."""

from typing import Protocol, runtime_checkable

from jetfast.control.job import Job


@runtime_checkable
class _Killable(Protocol):
    def kill(self) -> None: ...


def kill_member(job: Job, member: int = 0) -> None:
    """End a member of a running job without a word: its threads stop where they are, nothing is flushed or closed.

    Returns at once; its threads end when what they are in has returned. With a guarantee the job begins again from its
    last snapshot; without, it fails with MemberLostError. Raises ValueError if the job has no such member, or none that
    can be killed like this.
    """
    view = job.runner.members.get(member)
    if view is None or not isinstance(view.link, _Killable):
        raise ValueError(f"job {job.name!r} has no member {member} in this process that could be killed")
    view.link.kill()
