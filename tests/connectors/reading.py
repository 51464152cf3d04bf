"""Reads sources and writes sinks without an engine, for tests of connectors."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Rows, Source


class Answer(NamedTuple):
    """What was read of one source partition."""

    rows: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    positions: list[bytes]
    """After each answer, and how many rows and rejected rows had come by then in `counts`."""
    counts: list[tuple[int, int]]
    batch_rows: list[int]


def context(index: int = 0, parallelism: int = 1, **options: Any) -> ProcessorContext:
    return ProcessorContext("tested", local_index=index, local_parallelism=parallelism, **options)


def read_partition(
    source: Source, partition: str, position: bytes | None = None, now_us: Callable[[], int] = lambda: 0
) -> Answer:
    """Read a partition to its end."""
    reader = source.open_reader(partition, position, context(now_us=now_us))
    answer = Answer([], [], [], [], [])
    try:
        while (rows := reader.read()) is not None:
            take(answer, rows, source.schema)
    finally:
        reader.close()
    return answer


def take(answer: Answer, rows: Rows, schema: pa.Schema) -> None:
    batch = rows.batch.to_arrow()
    assert batch.schema.equals(schema), f"{batch.schema} instead of {schema}"
    batch.validate(full=True)
    answer.rows.extend(batch.to_pylist())
    if rows.rejected is not None:
        answer.rejected.extend(rows.rejected.to_arrow().to_pylist())
    answer.positions.append(rows.position)
    answer.counts.append((len(answer.rows), len(answer.rejected)))
    answer.batch_rows.append(batch.num_rows)


def read_all(source: Source) -> list[dict[str, Any]]:
    """All rows of all partitions; none may be rejected."""
    answers = [read_partition(source, partition) for partition in source.partitions()]
    assert not any(answer.rejected for answer in answers)
    return [row for answer in answers for row in answer.rows]


def check_resuming(source: Source, partition: str) -> Answer:
    """Reading from any position gives what reading on would have given: nothing lost, nothing twice."""
    whole = read_partition(source, partition)
    for position, (row_count, rejected_count) in zip(whole.positions, whole.counts, strict=True):
        rest = read_partition(source, partition, position)
        assert rest.rows == whole.rows[row_count:]
        assert rest.rejected == whole.rejected[rejected_count:]
    return whole


def write_all(sink: Any, schema: pa.Schema, *parts: Iterable[pa.Table | pa.RecordBatch]) -> None:
    """Write with one writer for each of `parts`, as a job would: check, open all, write, finish all."""
    sink.check(schema)
    sink.check_target()
    writers = [sink.open_writer(schema, context(index, len(parts))) for index in range(len(parts))]
    for writer, part in zip(writers, parts, strict=True):
        for piece in part:
            for batch in piece.to_batches() if isinstance(piece, pa.Table) else [piece]:
                writer.write(Batch.from_arrow(batch))
    for writer in writers:
        writer.finish()
