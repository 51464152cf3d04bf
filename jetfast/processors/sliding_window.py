"""Windows by key in one stage: takes rows, gives one row per key and window when the watermark has passed its end."""

from jetfast.core.processor import ProcessorContext
from jetfast.core.windows import Window
from jetfast.kernels.windows import WindowTable
from jetfast.processors.keyed_window import KeyedWindow


class SlidingWindowProcessor(KeyedWindow[Window, WindowTable]):
    """Tumbling and sliding windows: judges which rows are late, and gives those that missed a window to port 1."""

    def make_table(self, context: ProcessorContext) -> WindowTable:
        window = self.window
        return WindowTable(
            *self.table_arguments(),
            window.size_us,
            window.slide_us,
            window.offset_us,
            context.partition_count,
            context.partitions,
        )
