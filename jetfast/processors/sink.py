"""Which processor writes to a Sink: in transactions, in publications, or as rows come."""

from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from jetfast.core.guarantee import Delivery
from jetfast.core.publishing import PublishingSink
from jetfast.core.source import Sink, sink_delivery
from jetfast.core.transaction import TransactionalSink
from jetfast.processors.publishing_sink import PublishingSinkProcessor
from jetfast.processors.sink_writer import PlainSinkProcessor, SinkWriterProcessor
from jetfast.processors.transactional_sink import TransactionalSinkProcessor


@dataclass(frozen=True)
class WriteSink:
    """Supplier of sink processors: each opens one writer. `schema` is that of the rows that will come."""

    sink: Sink
    schema: pa.Schema

    def __call__(self) -> SinkWriterProcessor:
        delivery = sink_delivery(self.sink)
        if delivery is Delivery.TRANSACTIONAL:
            return TransactionalSinkProcessor(cast(TransactionalSink, self.sink), self.schema)
        if delivery is Delivery.PUBLISHING:
            return PublishingSinkProcessor(cast(PublishingSink, self.sink), self.schema)
        return PlainSinkProcessor(self.sink, self.schema)
