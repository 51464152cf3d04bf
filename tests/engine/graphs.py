"""Small graphs for tests of the engine: scripted sources, a sink that remembers, and how to run them."""

import threading

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.items import Watermark
from jetfast.core.processor import Processor, SourceProcessor
from jetfast.core.routing import UNICAST
from jetfast.engine.execution import Execution
from jetfast.engine.transport import MemoryNetwork

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])


def batch_of(*values, key=None):
    """Rows (key, value); the key is the value unless one is given."""
    keys = [value if key is None else key for value in values]
    return Batch.from_arrow(pa.record_batch([pa.array(keys, pa.int64()), pa.array(values, pa.int64())], schema=SCHEMA))


def values_of(batch):
    return batch.to_arrow().column("value").to_pylist()


class ScriptedSource(SourceProcessor):
    """Gives a list of outputs, one each time it is polled; an exception in the list is raised."""

    def __init__(self, script, log=None, cooperative=True):
        self.script = list(script)
        self.log = log
        self.cooperative = cooperative

    def open(self, context):
        if self.log is not None:
            self.log.event("open", context)
        self.context = context

    def poll(self):
        if not self.script:
            return None
        item = self.script.pop(0)
        if isinstance(item, Exception):
            raise item
        if item is None:
            return ()
        return (item,)

    def close(self, error):
        if self.log is not None:
            self.log.event("close", self, error)


class EndlessSource(SourceProcessor):
    """Never ends and gives the same batch again and again."""

    def __init__(self, log=None, cooperative=True):
        self.log = log
        self.cooperative = cooperative
        self.given = 0

    def poll(self):
        self.given += 1
        return (batch_of(self.given),)

    def close(self, error):
        if self.log is not None:
            self.log.event("close", self, error)


class Log:
    """What processors tell a test, from any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.events = []

    def event(self, *event):
        with self.lock:
            self.events.append(event)

    def of(self, kind):
        return [event[1:] for event in self.events if event[0] == kind]


class LoggingSink(Processor):
    """Remembers what it is given, as (vertex, processor index, ordinal, values or control item)."""

    def __init__(self, log, cooperative=True):
        self.log = log
        self.cooperative = cooperative

    def open(self, context):
        self.context = context
        self.who = (context.vertex, context.index)

    def process(self, ordinal, batch):
        self.log.event("rows", self.who, ordinal, values_of(batch))
        return ()

    def process_watermark(self, watermark):
        self.log.event("watermark", self.who, watermark)
        return ()

    def process_idle(self):
        self.log.event("idle", self.who)
        return ()

    def complete_edge(self, ordinal):
        self.log.event("edge done", self.who, ordinal)
        return ()

    def complete(self):
        self.log.event("complete", self.who)
        return ()

    def close(self, error):
        self.log.event("close", self, error)


class Passing(Processor):
    """Gives every batch on."""

    def process(self, ordinal, batch):
        return (batch,)


def graph(*vertices, edges):
    """A Dag from (name, supplier, further arguments of Vertex) and (source, destination, further arguments of Edge)."""
    dag = Dag("test")
    for name, supplier, *options in vertices:
        dag.add_vertex(Vertex(name, supplier, **(options[0] if options else {})))
    for source, destination, *options in edges:
        options = dict(options[0]) if options else {}
        dag.add_edge(Edge(source, destination, SCHEMA, routing=options.pop("routing", UNICAST), **options))
    return dag


def source_to_sink(source, log, members=1, workers=1, sink=None, **edge):
    """Run source -> sink."""
    dag = graph(("source", source), ("sink", sink or (lambda: LoggingSink(log))), edges=[("source", "sink", edge)])
    return run(dag, members=members, workers=workers)


class EndListener:
    """Takes note of the ends of executions only."""

    def __init__(self, finished=lambda error: None):
        self.finished = finished


class Ended(Exception):
    """A test waited for an execution that did not end."""


def run(dag, members=1, workers=1, network=None, **arguments):
    """Run a Dag to its end on members in this process; raises the first error. Returns the executions."""
    network = network or MemoryNetwork(members)
    executions = [
        Execution(
            dag,
            job="test",
            execution_id=1,
            member=member,
            member_count=members,
            workers=workers,
            transport=network.transport(member),
            **arguments,
        )
        for member in range(members)
    ]
    for execution in executions:
        execution.open()
    return finish(executions)


def finish(executions):
    """Start opened executions and wait for their end; the first error cancels the others and is raised."""
    errors = []
    ended = threading.Semaphore(0)

    def on_finished(error):
        if error is not None:
            errors.append(error)
            for execution in executions:
                execution.cancel()
        ended.release()

    for execution in executions:
        execution.start(EndListener(on_finished))
    for _ in executions:
        if not ended.acquire(timeout=60):
            raise Ended([execution.metrics() for execution in executions])
    assert all(execution.join(10) for execution in executions)
    if errors:
        raise errors[0]
    return executions


def watermark(value):
    return Watermark(value)
