"""Turns the steps of a pipeline into the graph that a cluster runs.

    1. Which columns does each step need? Backwards from the sinks; sources then read only those.
    2. A chain of stateless steps becomes one vertex. A union becomes no vertex: its reader has several inbound edges.
    3. A window becomes one vertex behind a partitioned edge, or two where there are several processors: the first
       accumulates per key and frame next to the source, so that one partial per key and frame crosses, not each row.
       Where that thins the rows too little it lets them pass by, on an edge of their own. Sessions have no frames and
       are always one vertex.
    4. A join becomes one vertex with two partitioned edges; either side brings just the columns that it needs.
    5. A step that keeps state by key becomes one vertex behind a partitioned edge.
    6. The best results of a window are kept by the window itself while it emits, if nobody reads the others, else by a
       vertex behind it; then they meet in one processor (or in one for each group), which keeps the best of all.

Other edges are isolated: order is kept, and a batch stays with its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from jetfast.api.expression_nodes import Column, Literal
from jetfast.api.expressions import Expression
from jetfast.api.feed import Feed
from jetfast.api.keyed_planning import plan_join, plan_keyed_state
from jetfast.api.lowering import HIDDEN
from jetfast.api.operations import AsNullable, BoundOperation, Operation, Select, WithColumns
from jetfast.api.steps import (
    LATE_PORT,
    MISSED_UNTIL,
    REJECTED_PORT,
    AsofJoin,
    CustomStep,
    IntervalJoin,
    JoinStep,
    KeyedStateStep,
    MapBatchesStep,
    Output,
    PeekStep,
    ProcessingTimeStep,
    RebalanceStep,
    ServiceStep,
    SinkStep,
    SortStep,
    SourceStep,
    Step,
    TopStep,
    TransformStep,
    UnionStep,
    WindowJoin,
    WindowStep,
)
from jetfast.core.aggregate import AggregateColumn
from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.guarantee import Delivery
from jetfast.core.items import MAIN_PORT
from jetfast.core.joins import LATE_PORTS, LEFT, RIGHT
from jetfast.core.processor import Processor, ProcessorSupplier
from jetfast.core.routing import ALL_TO_ONE, ISOLATED, UNICAST, Routing, partitioned
from jetfast.core.source import sink_counts, sink_delivery, sink_tells_latest, source_delivery
from jetfast.core.throttling import EmitByFrame, NoThrottling, WatermarkThrottleFactory, coarsest_frame
from jetfast.core.top_results import TopResults
from jetfast.core.windows import SessionWindow
from jetfast.errors import JobDefinitionError
from jetfast.kernels.carried import carried_schema, restored_schema

if TYPE_CHECKING:
    from jetfast.api.pipeline import Pipeline
    from jetfast.processors.accumulate_by_frame import AccumulateByFrame


ASOF_STEP_US = 1000
"""How fine watermarks must be for as-of joins, whose rows wait for them."""


def plan(pipeline: Pipeline, *, member_count: int, workers: int, two_stage: bool | None) -> Dag:
    """Return the graph; see `Pipeline.plan`."""
    for value, what in ((member_count, "member_count"), (workers, "workers")):
        if value < 1:
            raise JobDefinitionError(f"{what} must be at least 1, got {value}")
    pipeline._check_complete()
    return Planner(pipeline, member_count, workers, two_stage).plan()


class Planner:
    """One planning of one pipeline."""

    def __init__(self, pipeline: Pipeline, member_count: int, workers: int, two_stage: bool | None) -> None:
        self.steps = list(pipeline._iterate())
        self.member_count = member_count
        self.processor_count = member_count * workers
        self.two_stage = two_stage
        self.dag = Dag(pipeline.name)
        self.readers: dict[Output, list[Step]] = {}
        for step in self.steps:
            for output in step.inputs:
                self.readers.setdefault(output, []).append(step)
        self.needed = needed_columns(self.steps, self.readers)
        self.feeds: dict[Output, list[Feed]] = {}
        self.in_order: set[str] = set()
        """Vertices of one processor whose rows are sorted: so are those of the steps behind them."""
        self.times: dict[str, str | None] = {}
        """By vertex: the column of its main output that holds the event time."""

    def plan(self) -> Dag:
        for step in self.steps:
            if isinstance(step, SourceStep):
                self.plan_source(step)
            elif isinstance(step, TransformStep):
                if self.ends_chain(step):
                    self.feeds[Output(step)] = [self.add_chain(self.chain_up_to(step))]
            elif isinstance(step, MapBatchesStep):
                self.plan_map_batches(step)
            elif isinstance(step, ServiceStep):
                self.plan_service(step)
            elif isinstance(step, CustomStep):
                self.plan_custom(step)
            elif isinstance(step, RebalanceStep | SortStep | PeekStep):
                self.plan_passing(step)
            elif isinstance(step, ProcessingTimeStep):
                self.plan_processing_time(step)
            elif isinstance(step, UnionStep):
                self.plan_union(step)
            elif isinstance(step, WindowStep):
                self.plan_window(step)
            elif isinstance(step, TopStep):
                self.plan_top(step)
            elif isinstance(step, JoinStep):
                plan_join(self, step)
            elif isinstance(step, KeyedStateStep):
                plan_keyed_state(self, step)
            elif isinstance(step, SinkStep):
                self.plan_sink(step)
        return self.dag

    def plan_source(self, step: SourceStep) -> None:
        self.times[step.name] = step.time
        from jetfast.processors.source import ReadSource

        source = step.source
        output = Output(step)
        names = [name for name in source.schema.names if name in self.needed[output]] or source.schema.names[:1]
        # A rejected row is kept as text, and whole, if anybody reads it.
        if len(names) < len(source.schema.names) and Output(step, REJECTED_PORT) not in self.readers:
            source = source.with_columns(names)
        if step.event_time is None:
            supplier = ReadSource(source)
        else:
            event_time = step.event_time
            frames = self.frames_downstream(step)
            supplier = ReadSource(
                source,
                event_time.column,
                event_time.policy,
                event_time.idle_timeout_us,
                frame_us=min((slide_us for slide_us, _ in frames), default=None),
                throttle=event_time.throttle or chosen_throttle(frames),
            )
        self.dag.add_vertex(Vertex(step.name, supplier, delivery=source_delivery(source), endless=not source.bounded))
        self.feeds[output] = [Feed(step.name, MAIN_PORT, carried_schema(source.schema))]
        rejected = Output(step, REJECTED_PORT)
        self.feeds[rejected] = [Feed(step.name, REJECTED_PORT, rejected.schema)]

    def frames_downstream(self, source: Step) -> list[tuple[int, int]]:
        """(slide_us, offset_us) of the windows that rows of a step come to; of sessions their watermark step."""
        frames: list[tuple[int, int]] = []
        reached: set[int] = set()
        waiting: list[Step] = [source]
        while waiting:
            step = waiting.pop()
            if id(step) in reached:
                continue
            reached.add(id(step))
            if isinstance(step, WindowStep):
                window = step.window
                if isinstance(window, SessionWindow):
                    frames.append((window.watermark_step_us, 0))
                else:
                    frames.append((window.slide_us, window.offset_us))
            elif isinstance(step, JoinStep):
                if isinstance(step.method, WindowJoin):
                    frames.append((step.method.window.slide_us, step.method.window.offset_us))
                elif isinstance(step.method, IntervalJoin):
                    frames.append((step.method.watermark_step_us, 0))
                elif isinstance(step.method, AsofJoin):
                    frames.append((ASOF_STEP_US, 0))
            elif isinstance(step, KeyedStateStep) and step.ttl_us is not None:
                frames.append((SessionWindow(step.ttl_us).watermark_step_us, 0))
            waiting += [reader for output, readers in self.readers.items() if output.step is step for reader in readers]
        return frames

    def is_chained(self, output: Output) -> bool:
        """Does the only reader of a stateless step go on in the same vertex?"""
        readers = self.readers.get(output, [])
        if not isinstance(output.step, TransformStep) or len(readers) != 1:
            return False
        return isinstance(readers[0], TransformStep | WindowStep | JoinStep | KeyedStateStep)

    def ends_chain(self, step: TransformStep) -> bool:
        return not self.is_chained(Output(step))

    def chain_up_to(self, step: TransformStep) -> list[TransformStep]:
        """The stateless steps that share a vertex with `step`, first to last, as far as `step`."""
        chain = [step]
        while self.is_chained(chain[0].inputs[0]):
            before = chain[0].inputs[0].step
            assert isinstance(before, TransformStep)
            chain.insert(0, before)
        return chain

    def add_chain(self, chain: Sequence[TransformStep], last: Operation | None = None, last_step: str = "") -> Feed:
        """Add the vertex of a chain; `last` is what the planner itself appends on behalf of `last_step`."""
        feeds = self.feeds[chain[0].inputs[0]]
        steps: list[tuple[str, Operation]] = [(step.name, step.operation) for step in chain]
        if last is not None:
            steps.append((last_step, last))
        name = " > ".join(step.name for step in chain)
        self.times[name] = chain[-1].time
        return self.add_transform(name, feeds, steps)

    def add_transform(self, name: str, feeds: Sequence[Feed], steps: Sequence[tuple[str, Operation]]) -> Feed:
        """Add a vertex that applies stateless operations (step name and definition) one after the other."""
        from jetfast.processors.transform import Transform

        schema = feeds[0].schema
        bound: list[BoundOperation] = []
        for step, operation in steps:
            bound.append(operation.bind(schema, step))
            schema = bound[-1].schema
        self.add_vertex(name, partial(Transform, bound), feeds, keeps_state=False)
        return Feed(name, MAIN_PORT, schema)

    def plan_union(self, step: UnionStep) -> None:
        """No vertex: whoever reads the union gets an edge from each input."""
        schema = step.schemas[MAIN_PORT]
        feeds = [feed for output in step.inputs for feed in self.feeds[output]]
        for number, feed in enumerate(feeds):
            if not feed.schema.equals(schema):  # names and types are equal: one of them holds no nulls, by its schema
                name = f"{step.name} (input {number})"
                feeds[number] = self.add_transform(name, [feed], [(step.name, AsNullable(schema))])
        self.feeds[Output(step)] = feeds

    def plan_service(self, step: ServiceStep) -> None:
        from jetfast.processors.map_using_service import MapUsingService

        schema = step.schemas[MAIN_PORT]
        self.times[step.name] = step.time
        supplier = partial(MapUsingService, step.create, step.function, schema, **step.settings)
        self.add_vertex(step.name, supplier, self.feeds[step.inputs[0]])
        self.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, schema)]

    def plan_custom(self, step: CustomStep) -> None:
        routing = partitioned(*step.keys) if step.keys else ISOLATED
        self.times[step.name] = step.time
        self.add_vertex(step.name, step.supplier, self.feeds[step.inputs[0]], routing, crossing=bool(step.keys))
        self.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, step.schemas[MAIN_PORT])]

    def plan_passing(self, step: RebalanceStep | SortStep | PeekStep) -> None:
        """A step that gives the rows that come to it."""
        from jetfast.processors.peek import Peek
        from jetfast.processors.sort_rows import SortRows
        from jetfast.processors.transform import Transform

        feeds = self.feeds[step.inputs[0]]
        schema = feeds[0].schema
        self.times[step.name] = step.time
        if isinstance(step, RebalanceStep):
            routing = partitioned(*step.keys) if step.keys else UNICAST
            self.add_vertex(step.name, partial(Transform, ()), feeds, routing, crossing=True, keeps_state=False)
        elif isinstance(step, PeekStep):
            self.add_vertex(step.name, partial(Peek, step.limit), feeds, keeps_state=False)
        else:
            self.add_vertex(step.name, partial(SortRows, schema, step.by), feeds, ALL_TO_ONE, crossing=True, one=True)
            self.in_order.add(step.name)
        self.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, schema)]

    def plan_map_batches(self, step: MapBatchesStep) -> None:
        from jetfast.processors.map_batches import MapBatches

        schema = step.schemas[MAIN_PORT]
        self.times[step.name] = step.time
        self.add_vertex(step.name, partial(MapBatches, step.function, schema), self.feeds[step.inputs[0]])
        self.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, schema)]

    def plan_processing_time(self, step: ProcessingTimeStep) -> None:
        from jetfast.processors.processing_time import ProcessingTime

        feeds = self.feeds[step.inputs[0]]
        throttle = chosen_throttle(self.frames_downstream(step))
        self.times[step.name] = step.time
        self.add_vertex(step.name, partial(ProcessingTime, step.column, throttle), feeds)
        schema = feeds[0].schema.append(step.schemas[MAIN_PORT].field(step.column))
        self.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, schema)]

    def plan_window(self, step: WindowStep) -> None:
        from jetfast.processors.accumulate_by_frame import AccumulateByFrame
        from jetfast.processors.accumulate_where_it_pays import AccumulateWhereItPays
        from jetfast.processors.combine_frames import CombineFrames
        from jetfast.processors.session_window import SessionWindowProcessor
        from jetfast.processors.sliding_window import SlidingWindowProcessor

        late = Output(step, LATE_PORT)
        late_wanted = late in self.readers
        feeds = self.prepare_window(step, late_wanted)
        schema = feeds[0].schema
        keys = [key for key, _ in step.keys]
        aggregates = [aggregate.for_processor() for aggregate in step.aggregates]
        rows, window = (schema, keys, time_of_row(step), aggregates), step.window
        supplier: ProcessorSupplier
        if isinstance(window, SessionWindow):
            supplier = partial(SessionWindowProcessor, *rows, window)
        elif late_wanted or step.early_period_us is not None:
            supplier = partial(SlidingWindowProcessor, *rows, window)
        elif self.accumulates_always(step):
            feeds = [self.add_first_stage(step, feeds, partial(AccumulateByFrame, *rows, window))]
            supplier = partial(CombineFrames, *rows, window)
        elif self.accumulates_where_it_pays(step):
            crosses = self.member_count > 1
            partials = self.add_first_stage(step, feeds, partial(AccumulateWhereItPays, *rows, window, crosses))
            feeds = [partials, Feed(partials.vertex, MAIN_PORT, schema)]
            supplier = partial(CombineFrames, *rows, window)
        else:
            supplier = partial(SlidingWindowProcessor, *rows, window)
        if step.early_period_us is not None:
            supplier = partial(with_early_results, supplier, step.early_period_us)
        top = self.fused_top(step)
        if top is not None:
            supplier = partial(with_top, supplier, top)
        self.times[step.name] = step.time
        self.add_vertex(step.name, supplier, feeds, partitioned(*keys), crossing=True)
        self.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, step.schemas[MAIN_PORT])]
        if late_wanted:
            missed_until = [late.schema.field(MISSED_UNTIL)] if MISSED_UNTIL not in schema.names else []
            late_feed = Feed(step.name, LATE_PORT, pa.schema([*schema, *missed_until]))
            if late_feed.schema.names != late.schema.names:
                names = tuple((name, Expression(Column(name))) for name in late.schema.names)
                late_feed = self.add_transform(f"{step.name} (late rows)", [late_feed], [(step.name, Select(names))])
            self.feeds[late] = [late_feed]

    def accumulates_always(self, step: WindowStep) -> bool:
        """Has a window two stages, whatever the rows are?

        States of aggregates over batches are large: between members they always pay, inside one never.
        """
        if self.two_stage is None:
            return self.member_count > 1 and not is_plain(step)
        return self.two_stage

    def accumulates_where_it_pays(self, step: WindowStep) -> bool:
        return self.two_stage is None and self.processor_count > 1 and is_plain(step)

    def add_first_stage(
        self, step: WindowStep, feeds: Sequence[Feed], supplier: Callable[[], AccumulateByFrame]
    ) -> Feed:
        """Add the vertex that accumulates; its partials."""
        name = f"{step.name} (accumulate)"
        self.add_vertex(name, supplier, feeds)
        processor = supplier()
        return Feed(name, processor.port, processor.partial_schema)

    def prepare_window(self, step: WindowStep, late_wanted: bool) -> list[Feed]:
        """Compute keys and arguments, and leave out what the window does not read (late rows are whole)."""
        output = step.inputs[0]
        computed = [(key, expression) for key, expression in step.keys if expression is not None]
        computed += [argument for aggregate in step.aggregates for argument in aggregate.computed]
        if step.input_shift_us:
            shift = Expression(Literal(pa.scalar(step.input_shift_us, pa.duration("us"))))
            computed.append((time_of_row(step), Expression(Column(step.time_column)) + shift))
        chain, feeds_schema = self.chain_into(output)
        read = {key for key, expression in step.keys if expression is None}
        if not step.input_shift_us:
            read.add(step.time_column)
        read |= {argument for a in step.aggregates for argument in a.arguments if isinstance(argument, str)}
        surplus = not read.issuperset(feeds_schema.names)
        last: Operation | None = None
        if late_wanted:
            last = WithColumns(tuple(computed)) if computed else None
        elif computed or (surplus and (chain or self.member_count > 1)):
            kept = [(name, Expression(Column(name))) for name in feeds_schema.names if name in read]
            last = Select((*kept, *computed))
        if chain:
            return [self.add_chain(chain, last, step.name)]
        if last is None:
            return self.feeds[output]
        self.times[f"{step.name} (input)"] = step.time_column
        return [self.add_transform(f"{step.name} (input)", self.feeds[output], [(step.name, last)])]

    def chain_into(self, output: Output) -> tuple[list[TransformStep], pa.Schema]:
        """The stateless steps that the reader of an output takes into its vertex, and the schema behind them."""
        if not self.is_chained(output):
            return [], self.feeds[output][0].schema
        assert isinstance(output.step, TransformStep)
        chain = self.chain_up_to(output.step)
        return chain, bound_schema(chain, self.feeds[chain[0].inputs[0]][0].schema)

    def prepare_input(
        self, step: Step, output: Output, read: set[str], computed: Sequence[tuple[str, Expression]], what: str
    ) -> Feed:
        """Bring some columns of an input and what is computed of it, in the vertex of the chain before it, if any."""
        chain, schema = self.chain_into(output)
        kept = [(name, Expression(Column(name))) for name in schema.names if name in read]
        last = Select((*kept, *computed))
        if chain:
            return self.add_chain(chain, last, step.name)
        name = f"{step.name} ({what})"
        self.times[name] = output.step.time
        return self.add_transform(name, self.feeds[output], [(step.name, last)])

    def fused_top(self, step: WindowStep) -> TopResults | None:
        """The best results that a window shall keep while it emits: if nobody reads the others, and they are plain."""
        from jetfast.kernels.windows import is_ranked

        readers = self.readers.get(Output(step), [])
        if len(readers) != 1 or not isinstance(readers[0], TopStep):
            return None
        if not is_plain(step):
            return None  # what is kept beside the table does not know which results it gave
        top = readers[0].top
        return top if is_ranked(step.schemas[MAIN_PORT].field(top.by).type) else None

    def plan_top(self, step: TopStep) -> None:
        """The best of each processor first, then, where those of a window (or of a group) meet, the best of all."""
        from jetfast.processors.top_of_windows import LocalTopOfWindows, TopOfWindows

        feeds = self.feeds[step.inputs[0]]
        schema = feeds[0].schema
        window = step.inputs[0].step
        assert isinstance(window, WindowStep)
        if self.fused_top(window) is None:
            local = f"{step.name} (local)"
            self.times[local] = step.time
            self.add_vertex(local, partial(LocalTopOfWindows, schema, step.top), feeds)
            feeds = [Feed(local, MAIN_PORT, schema)]
        self.times[step.name] = step.time
        supplier = partial(TopOfWindows, schema, step.top)
        self.add_vertex(step.name, supplier, feeds, partitioned(*step.top.per), crossing=True)
        self.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, step.schemas[MAIN_PORT])]

    def plan_sink(self, step: SinkStep) -> None:
        from jetfast.processors.sink import WriteSink

        one = step.sink.parallelism_one
        self.add_vertex(
            step.name,
            WriteSink(step.sink, restored_schema(step.inputs[0].schema)),
            self.feeds[step.inputs[0]],
            ALL_TO_ONE if one else ISOLATED,
            crossing=one,
            one=one,
            delivery=sink_delivery(step.sink),
            counts=sink_counts(step.sink),
            tells_latest=sink_tells_latest(step.sink),
            check_target=step.sink.check_target,
        )

    def add_vertex(
        self,
        name: str,
        supplier: ProcessorSupplier,
        feeds: Sequence[Feed],
        routing: Routing = ISOLATED,
        *,
        crossing: bool = False,
        one: bool = False,
        delivery: Delivery | None = None,
        counts: bool = True,
        tells_latest: bool = False,
        keeps_state: bool = True,
        check_target: Callable[[], None] | None = None,
    ) -> None:
        """Add a vertex with its inbound edges; `crossing`: rows may leave their member; `one`: a single processor."""
        if routing is ISOLATED and all(feed.vertex in self.in_order for feed in feeds):
            routing, crossing, one = ALL_TO_ONE, True, True
            self.in_order.add(name)
        self.dag.add_vertex(
            Vertex(
                name,
                supplier,
                total_parallelism_one=one,
                delivery=delivery,
                counts=counts,
                tells_latest=tells_latest,
                keeps_state=keeps_state,
                check_target=check_target,
            )
        )
        for ordinal, feed in enumerate(feeds):
            self.add_edge(feed, name, ordinal, routing, crossing=crossing)

    def add_edge(
        self, feed: Feed, name: str, ordinal: int, routing: Routing, *, crossing: bool, priority: int = 0
    ) -> None:
        """Add one inbound edge of a vertex."""
        time = self.times.get(feed.vertex) if feed.port == MAIN_PORT else None
        self.dag.add_edge(
            Edge(
                feed.vertex,
                name,
                feed.schema,
                source_port=feed.port,
                ordinal=ordinal,
                routing=routing,
                distributed=crossing and self.member_count > 1,
                priority=priority,
                time_column=time if time in feed.schema.names else None,
            )
        )


def chosen_throttle(frames: Sequence[tuple[int, int]]) -> WatermarkThrottleFactory:
    """The coarsest frame that all windows downstream of a source can bear; without windows every watermark leaves."""
    frame = coarsest_frame(frames)
    return NoThrottling() if frame is None else EmitByFrame(frame)


def with_early_results(window: ProcessorSupplier, period_us: int) -> Processor:
    """Make a window processor that also gives early results."""
    from jetfast.processors.early_results import EarlyResults
    from jetfast.processors.keyed_window import KeyedWindow

    processor = window()
    assert isinstance(processor, KeyedWindow)
    return EarlyResults(processor, period_us)


def with_top(window: ProcessorSupplier, top: TopResults) -> Processor:
    """Make a window processor that emits only the best results."""
    from jetfast.processors.sliding_window import SlidingWindowProcessor

    processor = window()
    assert isinstance(processor, SlidingWindowProcessor)
    processor.top = top
    return processor


def time_of_row(step: WindowStep) -> str:
    """Return the column that holds the time of a row of a window's input: hidden if it is computed."""
    return HIDDEN + HIDDEN + "time" if step.input_shift_us else step.time_column


def is_plain(step: WindowStep) -> bool:
    """Does the kernel compute all aggregates of a window?"""
    return all(isinstance(aggregate.for_processor(), AggregateColumn) for aggregate in step.aggregates)


def bound_schema(chain: Sequence[TransformStep], schema: pa.Schema) -> pa.Schema:
    for step in chain:
        schema = step.operation.bind(schema, step.name).schema
    return schema


def needed_columns(steps: Sequence[Step], readers: dict[Output, list[Step]]) -> dict[Output, set[str]]:
    """Return the columns that must be there at each output, from the sinks backwards."""
    needed: dict[Output, set[str]] = {}
    for step in reversed(steps):
        for output in step.inputs:
            wanted = needed.setdefault(output, set())
            if isinstance(step, TransformStep):
                wanted |= step.operation.needed(output.schema, needed.get(Output(step), set()))
            elif isinstance(step, ProcessingTimeStep):
                wanted |= needed.get(Output(step), set()) - {step.column}
            elif isinstance(step, WindowStep) and Output(step, LATE_PORT) not in readers:
                wanted |= window_columns(step, output.schema)
            elif isinstance(step, RebalanceStep | SortStep):
                own = step.keys if isinstance(step, RebalanceStep) else [column for column, _ in step.by]
                wanted |= needed.get(Output(step), set()).union(own)
            elif isinstance(step, KeyedStateStep):
                whole = Output(step, LATE_PORT) in readers
                wanted |= step.columns_read(needed.get(Output(step), set()), whole=whole)
            elif isinstance(step, JoinStep):
                for ordinal in (LEFT, RIGHT):
                    if step.inputs[ordinal] == output:
                        whole = Output(step, LATE_PORTS[ordinal]) in readers
                        wanted |= step.columns_read(ordinal, needed.get(Output(step), set()), whole=whole)
            else:  # a sink, a function of the user, late rows, a union (its inputs must stay equal)
                wanted |= set(output.schema.names)
        if isinstance(step, SourceStep):
            wanted = needed.setdefault(Output(step), set())
            if step.event_time is not None:
                wanted.add(step.event_time.column)
    return needed


def window_columns(step: WindowStep, schema: pa.Schema) -> set[str]:
    """Columns that a window reads."""
    columns = {step.time_column}
    for key, expression in step.keys:
        columns |= {key} if expression is None else expression.node.columns(schema)
    for aggregate in step.aggregates:
        for argument in aggregate.arguments:
            columns |= {argument} if isinstance(argument, str) else argument.node.columns(schema)
    return columns
