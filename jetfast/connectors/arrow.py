"""Rows back to the process that submitted the job, as Arrow."""

from dataclasses import dataclass

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobFailedError


def collect() -> "CollectSink":
    """A sink whose rows the submitter takes from the job, under the name of the step. All of them stay in its memory.

    With EXACTLY_ONCE they come when their snapshot is decided, each once for as long as the submitting process lives.
    """
    return CollectSink()


@dataclass(frozen=True)
class CollectSink:
    """See `collect`."""

    name: str = "collect"
    cooperative: bool = False  # handing over may wait for the submitter
    sink_delivery: Delivery = Delivery.PUBLISHING
    parallelism_one: bool = False
    target: str | None = None
    collects: bool = True
    """Tells the job handle which sinks it can take rows from."""

    def check(self, schema: pa.Schema) -> None:
        """Everything that Arrow holds can be collected."""

    def check_target(self) -> None:
        """Nothing outside the job is written."""

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> "CollectWriter":
        return CollectWriter(context)

    def open_publisher(self, schema: pa.Schema, context: ProcessorContext) -> "CollectWriter":
        return CollectWriter(context)


class CollectWriter:
    """Hands each batch to `ProcessorContext.deliver`."""

    def __init__(self, context: ProcessorContext) -> None:
        if context.deliver is None:
            raise JobFailedError(
                f"{context.vertex}: this cluster takes no rows back to the submitter; write files instead"
            )
        self.deliver = context.deliver
        self.vertex = context.vertex

    def write(self, batch: Batch) -> None:
        self.publish("", batch.to_arrow())

    def publish(self, publication: str, rows: pa.RecordBatch) -> None:
        self.deliver(self.vertex, rows, publication)

    def flush(self) -> None:
        """What was delivered is the submitter's."""

    def finish(self) -> None:
        """Everything has been delivered."""

    def abort(self) -> None:
        """What has been delivered stays with the submitter."""

    def close(self) -> None:
        """Nothing is held."""
