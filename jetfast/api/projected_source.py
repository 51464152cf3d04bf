"""A source whose rows get computed columns before anything else sees them: event time made from text or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import pyarrow as pa

from jetfast.api.expressions import Expression
from jetfast.api.naming import carried
from jetfast.api.operations import BoundOperation, Select
from jetfast.core.acknowledging import AcknowledgingReader, AcknowledgingSource, is_acknowledging
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import ChecksEventTime, PartitionReader, Position, Rows, Source, source_delivery


class ProjectedSource:
    """Reads `source` and gives the columns `outputs` (name, expression), each row one row; a row that fails gives null.

    Positions, partitions and rejected rows are those of `source`.
    """

    def __init__(self, source: Source, outputs: Sequence[tuple[str, Expression]], step: str) -> None:
        self.source = source
        self.outputs = tuple(outputs)
        self.step = step
        self.schema: pa.Schema = self.bind().schema
        self.name = source.name
        self.bounded = source.bounded
        self.cooperative = source.cooperative
        self.source_delivery = source_delivery(source)
        for name in ("discovery_interval", "partitions_complete"):  # optional
            if hasattr(source, name):
                setattr(self, name, getattr(source, name))
        if is_acknowledging(source):
            self.redelivery_retention_us = cast(AcknowledgingSource, source).redelivery_retention_us

    def bind(self) -> BoundOperation:
        """Return what makes the columns of a batch."""
        return Select(self.outputs, "null").bind(carried(self.step, self.source.schema), self.step)

    @property
    def total_rows(self) -> int | None:
        """Rows that the source will give, if it knows."""
        return getattr(self.source, "total_rows", None)

    def partitions(self) -> Sequence[str]:
        return self.source.partitions()

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> PartitionReader:
        reader = self.source.open_reader(partition, position, context)
        if is_acknowledging(self.source):
            return AcknowledgingProjectedReader(cast(AcknowledgingReader, reader), self.bind())
        return ProjectedReader(reader, self.bind())

    def with_columns(self, names: Sequence[str]) -> Self:
        expressions = dict(self.outputs)
        outputs = [(name, expressions[name]) for name in names]
        read = {column for _, expression in outputs for column in expression.node.columns(self.source.schema)}
        columns = [name for name in self.source.schema.names if name in read] or self.source.schema.names[:1]
        return type(self)(self.source.with_columns(columns), outputs, self.step)

    def check_event_time(self, column: str) -> None:
        if isinstance(self.source, ChecksEventTime):
            self.source.check_event_time(column)


class ProjectedReader:
    """Reads one source partition of a ProjectedSource."""

    def __init__(self, reader: PartitionReader, operation: BoundOperation) -> None:
        self.reader = reader
        self.operation = operation

    def read(self) -> Rows | None:
        rows = self.reader.read()
        return None if rows is None else rows._replace(batch=self.operation(rows.batch))

    def close(self) -> None:
        self.reader.close()


class AcknowledgingProjectedReader(ProjectedReader):
    """Reads one queue of a ProjectedSource."""

    reader: AcknowledgingReader

    @property
    def confirms(self) -> bool:
        return self.reader.confirms

    def acknowledge(self, receipts: Sequence[Any]) -> None:
        self.reader.acknowledge(receipts)
