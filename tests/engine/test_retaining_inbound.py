"""max_watermark_retention (SEMANTICS 1.5): a watermark is forwarded at most that long after it was first seen."""

from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.batch import Batch
from jetfast.core.items import ACTIVE, DONE, IDLE, Watermark
from jetfast.core.routing import ALL_TO_ONE, ISOLATED, partitioned
from jetfast.engine.execution_plan import make_execution_plan
from jetfast.engine.retaining_inbound import RetainingInbound, covered_edges, retaining_vertices
from jetfast.errors import DurationError
from jetfast.testing import VirtualClock, scripted, silence
from tests.engine.graphs import Passing, ScriptedSource, batch_of, graph
from tests.engine.test_inbound_edge import World

RETENTION_US = 160


def retaining_world(*edges):
    return World(*edges, make=partial(RetainingInbound, retention_us=RETENTION_US))


def test_a_watermark_is_forwarded_at_most_the_retention_after_it_was_first_seen():
    for seen in range(0, 40, 3):
        world = retaining_world(2)
        world.now_us = 0
        world.put(0, 1, Watermark(1))
        world.now_us = seen
        assert world.put(0, 0, Watermark(50)) == [Watermark(1)]
        forwarded = []
        while not forwarded:
            world.now_us += 1
            forwarded = world.put(0, 0)
        assert forwarded == [Watermark(50)]
        assert RETENTION_US * 15 // 16 <= world.now_us - seen <= RETENTION_US
        assert world.inbound.watermark == 50


def test_what_coalescing_gives_below_the_forced_watermark_is_dropped():
    world = retaining_world(2)
    world.put(0, 0, Watermark(50))
    world.now_us = 200
    assert world.put(0, 0) == [Watermark(50)]
    assert world.put(0, 1, Watermark(20), batch_of(21)) == [[21]]  # rows still come, and are late
    assert world.put(0, 1, Watermark(60)) == []
    assert world.put(0, 0, Watermark(55)) == [Watermark(55)]


def test_an_input_that_does_not_lag_is_not_hurried():
    world = retaining_world(2)
    for now in range(0, 1000, 10):
        world.now_us = now
        assert world.put(0, 0, Watermark(now + 1)) == []
        assert world.put(0, 1, Watermark(now + 1)) == [Watermark(now + 1)]


def test_nothing_follows_idle_but_active():
    world = retaining_world(1, 1)
    world.put(0, 0, Watermark(50), IDLE)
    assert world.put(1, 0, IDLE) == [Watermark(50), IDLE]
    world.now_us = 1000
    assert world.put(0, 0) == []
    assert world.put(0, 0, batch_of(1)) == [ACTIVE, [1]]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(2,), (1, 1), (2, 1)]),
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["rows", "watermark", "watermark", "idle", "done"]),
                  st.integers(1, 40), st.integers(0, 60)),
        max_size=40,
    ),
)  # fmt: skip
def test_watermarks_rise_and_none_is_kept_for_longer_than_the_retention(edges, steps):
    world = retaining_world(*edges)
    queues = [(edge, queue) for edge, count in enumerate(edges) for queue in range(count)]
    reached, done, seen = dict.fromkeys(queues, 0), set(), []
    last, asleep = 0, False
    for where, kind, amount, later in steps:
        queue = queues[where % len(queues)]
        items = []
        world.now_us += later
        if queue not in done:
            if kind == "watermark":
                reached[queue] += amount
                items = [Watermark(reached[queue])]
                seen.append((world.now_us, reached[queue]))
            elif kind == "done":
                done.add(queue)
                items = [DONE]
            else:
                items = [IDLE if kind == "idle" else batch_of(1)]
        for event in world.put(*queue, *items):
            if type(event) is Watermark:
                assert event.value > last
                assert not asleep
                last = event.value
            elif event is IDLE or event is ACTIVE or type(event) is Batch:
                asleep = event is IDLE
        assert all(value <= last for at, value in seen if at + RETENTION_US <= world.now_us)


def plan_of(*edges, workers=2):
    names = dict.fromkeys(name for source, destination, *_ in edges for name in (source, destination))
    fed = {destination for _, destination, *_ in edges}
    vertices = [(name, Passing if name in fed else partial(ScriptedSource, [])) for name in names]
    return make_execution_plan(graph(*vertices, edges=edges), 1, workers)


def test_only_the_first_vertex_that_coalesces_retains():
    keyed, aside = {"routing": partitioned("key")}, {"routing": ISOLATED}
    plan = plan_of(("a", "kept", aside), ("kept", "window", keyed), ("window", "sink", {"routing": ALL_TO_ONE}))
    assert retaining_vertices(plan) == {"window"}
    assert retaining_vertices(plan_of(("a", "window", keyed), workers=1)) == set()
    union = plan_of(("a", "both", aside), ("b", "both", {**aside, "ordinal": 1}), ("both", "window", keyed), workers=1)
    assert retaining_vertices(union) == {"both"}


def test_a_path_that_has_not_passed_one_before_makes_a_further_vertex_retain():
    keyed = {"routing": partitioned("key")}
    plan = plan_of(("a", "window", keyed), ("window", "both", keyed), ("b", "both", {**keyed, "ordinal": 1}))
    assert retaining_vertices(plan) == {"window", "both"}


@pytest.mark.parametrize("catches_up_at", [0, 40, 80, 120, 10_000])
def test_a_watermark_is_kept_once_on_its_way_and_not_once_at_each_union(catches_up_at):
    """`a` and `b` meet, what they give meets `c`. `b` lags for a while, and `c` always."""
    first = retaining_world(1, 1)
    second = World(1, 1, make=partial(RetainingInbound, retention_us=RETENTION_US, covered={0}))
    second.put(1, 0, Watermark(1))
    first.put(1, 0, Watermark(1))
    kept = None
    for now in range(2 * RETENTION_US):
        first.now_us = second.now_us = now
        given = first.put(0, 0, *([Watermark(50)] if now == 0 else []))
        given += first.put(1, 0, *([Watermark(60)] if now == catches_up_at else []))
        if Watermark(50) in second.put(0, 0, *given):
            kept = now
            break
    assert kept is not None
    assert RETENTION_US * 13 // 16 <= kept <= RETENTION_US * 17 // 16


def test_queues_of_one_covered_edge_wait_for_each_other():
    world = World(2, 1, make=partial(RetainingInbound, retention_us=RETENTION_US, covered={0}))
    world.put(1, 0, Watermark(1))
    world.put(0, 1, Watermark(2))
    world.put(0, 0, Watermark(50, 16))
    world.now_us = 10 * RETENTION_US
    world.put(0, 0)
    assert world.inbound.watermark == 2, "rows of the other queue of this edge are on their way"
    assert world.put(0, 1, Watermark(50, 16)) + world.put(0, 1) == [Watermark(50)]


def test_only_vertices_whose_watermarks_meet_others_again_count_how_long_they_were_kept():
    keyed = {"routing": partitioned("key")}
    alone = plan_of(("a", "window", keyed), ("window", "sink", {"routing": ALL_TO_ONE}))
    assert covered_edges(alone) == {"window": frozenset()}
    again = plan_of(
        ("a", "window", keyed),
        ("window", "later", keyed),
        ("later", "both", keyed),
        ("b", "both", {**keyed, "ordinal": 1}),
    )
    assert covered_edges(again) == {"window": frozenset(), "later": frozenset({0}), "both": frozenset({0})}


SCHEMA = pa.schema([("time", pa.timestamp("us")), ("key", pa.string())])


def rows(key, second):
    return pa.table({"time": [second * 1_000_000], "key": [key]}, schema=SCHEMA)


def late_keys(max_watermark_retention):
    pipeline = jf.Pipeline("retention")
    slow = scripted([rows("slow", 0), silence("60s"), rows("slow", 1)])
    fast = scripted([rows("fast", 0), silence("20s"), rows("fast", 65), silence("41s"), rows("fast", 200)])
    one, other = (
        pipeline.read(source, name=name).with_event_time("time", jf.watermarks.fixed_lag("1s"), idle_timeout="0s")
        for name, source in (("slow", slow), ("fast", fast))
    )
    counts = one.union(other).group_by("key").window(jf.tumbling("10s")).agg(n=jf.count(), name="counts")
    counts.collect()
    counts.late_rows.collect("late")
    cluster = jf.LocalCluster(workers=1, clock=VirtualClock())
    job = cluster.submit(pipeline, progress=False, max_watermark_retention=max_watermark_retention)
    job.wait()
    return job.collected("late")["key"].to_pylist()


def test_without_a_retention_the_slowest_input_is_waited_for():
    assert late_keys(None) == []


def test_with_a_retention_what_lags_behind_it_is_late():
    assert late_keys("10s") == ["slow"]


def test_a_negative_retention_is_refused():
    with pytest.raises(DurationError, match="max_watermark_retention must not be negative"):
        late_keys("-1s")
