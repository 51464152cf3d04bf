"""What extensions import: the contracts of sources, sinks, processors, aggregates and watermark policies.

    from jetfast.extend import Rows, Source

The names here do not move. Everything else below `jetfast` may move between releases.
"""

from jetfast.core.acknowledging import AcknowledgingReader, AcknowledgingSource
from jetfast.core.aggregate import Aggregate
from jetfast.core.batch import Batch, BatchRun
from jetfast.core.batch_aggregate import EVENT_TIME, BatchAggregate
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.items import ACTIVE, IDLE, MAIN_PORT, Emit, Output, Watermark
from jetfast.core.processor import BROADCAST, BY_KEYS, Processor, ProcessorContext, SourceProcessor, StateBatch
from jetfast.core.publishing import Publisher, PublishingSink
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.core.source import DiscoversPartitions, PartitionReader, Position, Rows, Sink, SinkWriter, Source
from jetfast.core.throttling import WatermarkThrottle, WatermarkThrottleFactory
from jetfast.core.transaction import TransactionalSink, TransactionalWriter, TransactionOwner, TransactionRules
from jetfast.core.watermark_policies import WatermarkPolicy, WatermarkPolicyFactory
from jetfast.errors import DataLostError, JobDefinitionError, JobFailedError, RestartableError, TransportError

__all__ = [
    "ACTIVE",
    "BROADCAST",
    "BY_KEYS",
    "EVENT_TIME",
    "IDLE",
    "MAIN_PORT",
    "AcknowledgingReader",
    "AcknowledgingSource",
    "Aggregate",
    "Batch",
    "BatchAggregate",
    "BatchRun",
    "DataLostError",
    "Delivery",
    "DiscoversPartitions",
    "Emit",
    "Guarantee",
    "JobDefinitionError",
    "JobFailedError",
    "Output",
    "PartitionReader",
    "Position",
    "Processor",
    "ProcessorContext",
    "Publisher",
    "PublishingSink",
    "RestartableError",
    "Rows",
    "Sink",
    "SinkWriter",
    "SnapshotKind",
    "Source",
    "SourceProcessor",
    "StateBatch",
    "TransactionOwner",
    "TransactionRules",
    "TransactionalSink",
    "TransactionalWriter",
    "TransportError",
    "Watermark",
    "WatermarkPolicy",
    "WatermarkPolicyFactory",
    "WatermarkThrottle",
    "WatermarkThrottleFactory",
]
