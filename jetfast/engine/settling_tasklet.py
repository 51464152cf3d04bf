"""The tasklet of a processor in an execution that only settles transactions: it restores, and ends."""

from jetfast.core.processor import Processor
from jetfast.engine.snapshot_tasklet import SnapshotTasklet


class SettlingTasklet(SnapshotTasklet):
    """Opens and restores a processor that has transactions, which commits and rolls back; others are left alone."""

    __slots__ = ()

    def open(self) -> None:
        """Open the processor and give it back its state, if it commits anything."""
        if type(self.processor).commit is not Processor.commit:
            super().open()

    def call(self) -> bool:
        """There is nothing more to do."""
        self.finished = True
        return True
