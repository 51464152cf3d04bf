"""verify_sink finds what sinks get wrong, and says which rows suffer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.testing import TransactionalMemory, verify_sink
from jetfast.testing.transactional_memory import TransactionalMemorySink, TransactionalMemoryWriter


class ShowsTooEarly(TransactionalMemoryWriter):
    def prepare(self, transaction: str) -> bool:
        super().prepare(transaction)
        self.commit(transaction, b"")
        return True


class CommitsTwice(TransactionalMemoryWriter):
    def commit(self, transaction: str, token: bytes) -> None:
        again = transaction in self.system.outcomes
        super().commit(transaction, token)
        if again:
            self.system.committed += [entry for entry in self.system.committed if entry[0] == transaction]


class CommitsNothing(TransactionalMemoryWriter):
    def commit(self, transaction: str, token: bytes) -> None:
        self.system.transactions.pop(transaction, None)


class LosesARow(TransactionalMemoryWriter):
    def write(self, batch: Batch) -> None:
        if batch.to_arrow().column(0)[0].as_py() != 7:
            super().write(batch)


class ListsNothingAndCommitsAll(TransactionalMemoryWriter):
    """As a system whose open transactions come to life when the next one is committed."""

    def list_open(self, prefix: str) -> Sequence[str]:
        return ()

    def commit(self, transaction: str, token: bytes) -> None:
        super().commit(transaction, token)
        for text, stored in list(self.system.transactions.items()):
            if stored.prepared:
                super().commit(text, token)


@dataclass(frozen=True)
class BrokenSink(TransactionalMemorySink):
    writer: Any = TransactionalMemoryWriter

    def open_transactions(self, schema: pa.Schema, context: ProcessorContext) -> TransactionalMemoryWriter:
        writer: TransactionalMemoryWriter = self.writer(self.system, context.execution_id)
        return writer


@pytest.mark.parametrize(
    ("writer", "message"),
    [
        (ShowsTooEarly, r"rows 0 to \d+ should be visible, once each. Lost: \[\], too many: \["),
        (CommitsTwice, r"Lost: \[\], too many: \["),
        (CommitsNothing, r"Lost: \[0.*\], too many: \[\]"),
        (LosesARow, r"Lost: \[7\], too many: \[\]"),
        (ListsNothingAndCommitsAll, r"too many: \[-?\d"),
    ],
)
def test_a_broken_sink_is_found_within_a_few_courses(writer: Any, message: str) -> None:
    def courses() -> None:
        for seed in range(20):
            outside = TransactionalMemory.named()
            verify_sink(
                BrokenSink(outside, writer=writer),
                lambda outside=outside: [row["id"] for row in outside.rows()],
                seed=seed,
            )

    with pytest.raises(AssertionError, match=rf"seed \d+, execution \d+: .*{message}"):
        courses()


def test_a_sound_sink_passes_and_the_crashes_are_told() -> None:
    outside = TransactionalMemory.named()
    crashes = verify_sink(outside.sink(), lambda: [row["id"] for row in outside.rows()], seed=1, crash_rate=0.1)
    assert sum(crashes.values()) > 3
    assert len(outside.rows()) == 40


def test_a_sink_may_want_rows_of_its_own() -> None:
    outside = TransactionalMemory.named()
    verify_sink(
        outside.sink(),
        lambda: [int(row["name"]) for row in outside.rows()],
        rows=lambda numbers: pa.record_batch({"name": pa.array([str(number) for number in numbers], pa.string())}),
    )
    assert {"name": "39"} in outside.rows()
