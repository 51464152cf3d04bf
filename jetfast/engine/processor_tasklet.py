"""Drives one processor: takes events in, pulls its output, sends it on.

One step, in this order, each part only when the one before it has finished:

    send what had no room -> pull the rest of the pending output -> send the control item that follows it -> take the
    next event

So a watermark leaves after all that the rows before it gave, and nothing else of the processor is called while an
output of it is half taken. Idle: whoever has sent IDLE and wakes sends ACTIVE first; whoever emits rows while asleep
sends IDLE again after them.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import ACTIVE, DONE, IDLE, ControlItem, Emit, EmitRun, Watermark
from jetfast.core.processor import Processor, ProcessorContext, SourceProcessor
from jetfast.engine.inbound_edge import EdgeDone, Inbound
from jetfast.engine.outbound_edge import Outbox
from jetfast.errors import DataLostError, JobFailedError, ProtocolError, RestartableError, SnapshotDamaged
from jetfast.types import MIN_TIME

STEPS_PER_CALL = 8
"""Events that a cooperative tasklet takes in before others of its worker have their turn."""
ROWS_PER_CALL = 393_216
"""Rows after which it stops earlier; also those that wait next to each other and are taken in as one event, at most.

As many as a source in memory gives at a time: Python behind a kernel finds cold caches, so it shall run seldom.
"""
ROWS_PER_PULL = 32_768
"""Rows of one output after which others have their turn: what it gave is still in the cache when they read it."""


class ProcessorTasklet:
    """The tasklet of one processor; `inbound` is None for a source.

    Counters (`rows_in`, `batches_out`, ...) are written by its thread only and may be read by any.
    """

    __slots__ = (
        "asleep",
        "batch",
        "batches_in",
        "batches_out",
        "busy",
        "busy_ns",
        "closed",
        "context",
        "cooperative",
        "done_sent",
        "emitted",
        "event_time",
        "finished",
        "follow",
        "inbound",
        "name",
        "outbox",
        "output",
        "processor",
        "rows_in",
        "rows_out",
        "source",
        "steps_per_call",
        "watches_clock",
        "watermark_out",
    )

    def __init__(
        self, processor: Processor, context: ProcessorContext, inbound: Inbound | None, outbox: Outbox
    ) -> None:
        if inbound is None and not isinstance(processor, SourceProcessor):
            raise ProtocolError(f"step {context.vertex!r} has no input, but {type(processor).__name__} is no source")
        self.processor = processor
        self.context = context
        self.inbound = inbound
        self.source = processor if inbound is None and isinstance(processor, SourceProcessor) else None
        self.outbox = outbox
        self.name = f"{context.vertex}-{context.index}"
        self.cooperative = processor.cooperative
        # A processor that blocks must be asked between any two inputs whether it was cancelled.
        self.watches_clock = processor.watches_clock
        self.steps_per_call = STEPS_PER_CALL if processor.cooperative else 1
        self.batch: Batch | BatchRun | None = None
        """What the processor is working on: its origin is told if the processor fails."""
        self.output: Iterator[Any] | None = None
        self.follow: ControlItem | None = None
        """Leaves when the pending output has left."""
        self.asleep = False
        """IDLE was sent, and no ACTIVE after it."""
        self.emitted = False
        """Rows were emitted since an edge ended while all inputs were asleep."""
        self.busy = False
        """There is pending output, or something that follows it."""
        self.done_sent = False
        self.finished = False
        self.closed = False
        self.event_time: dict[str, Any] | None = None
        """What a source said of its event time when it was closed."""
        self.busy_ns = 0
        self.rows_in = self.batches_in = self.rows_out = self.batches_out = 0
        self.watermark_out = MIN_TIME

    def open(self) -> None:
        """Open the processor, on the thread that will call it."""
        try:
            self.processor.open(self.context)
        except Exception as error:
            raise self.explain(error, "when it was opened") from error

    def close(self, error: BaseException | None) -> None:
        """Close the processor, once."""
        if self.closed:
            return
        self.closed = True
        self.output = self.batch = None
        processor = self.processor
        self.event_time = self.describe_event_time()
        self.source = None
        del self.processor  # its state is let go now, though others may run on and metrics may be asked for
        try:
            processor.close(error)
        except Exception as problem:
            raise self.explain(problem, "when it was closed") from problem

    def call(self) -> bool:
        """Take a few steps; False if there was nothing to take in, or no room for what is pending."""
        outbox = self.outbox
        try:
            if outbox.blocked:
                left = outbox.count_left()
                if not outbox.resume():
                    return outbox.count_left() < left  # who got some of it must be woken
            progress = False
            rows_limit = self.rows_in + self.rows_out + ROWS_PER_CALL
            take = self.poll_source if self.inbound is None else self.take_event
            for _ in range(self.steps_per_call):
                if self.busy:
                    if not self.finish_output() or self.finished:
                        return True
                    progress = True
                if not take():
                    return progress
                progress = True
                if outbox.blocked or self.rows_in + self.rows_out >= rows_limit:
                    return True
            return True
        except (RestartableError, ProtocolError):
            raise
        except Exception as error:
            # What a processor says itself is in the message already: its own cause tells more.
            raise self.explain(error) from (isinstance(error, JobFailedError) and error.__cause__) or error

    def explain(self, error: Exception, when: str = "", blame_batch: bool = True) -> Exception:
        """The error that names step, member and processor, and the batch in work (`blame_batch`).

        An error that is not the user's stays as it is.
        """
        if isinstance(error, RestartableError | ProtocolError):
            return error
        context = self.context
        batch = self.batch if blame_batch else None
        origin = None if batch is None else batch.origin
        where = "" if origin is None else f", rows from number {origin[1]} on of source partition {origin[0]!r}"
        kinds = (DataLostError, JobFailedError, SnapshotDamaged)
        kind = next((kind for kind in kinds if isinstance(error, kind)), None)
        what = f"{type(error).__name__}: {error}" if kind is None else str(error)
        return (kind or JobFailedError)(
            f"step {context.vertex!r} failed{' ' + when if when else ''} on member {context.member}, "
            f"processor {context.index} of {context.parallelism}{where}: {what}"
        )

    def finish_output(self) -> bool:
        """Pull and send the pending output and the control item that follows it; False when it has to wait."""
        if self.output is not None and not self.pull():
            return False
        if self.follow is not None and not self.send_follow():
            return False
        self.busy = False
        if self.done_sent:
            self.take_end()
        return True

    def take_end(self) -> None:
        """D has left."""
        self.finished = True

    def pull(self) -> bool:
        """Pull and send the pending output until it ends; False when there is no room, or others shall have their turn.

        They shall after ROWS_PER_PULL rows: whoever reads them finds them in the cache, and what they lie in is used
        again for the next ones, instead of a queue full of memory.
        """
        output = self.output
        assert output is not None
        outbox = self.outbox
        rows_left = ROWS_PER_PULL
        for item in output:
            if self.asleep and self.source is not None and item is not ACTIVE and item is not IDLE:
                self.asleep = False
                if not outbox.broadcast(ACTIVE):
                    self.output = chain((item,), output)  # the item must not overtake it
                    return False
            if type(item) is Batch:
                rows = item.row_count
                if rows:
                    self.batches_out += 1
                    self.rows_out += rows
                    self.emitted = True
                    if not outbox.send(item):
                        return False
                    rows_left -= rows
                    if rows_left <= 0:
                        return False
            elif type(item) is BatchRun:
                taken = outbox.send_run(item)
                if taken < len(item):
                    self.output = chain((item.slice(taken),), output)
                    item = item.slice(0, taken)
                rows = item.row_count
                self.batches_out += taken
                self.rows_out += rows
                rows_left -= rows
                self.emitted = True
                if outbox.blocked or rows_left <= 0:
                    return False
            elif not self.send_other(item):
                return False
        self.output = None
        return True

    def send_other(self, item: Any) -> bool:
        """Send an output that is not a batch for the main port."""
        outbox = self.outbox
        if type(item) is Emit:
            rows = item.batch.row_count
            if rows == 0:
                return True
            self.batches_out += 1
            self.rows_out += rows
            self.emitted = True
            return outbox.send_to(item.port, item.batch, item.owner)
        if type(item) is EmitRun:
            self.batches_out += len(item.batches)
            self.rows_out += item.batches.row_count
            self.emitted = True
            return outbox.send_run_to(item.port, item.batches, item.owner)
        if type(item) is Watermark:
            # A step that keeps rows back may hold its watermark back by as much; it may not make one of its own.
            received = MIN_TIME if self.inbound is None else self.inbound.watermark
            if received != MIN_TIME and (self.processor.forwards_watermark or item.value > received):
                raise JobFailedError(
                    "it makes watermarks, and receives others; only one step on a path may make them "
                    "(declare event time once, behind the source or here)"
                )
            self.watermark_out = item.value
            return outbox.broadcast(item)
        if item is IDLE or item is ACTIVE:
            if self.asleep == (item is IDLE):
                return True
            self.asleep = item is IDLE
            return outbox.broadcast(item)
        raise TypeError(f"{type(self.processor).__name__} yielded {type(item).__name__}, which is no output")

    def send_follow(self) -> bool:
        """Send the control item that comes after the pending output; False when there is no room."""
        item = self.follow
        assert item is not None
        self.follow = None
        if type(item) is Watermark:
            self.watermark_out = item.value
        elif item is IDLE:
            self.asleep = True
        elif item is ACTIVE:
            self.asleep = False
        else:
            self.done_sent = True
        return self.outbox.broadcast(item)

    def poll_source(self) -> bool:
        """Ask a source for rows; False if it has nothing at present."""
        source = self.source
        assert source is not None
        output = source.poll()
        if output is None:
            self.output = iter(source.complete() or ())
            self.follow = DONE
            self.busy = True
            return True
        if not output:
            return False
        if type(output) is list or type(output) is tuple:
            self.output = iter(output)
            self.busy = True
            return True
        # A generator tells only when it is pulled whether it has anything: an empty one must not keep the worker awake.
        output = iter(output)
        for first in output:
            self.output = chain((first,), output)
            self.busy = True
            return True
        return False

    def take_event(self) -> bool:
        """Give the processor its next event; False if there is none."""
        inbound = self.inbound
        assert inbound is not None
        event = inbound.poll()
        if event is None:
            return self.watches_clock and self.tell_silence()
        if type(event) is not BatchRun and type(event) is not Batch:
            self.take_control(event)
            return True
        processor = self.processor
        if processor.process_batches is not None:
            event = inbound.join_waiting(event, ROWS_PER_CALL)
        elif type(event) is BatchRun:
            event = inbound.take_apart(event)
        self.batch = event
        self.rows_in += event.row_count
        output: Iterable[Any]
        if type(event) is BatchRun:
            assert processor.process_batches is not None
            self.batches_in += len(event)
            output = processor.process_batches(inbound.ordinal, event)
        else:
            self.batches_in += 1
            output = processor.process(inbound.ordinal, event)
        if type(output) is tuple:  # the common case: one batch in, one or none out
            if not output:
                return True
            if len(output) == 1 and type(output[0]) is Batch:
                batch = output[0]
                rows = batch.row_count
                if rows:
                    self.batches_out += 1
                    self.rows_out += rows
                    self.outbox.send(batch)
                return True
        if output:
            self.output = iter(output)
            self.busy = True
        return True

    def tell_silence(self) -> bool:
        """Let the processor look at its clock; False if it has nothing to do."""
        self.batch = None
        output = self.processor.process_silence()
        if output == ():
            return False
        if self.asleep:
            self.emitted = False
            output = self.idle_again(output)
        self.output = iter(output)
        self.busy = True
        return True

    def take_control(self, event: Any) -> None:
        """Give the processor an event that is not rows."""
        self.batch = None
        processor = self.processor
        output: Iterable[Any] | None = None
        if type(event) is Watermark:
            output = processor.process_watermark(event.value)
            if processor.forwards_watermark:
                self.follow = event
                if output == ():
                    self.send_follow()
                    return
        elif event is IDLE:
            output = processor.process_idle()
            self.follow = IDLE
        elif event is ACTIVE:
            if self.asleep:
                self.follow = ACTIVE
        elif type(event) is EdgeDone:
            output = processor.complete_edge(event.ordinal)
            if self.asleep:
                self.emitted = False
                output = self.idle_again(output)
        else:
            output = processor.complete()
            self.follow = DONE
        if output:
            self.output = iter(output)
        self.busy = True

    def idle_again(self, output: Iterable[Any] | None) -> Iterator[Any]:
        """Rows that leave while all inputs are idle wake who reads them: send them to sleep again afterwards."""
        yield from output or ()
        if self.emitted:
            self.follow = IDLE

    @property
    def restored_counters(self) -> dict[str, int]:
        """Of `counters`, what came from a snapshot."""
        return {}

    @property
    def counters(self) -> dict[str, int]:
        """What the processor has counted so far, such as "late_rows". Any thread."""
        return self.context.counters.copy()

    @property
    def waits_for(self) -> str | None:
        """What keeps it from answering in a snapshot round, for people; None: it owes no answer. Any thread."""
        return None

    @property
    def ended(self) -> bool:
        """Has it nothing more to do with rows? It may stay for snapshots."""
        return self.done_sent or self.finished

    @property
    def waits_for_outside(self) -> bool:
        """As `Tasklet.waits_for_outside`."""
        return False

    def describe_event_time(self) -> dict[str, Any] | None:
        """What a source tells of its event time, even when it has been closed. Any thread."""
        source = self.source
        if source is None:
            return self.event_time
        try:
            return source.describe_event_time()
        except AttributeError:  # it is not open yet, or its opening failed
            return None

    @property
    def watermark_us(self) -> int | None:
        """How far event time has come here; None before the first watermark."""
        watermark = self.watermark_out if self.inbound is None else self.inbound.watermark
        return None if watermark == MIN_TIME else watermark
