"""Calls an outside service with batches of rows, several at a time, and gives what it answers."""

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jetfast.core.batch import Batch, batches_from_arrow, concatenate
from jetfast.core.items import Output, Watermark
from jetfast.core.processor import BY_KEYS, Processor, ProcessorContext, StateBatch
from jetfast.errors import JobFailedError
from jetfast.processors.map_batches import checked_batches


@dataclass(eq=False)
class Call:
    """One call of the service: its rows, and the answer that will come."""

    rows: Batch
    answer: "Future[Any]"


class EventLoop:
    """Runs coroutines, on a thread of its own."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Run until `close`; calls that are under way then are cancelled."""
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)


class MapUsingService(Processor):
    """Has at most `concurrency` calls under way; has a thread of its own, which waits when there are as many.

    The watermark leaves when all rows before it have been answered.

    Parameters
    ----------
    create : makes the service, once for each processor; if that has a `close`, it is called at the end
    function : (service, record batch) to a record batch, a table or None; plain, or a coroutine function
    schema : of the answers
    concurrency : calls at a time
    batch_rows : rows of a call, at most
    ordered : answers leave in the order of the rows; else as they come
    saves : rows that were not answered are part of a snapshot, and asked about again after a restore; else a snapshot
        waits for them
    timeout_us : an answer that takes longer fails the job
    """

    cooperative = False
    forwards_watermark = False
    watches_clock = True

    def __init__(
        self,
        create: Callable[[], Any],
        function: Callable[[Any, pa.RecordBatch], Any],
        schema: pa.Schema,
        *,
        concurrency: int,
        batch_rows: int,
        ordered: bool,
        saves: bool,
        timeout_us: int,
    ) -> None:
        self.create = create
        self.function = function
        self.schema = schema
        self.concurrency = concurrency
        self.batch_rows = batch_rows
        self.ordered = ordered
        self.saves = saves
        self.timeout_us = timeout_us
        self.service: Any = None
        self.runner: ThreadPoolExecutor | EventLoop | None = None

    def open(self, context: ProcessorContext) -> None:
        self.name = getattr(self.function, "__qualname__", type(self.function).__name__)
        self.pending: deque[Call | Watermark] = deque()
        """What has not left, in the order in which it came."""
        self.calls = 0
        """Calls among it."""
        self.restored: list[Batch] = []
        self.service = self.create()
        if inspect.iscoroutinefunction(self.function):
            self.runner = EventLoop(f"{context.vertex}-{context.index}")
        else:
            self.runner = ThreadPoolExecutor(self.concurrency, f"{context.vertex}-{context.index}")

    def submit(self, rows: Batch) -> None:
        """Call the service."""
        arrow = rows.to_arrow()
        if isinstance(self.runner, EventLoop):
            answer = self.runner.submit(self.function(self.service, arrow))
        else:
            assert self.runner is not None
            answer = self.runner.submit(self.function, self.service, arrow)
        self.pending.append(Call(rows, answer))
        self.calls += 1

    def process(self, ordinal: int, batch: Batch) -> Iterator[Output]:
        yield from self.ask_again()
        yield from self.ask(batch)

    def ask(self, batch: Batch) -> Iterator[Output]:
        for start in range(0, batch.row_count, self.batch_rows):
            yield from self.answered(room_for=1)
            self.submit(batch.slice(start, min(self.batch_rows, batch.row_count - start)))
        yield from self.answered()

    def ask_again(self) -> Iterator[Output]:
        """Rows that were under way when the state was saved."""
        restored, self.restored = self.restored, []
        for batch in restored:
            yield from self.ask(batch)

    def answered(self, room_for: int = 0) -> Iterator[Output]:
        """What can leave now; with `room_for`, wait until so many calls more may be under way."""
        yield from self.ready()
        while room_for and self.calls + room_for > self.concurrency:
            self.wait_for_one()
            yield from self.ready()

    def all_answered(self) -> Iterator[Output]:
        """All that is under way, when it has been answered."""
        yield from self.ask_again()
        while self.calls:
            self.wait_for_one()
            yield from self.ready()
        yield from self.ready()

    def wait_for_one(self) -> None:
        """Wait until something can leave: the first answer in order, or any."""
        answers = [item.answer for item in self.pending if isinstance(item, Call)]
        waited = answers[:1] if self.ordered else answers
        if not wait(waited, self.timeout_us / 1_000_000, FIRST_COMPLETED).done:
            raise JobFailedError(f"{self.name} gave no answer within {self.timeout_us / 1_000_000:g} s")

    def ready(self) -> Iterator[Output]:
        """Answers that have come, and watermarks that nothing holds back."""
        pending = self.pending
        if not self.ordered:
            done = [item for item in pending if isinstance(item, Call) and item.answer.done()]
            for call in done:
                pending.remove(call)
                yield from self.results(call)
        while pending and (isinstance(pending[0], Watermark) or pending[0].answer.done()):
            item = pending.popleft()
            if isinstance(item, Watermark):
                yield item
            else:
                yield from self.results(item)

    def results(self, call: Call) -> Iterator[Output]:
        """The rows of an answer."""
        self.calls -= 1
        try:
            answer = call.answer.result()
            for made in checked_batches(answer, self.schema) if answer is not None else ():
                yield from batches_from_arrow(made)
        except Exception as error:
            what = str(error) if isinstance(error, JobFailedError) else f"{type(error).__name__}: {error}"
            raise JobFailedError(
                f"{self.name} failed on {call.rows.row_count} rows, the first of them "
                f"{call.rows.slice(0, 1).to_arrow().to_pylist()[0]}: {what}"
            ) from error

    def process_silence(self) -> Iterable[Output]:
        return [*self.ask_again(), *self.ready()] or ()

    def process_watermark(self, watermark: int) -> Iterator[Output]:
        yield from self.ask_again()
        self.pending.append(Watermark(watermark))
        yield from self.ready()

    def process_idle(self) -> Iterator[Output]:
        return self.all_answered()

    def process_barrier(self) -> Iterable[Output]:
        return () if self.saves else self.all_answered()

    def complete(self) -> Iterator[Output]:
        return self.all_answered()

    def save_snapshot(self) -> Iterable[StateBatch]:
        rows = [*self.restored, *(item.rows for item in self.pending if isinstance(item, Call))]
        if rows:
            yield StateBatch(BY_KEYS, "rows", concatenate(rows).to_arrow())

    def restore_snapshot(self, state: StateBatch) -> None:
        self.restored.append(Batch.from_arrow(state.rows))

    def close(self, error: BaseException | None) -> None:
        if isinstance(self.runner, ThreadPoolExecutor):
            self.runner.shutdown(wait=False, cancel_futures=True)
        elif self.runner is not None:
            self.runner.close()
        service, self.service = self.service, None
        if hasattr(service, "close"):
            service.close()
