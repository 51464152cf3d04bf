"""Debug builds check on every output that no step makes a row late (SEMANTICS 1.5)."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.batch import Batch
from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.items import Watermark
from jetfast.core.processor import Processor
from jetfast.errors import ProtocolError
from tests.engine.graphs import Log, LoggingSink, Passing, ScriptedSource, run

SCHEMA = pa.schema([("time", pa.timestamp("us")), ("value", pa.int64())])


def batch_of(*times):
    return Batch.from_arrow(pa.record_batch([pa.array(times, pa.timestamp("us")), list(times)], schema=SCHEMA))


class Keeping(Processor):
    """Keeps rows until the next ones come; holds its watermark back by as much if it is `careful`."""

    def __init__(self, careful):
        self.careful = careful
        self.forwards_watermark = not careful
        self.kept = []
        self.watermark = None

    def process(self, ordinal, batch):
        yield from self.kept
        if self.careful and self.watermark is not None:
            yield Watermark(self.watermark)
            self.watermark = None
        self.kept = [batch]

    def process_watermark(self, watermark):
        self.watermark = watermark
        return ()

    def complete(self):
        return self.kept


def run_script(script, middle, check_times=True, log=None):
    log = log or Log()
    dag = Dag("test")
    dag.add_vertex(Vertex("source", lambda: ScriptedSource(script)))
    dag.add_vertex(Vertex("middle", middle))
    dag.add_vertex(Vertex("sink", lambda: LoggingSink(log)))
    dag.add_edge(Edge("source", "middle", SCHEMA, time_column="time"))
    dag.add_edge(Edge("middle", "sink", SCHEMA, time_column="time"))
    run(dag, check_times=check_times)
    return [values for _, _, values in log.of("rows")]


def test_a_step_that_makes_a_row_late_is_named():
    script = [batch_of(4), Watermark(5), batch_of(6)]
    with pytest.raises(ProtocolError, match="step 'middle-0' made 1 rows late: a row of time 4 .* the watermark 5"):
        run_script(script, lambda: Keeping(False))
    assert run_script(script, lambda: Keeping(False), check_times=False) == [[4], [6]]


def test_a_step_that_keeps_rows_back_holds_its_watermark_back_by_as_much():
    script = [batch_of(4), Watermark(5), batch_of(6), Watermark(6), batch_of(7)]
    log = Log()
    assert run_script(script, lambda: Keeping(True), log=log) == [[4], [6], [7]]
    assert [value for _, value in log.of("watermark")] == [5, 6]


def test_rows_that_were_late_when_they_came_in_are_excepted():
    assert run_script([Watermark(5), batch_of(4, 7)], Passing) == [[4, 7]]


def test_jetfast_debug_asks_for_the_check(monkeypatch):
    script = [batch_of(4), Watermark(5), batch_of(6)]
    monkeypatch.setenv("JETFAST_DEBUG", "1")
    with pytest.raises(ProtocolError, match="made 1 rows late"):
        run_script(script, lambda: Keeping(False), check_times=None)
    monkeypatch.delenv("JETFAST_DEBUG")
    run_script(script, lambda: Keeping(False), check_times=None)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=5), min_size=1, max_size=6),
    st.integers(0, 20),
    st.sampled_from([1, 2]),
)
def test_the_steps_of_a_pipeline_make_no_row_late(batches, lag, members):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JETFAST_DEBUG", "1")
        pipeline = jf.Pipeline("checked")
        tables = [pa.table({"time": pa.array(b, pa.timestamp("us")), "k": [t % 3 for t in b]}) for b in batches]
        rows = pipeline.read(jf.memory(tables, unbounded=False), name="rows").with_event_time(
            "time", jf.watermarks.fixed_lag(f"{lag}us")
        )
        kept = (
            rows.where(jf.col("k") < 2).union(rows.with_column("k", jf.col("k") + 5)).map_batches(lambda batch: batch)
        )
        counts = kept.group_by("k").window(jf.sliding("10us", "5us")).agg(n=jf.count(), name="counts")
        counts.collect()
        counts.late_rows.collect("late")
        dag = pipeline.plan()
        assert {edge.time_column for edge in dag.edges if edge.destination == "counts"} == {"time"}
        jf.LocalCluster(members=members, workers=1).submit(pipeline, progress=False).wait()
