"""The contract of sinks that cannot take back what they have given, but know a publication that comes again.

Brokers that drop messages with an id they have seen, and the process that submitted a job. Rows are kept in the
snapshot and published in its phase 2, and again after a restart from it; each batch of rows under an id of its own,
which never changes. The price: all rows since the last snapshot are part of the next one.
"""

from typing import Protocol

import pyarrow as pa

from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Sink

UNPUBLISHED = "unpublished"
"""Kind of the state that holds rows which are published when the snapshot is decided (`StateBatch.kind`)."""


class Publisher(Protocol):
    """Publishes rows. Belongs to one processor, called by one thread; may block."""

    def publish(self, publication: str, rows: pa.RecordBatch) -> None:
        """Give rows away under an id, and return when they cannot get lost any more.

        The same id always comes with the same rows, from any process, and must have an effect once. Of single messages
        (publication, number of the row) is an id. RestartableError if it is not certain that they have arrived.
        """

    def close(self) -> None:
        """Release connections. Called once."""


class PublishingSink(Sink, Protocol):
    """A sink that publishes rows when their snapshot is decided. Used so for EXACTLY_ONCE only.

    Its `sink_delivery` is PUBLISHING.
    """

    def open_publisher(self, schema: pa.Schema, context: ProcessorContext) -> Publisher:
        """Open the publisher of processor `context.index` of `context.parallelism`."""
