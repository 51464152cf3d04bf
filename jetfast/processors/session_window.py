"""Sessions by key: takes rows, gives one row per key and session when the watermark has passed the session's end."""

from jetfast.core.processor import ProcessorContext
from jetfast.core.windows import SessionWindow
from jetfast.kernels.sessions import SessionTable
from jetfast.processors.batch_tables import BatchSessionTable
from jetfast.processors.keyed_window import KeyedWindow


class SessionWindowProcessor(KeyedWindow[SessionWindow, SessionTable | BatchSessionTable]):
    """Sessions: late rows, those with a time below the watermark, go to port 1; their `missed_until` is null."""

    state_kind = "sessions"

    def make_table(self, context: ProcessorContext) -> SessionTable | BatchSessionTable:
        table = SessionTable(
            *self.table_arguments(), self.window.timeout_us, context.partition_count, context.partitions
        )
        if not self.has_batch_aggregates:
            return table
        return BatchSessionTable(table, self.schema, len(self.keys), self.time, self.aggregates)
