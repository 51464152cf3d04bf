"""Runs a processor in every way in which the engine may run it, and compares what it gives.

The ways ("modes"):

    as given             inputs as they are, every output taken at once
    one row at a time    each batch is cut into batches of one row
    full outbox          one element of the output is taken, then the world stands still; rows are looked at only at the
                         end
    saved at every pause
                         state is saved after every input and after the end, twice, and thrown away: saving changes
                         nothing, and what was saved does not change when the next input comes
    restored at ...      state is saved after every input and given to a fresh processor, which goes on
    restored onto two    (with `keys`) state is given to two processors by partition, then back to one, at every pause
    cancelled            closed in the middle of an output; closed without having been opened

What may differ between modes is only where batches are cut.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import ACTIVE, IDLE, MAIN_PORT, Emit, Watermark, one_by_one
from jetfast.core.processor import BROADCAST, BY_KEYS, Processor, ProcessorContext, SourceProcessor, StateBatch
from jetfast.core.routing import local_partition_owners
from jetfast.core.state_sharing import share_state
from jetfast.errors import JobCancelledError
from jetfast.kernels.partitioning import assign_partitions
from jetfast.types import MIN_TIME, PARTITION_COUNT

POLLS_MAX = 10_000
"""A source that gives nothing so often in succession is taken to be stuck."""
MORE_PARTITIONS = 100
"""So many partitions more are there, now and then, when state comes back."""


class OnEdge(NamedTuple):
    """An input for another inbound edge than 0."""

    ordinal: int
    rows: Any


class OnPort(NamedTuple):
    """An output row of another port than the main one, as `expected` shows it."""

    port: int
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Mode:
    """One way of running a processor, see above."""

    name: str
    one_row: bool = False
    look_at_end: bool = False
    saves: bool = False
    restores: bool = False
    processors: int = 1


MODES = (
    Mode("as given"),
    Mode("one row at a time", one_row=True),
    Mode("full outbox", look_at_end=True),
    Mode("saved at every pause", saves=True),
    Mode("restored at every pause", saves=True, restores=True),
    Mode("restored at every pause, one row at a time", one_row=True, saves=True, restores=True),
    Mode("restored onto two processors and back, at every pause", saves=True, restores=True, processors=2),
)


def verify_processor(
    supplier: Callable[[], Processor],
    inputs: Iterable[Any] = (),
    expected: Iterable[Any] | None = None,
    *,
    keys: Sequence[str] | None = None,
    ordered: bool = True,
    normalize: Callable[[list[Any]], Any] | None = None,
    event_time_us: Callable[[Mapping[str, Any]], int] | None = None,
    input_time_us: Callable[[Mapping[str, Any]], int] | None = None,
    connected_ports: Iterable[int] = (0, 1),
    now_us: Callable[[], int] = lambda: 0,
    partition_count: int = PARTITION_COUNT,
) -> list[Any]:
    """Run a processor in every mode and raise AssertionError at the first difference, or give what it gave.

    After the inputs every inbound edge that had one is completed, then the processor. A source takes no inputs: it is
    polled until it is exhausted.

    Parameters
    ----------
    supplier : makes a fresh processor each time
    inputs : record batches (or anything with `__arrow_c_array__`), OnEdge(ordinal, batch) for edges other than 0,
        Watermark(us), IDLE
    expected : rows as dicts (OnPort(port, dict) for other ports), and the control items that leave, in order; or a
    pyarrow
        table of the rows, if nothing but rows leaves. None: the modes are only compared with each other
    keys : columns by whose hash rows find their processor; given, state is moved between one processor and two as well
    ordered : False: rows between two control items may come in any order (they are sorted before they are compared)
    normalize : brings all that left in one run, as in `expected`, to what must be equal in all modes; for steps whose
    output may
        be cut differently, such as partial aggregates
    event_time_us : the time of a row of the main port; given, no step may make a row late: none may leave that is
        behind a watermark that left before it
    input_time_us : the time of an input row; given, output of the time of a row that was late when it came in may be
        late, too
    connected_ports : output ports that somebody reads
    now_us : the wall clock that the processor sees, microseconds

    Returns
    -------
    what left in the first mode, in the form of `expected`

    Raises
    ------
    AssertionError : names mode and inputs, and shows the difference
    """
    verification = _Verification(
        supplier,
        list(inputs),
        keys,
        ordered,
        normalize,
        event_time_us,
        input_time_us,
        frozenset(connected_ports),
        now_us,
        partition_count,
    )
    first, counters = verification.run(MODES[0])
    wanted = verification.comparable(_rows_of(expected) if expected is not None else first)
    verification.compare(MODES[0], first, wanted, "expected")
    for mode in MODES[1:]:
        if mode.processors > 1 and (keys is None or verification.is_source):
            continue
        if mode.one_row and verification.is_source:
            continue
        output, mode_counters = verification.run(mode)
        verification.compare(mode, output, verification.comparable(first, mode), f"mode {MODES[0].name!r}")
        if not mode.restores and mode_counters != counters:
            raise AssertionError(f"mode {mode.name!r}: counters are {mode_counters}, as given they were {counters}")
    verification.cancel()
    return first


def _rows_of(expected: Iterable[Any]) -> list[Any]:
    if isinstance(expected, pa.Table | pa.RecordBatch):
        return list(expected.to_pylist())
    return list(expected)


@dataclass
class _Verification:
    """What all modes have in common."""

    supplier: Callable[[], Processor]
    inputs: list[Any]
    keys: Sequence[str] | None
    ordered: bool
    normalize: Callable[[list[Any]], Any] | None
    event_time_us: Callable[[Mapping[str, Any]], int] | None
    input_time_us: Callable[[Mapping[str, Any]], int] | None
    connected_ports: frozenset[int]
    now_us: Callable[[], int]
    partition_count: int
    is_source: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        processor = self.supplier()
        self.is_source = isinstance(processor, SourceProcessor)
        processor.close(None)

    def run(self, mode: Mode) -> tuple[list[Any], dict[str, int]]:
        """Run one mode; return what left, and the counters."""
        run = _Run(self, mode)
        try:
            run.run()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(
                f"mode {mode.name!r}: {type(error).__name__}: {error}\nafter these inputs:\n{run.story()}"
            ) from error
        output = run.output()
        self.check_times(mode, output)
        return output, run.counters()

    def comparable(self, output: list[Any], mode: Mode | None = None) -> Any:
        """The part of an output in which modes must agree."""
        if self.normalize is not None:
            return self.normalize(output)
        any_order = not self.ordered or (mode is not None and mode.processors > 1)
        if mode is not None and self.is_source and mode.restores:
            # A restored source first repeats its watermark, and may take its partitions in another order.
            return sorted((item for item in output if isinstance(item, dict | OnPort)), key=repr)
        return _sorted_between_control_items(output) if any_order else output

    def compare(self, mode: Mode, output: list[Any], wanted: Any, what: str) -> None:
        got = self.comparable(output, mode if mode is not MODES[0] else None)
        if mode.processors > 1 and self.normalize is None:
            wanted, got = _sorted_between_control_items(wanted), _sorted_between_control_items(got)
        if got != wanted and repr(got) != repr(wanted):  # NaN is not equal to itself, its text is
            raise AssertionError(
                f"mode {mode.name!r} differs from {what}:\n{_difference(wanted, got, what)}\ninputs:\n{self.story()}"
            )

    def late_times(self) -> set[int]:
        """Times of inputs that are late when they come in: no step makes a row late, but it may have been."""
        late: set[int] = set()
        if self.input_time_us is None:
            return late
        watermark = MIN_TIME
        for item in self.inputs:
            rows = item.rows if isinstance(item, OnEdge) else item
            if isinstance(rows, Watermark):
                watermark = rows.value
            elif hasattr(rows, "__arrow_c_array__"):
                times = map(self.input_time_us, Batch.from_arrow(rows).to_arrow().to_pylist())
                late |= {time for time in times if time < watermark}
        return late

    def check_times(self, mode: Mode, output: list[Any]) -> None:
        if self.event_time_us is None:
            return
        late_times = self.late_times()
        watermark = MIN_TIME
        for item in output:
            if isinstance(item, Watermark):
                if item.value <= watermark:
                    raise AssertionError(f"mode {mode.name!r}: watermark {item.value} leaves after {watermark}")
                watermark = item.value
            elif isinstance(item, dict):
                time = self.event_time_us(item)
                if time < watermark and time not in late_times:
                    raise AssertionError(f"mode {mode.name!r}: this row leaves behind watermark {watermark}: {item}")

    def story(self, count: int | None = None) -> str:
        """The inputs as text, or the first `count` of them."""
        texts = []
        for item in self.inputs[:count]:
            ordinal, rows = item if isinstance(item, OnEdge) else (0, item)
            if hasattr(rows, "__arrow_c_array__"):
                rows = Batch.from_arrow(rows).to_arrow()
                shown = rows.slice(0, 5).to_pylist()
                texts.append(f"  edge {ordinal}: {rows.num_rows} rows {shown}{' ...' if rows.num_rows > 5 else ''}")
            else:
                texts.append(f"  {rows}")
        return "\n".join(texts[-20:]) or "  (none)"

    def cancel(self) -> None:
        """Close a processor whose output is half taken, and one that was never opened; neither may fail."""
        error = JobCancelledError("cancelled by verify_processor")
        self.supplier().close(error)
        run = _Run(self, Mode("cancelled"))
        run.half = True
        run.run()


class _HalfTaken(Exception):
    """The run that is cancelled has taken one element of an output."""


class _Run:
    """One run in one mode."""

    def __init__(self, verification: _Verification, mode: Mode) -> None:
        self.verification = verification
        self.mode = mode
        self.half = False
        self.given = 0
        self.outputs: list[Any] = []
        self.total_counters: dict[str, int] = {}
        self.contexts: list[ProcessorContext] = []
        self.processors: list[Processor] = []
        self.partition_count = verification.partition_count
        self.frozen: list[tuple[StateBatch, StateBatch]] = []
        """What was saved last, and what it was then."""

    def make(self, count: int) -> list[Processor]:
        """Make and open fresh processors that share the work."""
        self.collect_counters()
        verification = self.verification
        processors = []
        for index in range(count):
            processor = verification.supplier()
            context = ProcessorContext(
                "verified",
                local_index=index,
                local_parallelism=count,
                partition_count=self.partition_count,
                now_us=verification.now_us,
                connected_ports=verification.connected_ports,
            )
            processor.open(context)
            self.contexts.append(context)
            processors.append(processor)
        return processors

    def collect_counters(self) -> None:
        for context in self.contexts:
            for name, count in context.counters.items():
                self.total_counters[name] = self.total_counters.get(name, 0) + count
        self.contexts = []

    def counters(self) -> dict[str, int]:
        self.collect_counters()
        return self.total_counters

    def story(self) -> str:
        return self.verification.story(self.given)

    def run(self) -> None:
        self.processors = self.make(1)
        if self.mode.saves:  # with a guarantee, also when there is nothing to restore
            self.processors[0].finish_restore()
        error: BaseException | None = None
        try:
            if self.verification.is_source:
                self.run_source()
            else:
                self.run_inputs()
            self.end()
        except _HalfTaken:
            error = JobCancelledError("cancelled by verify_processor")
        except BaseException as problem:
            error = problem
            raise
        finally:
            for processor in self.processors:
                processor.close(error)

    def run_source(self) -> None:
        empty = 0
        while True:
            processor = self.processors[0]
            assert isinstance(processor, SourceProcessor)
            output = processor.poll()
            if output is None:
                break
            before = len(self.outputs)
            self.take(output)
            empty = 0 if len(self.outputs) > before else empty + 1
            if empty > POLLS_MAX:
                raise AssertionError(
                    f"mode {self.mode.name!r}: the source gave nothing {POLLS_MAX} times in succession"
                )
            self.pause()
        self.take(self.processors[0].complete())

    def run_inputs(self) -> None:
        ordinals = {0}
        for item in self.verification.inputs:
            self.given += 1
            ordinal, rows = item if isinstance(item, OnEdge) else (0, item)
            ordinals.add(ordinal)
            if hasattr(rows, "__arrow_c_array__"):
                for batch in self.cut(Batch.from_arrow(rows)):
                    self.process(ordinal, batch)
                    self.pause()
            else:
                self.process_control(rows)
                self.pause()
        for ordinal in sorted(ordinals):
            for processor in self.processors:
                self.take(processor.complete_edge(ordinal))
        for processor in self.processors:
            self.take(processor.complete())

    def cut(self, batch: Batch) -> Iterator[Batch]:
        if batch.row_count == 0:
            return  # the engine drops empty batches
        if not self.mode.one_row:
            yield batch
            return
        for row in range(batch.row_count):
            yield batch.slice(row, 1)

    def process(self, ordinal: int, batch: Batch) -> None:
        if len(self.processors) == 1:
            self.take(self.processors[0].process(ordinal, batch))
            return
        for index, processor in enumerate(self.processors):
            mine = np.flatnonzero(self.owners_of_rows(batch) == index).astype(np.int32)
            if len(mine):
                self.take(processor.process(ordinal, batch.take(mine)))

    def owners_of_rows(self, batch: Batch) -> Any:
        verification = self.verification
        owners = local_partition_owners(self.partition_count, len(self.processors))
        if not verification.keys:
            return np.full(batch.row_count, owners[0])
        rows = batch.to_arrow()
        return owners[assign_partitions([rows.column(key) for key in verification.keys], self.partition_count)]

    def process_control(self, item: Any) -> None:
        forwards = False
        own: list[list[Watermark]] = []
        for processor in self.processors:
            if isinstance(item, Watermark):
                own.append([])
                self.take(processor.process_watermark(item.value), own[-1])
                forwards = processor.forwards_watermark
            elif item is IDLE:
                self.take(processor.process_idle())
                forwards = True
            else:
                raise TypeError(f"an input must be rows, a Watermark or IDLE, got {type(item).__name__}")
        # Who reads from several waits for the watermarks of all.
        self.outputs += [min(sent, key=lambda watermark: watermark.value) for sent in zip(*own, strict=False)]
        if forwards:
            self.outputs.append(item)

    def take(self, output: Iterable[Any] | None, watermarks: list[Watermark] | None = None) -> None:
        """Pull an output to its end; in the run that is cancelled, one element of it.

        Watermarks go to `watermarks` if it is given, and more than one processor is at work.
        """
        for item in one_by_one(output or ()):
            if isinstance(item, Batch | Emit):
                rows = item.batch if isinstance(item, Emit) else item
                if rows.row_count:
                    self.outputs.append(item if self.mode.look_at_end else list(_rows(item)))
            elif isinstance(item, Watermark) and watermarks is not None and len(self.processors) > 1:
                watermarks.append(item)
            elif isinstance(item, Watermark) or item is IDLE or item is ACTIVE:
                self.outputs.append(item)
            else:
                raise TypeError(f"it yielded {type(item).__name__}, which is no output")
            if self.half:
                raise _HalfTaken

    def output(self) -> list[Any]:
        """All that left, rows one by one."""
        flat: list[Any] = []
        for item in self.outputs:
            if isinstance(item, Batch | Emit):
                flat.extend(_rows(item))
            elif isinstance(item, list):
                flat.extend(item)
            else:
                flat.append(item)
        return flat

    def pause(self) -> None:
        """Between two inputs: save, and perhaps go on with fresh processors."""
        if not self.mode.saves:
            return
        for processor in self.processors:
            self.take(processor.process_barrier())
        states = self.save_twice()
        if self.mode.restores:
            two_next = self.mode.processors > 1 and len(self.processors) == 1
            self.restore(states, 2 if two_next else 1)

    def end(self) -> None:
        """After the end: the final state is saved in each later snapshot, and restored from it."""
        if not self.mode.saves:
            return
        states = self.save_twice()
        if self.mode.restores:
            self.restore(states, len(self.processors))
            self.save_twice()

    def save_twice(self) -> list[StateBatch]:
        """Save the state of all processors. Saving changes nothing, and what was saved does not change either."""
        self.check_frozen()
        states = [self.save(processor) for processor in self.processors]
        again = [self.save(processor) for processor in self.processors]
        if not all(map(_same_state, states, again)):
            raise AssertionError(f"mode {self.mode.name!r}: saving twice in succession gave two different states")
        return [state for one in states for state in one]

    def restore(self, states: Sequence[StateBatch], count: int) -> None:
        """Go on with fresh processors; when their number changes, with another number of partitions, too."""
        for processor in self.processors:
            processor.close(None)
        if count != len(self.processors) and all(state.partition in (BROADCAST, BY_KEYS) for state in states):
            others = self.verification.partition_count
            self.partition_count = others + MORE_PARTITIONS if self.partition_count == others else others
        self.processors = self.make(count)
        owners = local_partition_owners(self.partition_count, count)
        for state in states:
            if state.partition == BROADCAST:
                for processor in self.processors:
                    processor.restore_snapshot(state)
            else:
                for index, part in share_state(state, owners, range(count)):
                    self.processors[index].restore_snapshot(part)
        for processor in self.processors:
            processor.finish_restore()

    def save(self, processor: Processor) -> list[StateBatch]:
        """Save the state, through Arrow's own format: nothing may stay that only this process has."""
        saved: list[StateBatch] = []
        streams: dict[str, tuple[pa.Schema, pa.BufferOutputStream, pa.RecordBatchStreamWriter]] = {}
        for state in processor.save_snapshot():
            if not BY_KEYS <= state.partition < self.partition_count:
                raise AssertionError(
                    f"state {state.kind!r} belongs to partition {state.partition}; "
                    f"there are 0 to {self.partition_count - 1}, BROADCAST and BY_KEYS"
                )
            if state.kind not in streams:  # one stream a kind: a processor may save an entry for each of 271 partitions
                sink = pa.BufferOutputStream()
                streams[state.kind] = state.rows.schema, sink, pa.ipc.new_stream(sink, state.rows.schema)
            schema, _, writer = streams[state.kind]
            if state.rows.schema != schema:
                raise AssertionError(f"state {state.kind!r} has two schemas: {schema} and {state.rows.schema}")
            writer.write_batch(state.rows)
            saved.append(state)
        readers = {}
        for kind, (_, sink, writer) in streams.items():
            writer.close()
            readers[kind] = pa.ipc.open_stream(sink.getvalue())
        copies = [replace(state, rows=readers[state.kind].read_next_batch()) for state in saved]
        self.frozen += zip(saved, copies, strict=True)
        return copies

    def check_frozen(self) -> None:
        """State is stored by another thread after the processor has gone on: it must not have changed since."""
        frozen, self.frozen = self.frozen, []
        for state, copy in frozen:
            if not _same_rows(state, copy):
                raise AssertionError(
                    f"mode {self.mode.name!r}: state {state.kind!r} of partition {state.partition} changed after it "
                    "was saved, when the next input came: save_snapshot must copy"
                )


def _rows(item: Batch | Emit) -> Iterator[Any]:
    port, batch = (item.port, item.batch) if isinstance(item, Emit) else (MAIN_PORT, item)
    for row in batch.to_arrow().to_pylist():
        yield row if port == MAIN_PORT else OnPort(port, row)


def _same_rows(one: StateBatch, other: StateBatch) -> bool:
    """NaN is not equal to itself, its text is."""
    return one.rows.equals(other.rows) or repr(one.rows.to_pylist()) == repr(other.rows.to_pylist())


def _same_state(one: list[StateBatch], other: list[StateBatch]) -> bool:
    """The same entries, in any order."""

    def places(states: list[StateBatch]) -> list[tuple[int, str]]:
        return [(state.partition, state.kind) for state in states]

    if places(one) == places(other) and all(map(_same_rows, one, other)):
        return True  # without the text of 271 entries, nearly always
    return _texts(one) == _texts(other)


def _texts(states: list[StateBatch]) -> list[tuple[int, str, str]]:
    return sorted((state.partition, state.kind, repr(state.rows.to_pylist())) for state in states)


def _sorted_between_control_items(output: list[Any]) -> list[Any]:
    result: list[Any] = []
    section: list[Any] = []
    for item in output:
        if isinstance(item, dict | OnPort):
            section.append(item)
        else:
            result += [*sorted(section, key=repr), item]
            section = []
    return result + sorted(section, key=repr)


def _difference(wanted: Any, got: Any, what: str) -> str:
    if not isinstance(wanted, list) or not isinstance(got, list):
        return f"  {what}: {wanted}\n  came: {got}"
    lines = difflib.unified_diff(
        [str(item) for item in wanted], [str(item) for item in got], what, "came", lineterm="", n=2
    )
    return "\n".join(f"  {line}" for _, line in zip(range(60), lines, strict=False))
