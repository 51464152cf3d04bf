"""What a source implements whose system forgets a message when it is acknowledged (RabbitMQ, JMS, SQS).

Such a Source is one of `core.source` with these differences:

- `source_delivery` is ACKNOWLEDGING. Its partitions are its queues; every processor reads all of them, and each message
  comes to one of them.
- Its readers give a receipt and, if the message has one, an id with each row (`Rows.receipts`, `Rows.message_ids`), and
  acknowledge by receipt. Positions mean nothing.

Messages are acknowledged in phase 2 of the snapshot that covers them. Whatever is not acknowledged comes again, and is
known by its id: `processors.acknowledging_source` keeps ids for that.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from jetfast.core.guarantee import Delivery
from jetfast.core.source import PartitionReader, Source, source_delivery

REDELIVERY_RETENTION_US = 3_600_000_000
"""How long ids of messages are kept that may come again, unless the source says otherwise: 1 hour."""


class AcknowledgingReader(PartitionReader, Protocol):
    """Reads one queue, from one thread. Stays open when the queue has ended, until the processor is closed."""

    @property
    def confirms(self) -> bool:
        """Has the system confirmed an acknowledgement when `acknowledge` returns? If not, it may be lost on the way."""

    def acknowledge(self, receipts: Sequence[Any]) -> None:
        """The system may forget these messages. RestartableError if that is not certain and `confirms` says it were."""


class AcknowledgingSource(Source, Protocol):
    """A Source whose readers are AcknowledgingReaders."""

    @property
    def redelivery_retention_us(self) -> int:
        """How long after a restart a message may come again at most, microseconds."""


def is_acknowledging(source: Source) -> bool:
    return source_delivery(source) is Delivery.ACKNOWLEDGING
