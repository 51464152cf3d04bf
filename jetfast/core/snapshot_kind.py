"""What follows a snapshot that has succeeded."""

from enum import Enum


class SnapshotKind(Enum):
    """REGULAR: the job goes on. The other two end the execution when their phase 2 is over.

    TERMINAL: nothing is read any more after its barriers; the job is restarted, suspended, ...
    FINAL: all input has been taken in, so no barrier is sent; the job is completed.
    """

    REGULAR = "regular"
    TERMINAL = "terminal"
    FINAL = "final"

    @property
    def ends_execution(self) -> bool:
        """Is there nothing left to do when it has succeeded?"""
        return self is not SnapshotKind.REGULAR
