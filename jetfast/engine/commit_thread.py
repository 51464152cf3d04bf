"""Phase 2 of a processor that blocks, on a thread of its own: a commit never waits behind a write of the same sink.

    the processor's thread    process, save_snapshot, prepare, ...................... commit, answer
    this thread                                                commit_prepared ->

An outside system keeps locks for what is prepared. If a statement of another user waits for such a lock, the next write
of the sink waits behind that statement. Only the commit ends both waits, so it must not wait for the write's thread.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from jetfast.core.processor import Processor
from jetfast.engine.snapshot_context import SnapshotEnding
from jetfast.engine.state_writer import StateWriterThread

if TYPE_CHECKING:
    from jetfast.engine.snapshot_tasklet import SnapshotTasklet


class CommitThread(StateWriterThread):
    """Calls `commit_prepared` and `end_commits` of one processor.

    Parameters
    ----------
    tasklet : of the processor; its `committed` tells which phase 2 is done
    on_error : called with what went wrong, from this thread
    wake : wakes the tasklet's worker
    """

    def __init__(
        self,
        name: str,
        tasklet: "SnapshotTasklet",
        on_error: Callable[[BaseException], None],
        wake: Callable[[], None],
    ) -> None:
        super().__init__(name)
        self.tasklet = tasklet
        self.processor: Processor = tasklet.processor
        self.on_error = on_error
        self.wake = wake

    def commit_soon(self, ending: SnapshotEnding) -> None:
        """Begin phase 2 of a round that succeeded. Any thread; returns at once."""
        self(lambda: self.commit(ending))

    def commit(self, ending: SnapshotEnding) -> None:
        """On this thread."""
        try:
            self.tasklet.commit_prepared(self.processor, ending)
        except BaseException as error:
            self.on_error(error)
        else:
            self.wake()

    def end(self) -> None:
        """Finish what was begun, and release what commits use. Called once, when the processor is closed."""
        if self.thread.ident is None:
            return  # it was never started, so nothing was committed
        self(self.release)
        self.stop(finish=True)
        self.thread.join()

    def release(self) -> None:
        """On this thread."""
        try:
            self.processor.end_commits()
        except BaseException as error:
            self.on_error(error)
