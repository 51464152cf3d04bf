"""Windows by key in one stage: takes rows, gives one row per key and window when the watermark has passed its end."""

from collections.abc import Iterable

from jetfast.core.batch import BatchRun
from jetfast.core.items import Output
from jetfast.core.processor import ProcessorContext
from jetfast.core.top_results import TopResults
from jetfast.core.windows import Window
from jetfast.kernels.windows import WindowTable
from jetfast.processors.batch_tables import BatchWindowTable
from jetfast.processors.keyed_window import KeyedWindow


class SlidingWindowProcessor(KeyedWindow[Window, WindowTable | BatchWindowTable]):
    """Tumbling and sliding windows: judges which rows are late, and gives those that missed a window to port 1."""

    top: TopResults | None = None
    """Of the results of each window, only these are given. Not with aggregates over batches."""

    def make_table(self, context: ProcessorContext) -> WindowTable | BatchWindowTable:
        window = self.window
        table = WindowTable(
            *self.table_arguments(),
            window.size_us,
            window.slide_us,
            window.offset_us,
            context.partition_count,
            context.partitions,
        )
        if self.top is not None:
            table.keep_top(self.top.by, self.top.count, self.top.ascending, self.top.per)
        if not self.has_batch_aggregates:
            return table
        return BatchWindowTable(table, self.schema, len(self.keys), self.time, self.aggregates, window)

    def process_batches(self, ordinal: int, batches: BatchRun) -> Iterable[Output]:
        if self.collect_late:
            return [output for batch in batches for output in self.process(ordinal, batch)]
        self.table.accumulate_all(batches)
        self.count_rows()
        return ()
