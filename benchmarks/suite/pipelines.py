"""Pipelines that benchmarks run through the public API, and a sink that only counts."""

from collections.abc import Sequence

import pyarrow as pa

import jetfast as jf
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Source
from jetfast.core.windows import AnyWindow


class CountingSink:
    """Takes rows and drops them; the number is the vertex's rows_in in the job's metrics."""

    name = "counting"
    cooperative = True
    sink_delivery = Delivery.IDEMPOTENT  # nothing is left of a row, however often it comes
    parallelism_one = False
    target = None

    def check(self, schema: pa.Schema) -> None:
        """Any rows will do."""

    def check_target(self) -> None:
        """There is none."""

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> "CountingSink":
        return self

    def write(self, batch: Batch) -> None:
        """The batch is recycled when this returns."""

    def flush(self) -> None:
        """Nothing is kept back."""

    def finish(self) -> None:
        """Nothing to make visible."""

    def abort(self) -> None:
        """Nothing to undo."""


def sliding_pipeline(
    rows: Sequence[pa.RecordBatch] | Source,
    sink: object,
    lag: str = "50ms",
    window: AnyWindow = jf.sliding("10s", "100ms"),  # noqa: B008
) -> jf.Pipeline:
    """Rows in memory -> count and mean by key over 10 s, every 100 ms -> sink."""
    pipeline = jf.Pipeline("sliding")
    events = pipeline.read(jf.memory(list(rows)) if isinstance(rows, Sequence) else rows, name="events")
    windows = (
        events.with_event_time("time", jf.watermarks.fixed_lag(lag))
        .group_by("key")
        .window(window)
        .agg(count=jf.count(), mean=jf.mean("value"), name="windows")
    )
    windows.write(sink)
    return pipeline
