"""Random scripts through random graphs: no row is lost, no step makes a row late, watermarks only rise."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.items import ACTIVE, IDLE, Watermark
from jetfast.core.processor import Processor
from jetfast.core.routing import ALL_TO_ONE, BROADCAST, FANOUT, ISOLATED, UNICAST, partitioned
from tests.engine.graphs import Log, LoggingSink, Passing, ScriptedSource, batch_of, graph, run, values_of

ROUTINGS = [UNICAST, ISOLATED, ALL_TO_ONE, BROADCAST, FANOUT, partitioned("key")]


class Holding(Processor):
    """Keeps rows back until the watermark has passed them, as a window does."""

    def __init__(self):
        self.kept = []

    def process(self, ordinal, batch):
        self.kept += values_of(batch)
        return ()

    def release(self, watermark):
        for value in sorted(value for value in self.kept if value < watermark):
            yield batch_of(value)
        self.kept = [value for value in self.kept if value >= watermark]

    def process_watermark(self, watermark):
        # A row leaves before any watermark greater than its time.
        return self.release(watermark)

    def complete(self):
        return self.release(10**9)


@st.composite
def scripts(draw, idle):
    """Rows that are on time by the script's own watermark, and watermarks that rise."""
    script, watermark, asleep = [], 0, False
    kinds = ["rows", "rows", "watermark"] + (["idle", "nothing"] if idle else [])
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=12)):
        if kind == "nothing":
            script.append(None)
        elif kind == "idle":
            script.append(IDLE)
            asleep = True
            if draw(st.booleans()):
                script.append(ACTIVE)
        elif kind == "rows":
            values = [watermark + offset for offset in draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))]
            script.append(batch_of(*values))
        else:
            watermark += draw(st.integers(1, 5))
            script.append(Watermark(watermark))
    return script, asleep


@st.composite
def cases(draw, idle):
    members, parallelism = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2)]))
    return {
        "members": members,
        "scripts": [draw(scripts(idle))[0] for _ in range(members * parallelism)],
        "parallelism": parallelism,
        "workers": draw(st.integers(1, 2)),
        "routings": [draw(st.sampled_from(ROUTINGS)) for _ in range(2)],
        "distributed": draw(st.booleans()),
        "queue_items": draw(st.integers(1, 3)),
        "cooperative": draw(st.booleans()),
        "memory_limit": draw(st.sampled_from([None, 1, 100])),
        "middle": draw(st.sampled_from([Passing, Holding])),
    }


def run_case(case):
    log = Log()

    class Source(ScriptedSource):
        def open(self, context):
            self.script = list(case["scripts"][context.index])

    edge = {"distributed": case["distributed"], "queue_items": case["queue_items"]}
    dag = graph(
        ("source", lambda: Source([], cooperative=case["cooperative"]), {"parallelism": case["parallelism"]}),
        ("middle", case["middle"]),
        ("sink", lambda: LoggingSink(log)),
        edges=[
            ("source", "middle", {"routing": case["routings"][0], **edge}),
            ("middle", "sink", {"routing": case["routings"][1], **edge}),
        ],
    )
    run(dag, members=case["members"], workers=case["workers"], memory_limit=case["memory_limit"])
    return log


def copies(case):
    """How often each row must arrive."""
    processors = case["members"] * case["workers"] if case["distributed"] else case["workers"]
    each = {BROADCAST: processors, FANOUT: case["members"] if case["distributed"] else 1}
    return each.get(case["routings"][0], 1) * each.get(case["routings"][1], 1)


def check(case, log, late_allowed):
    sent = Counter()
    for script in case["scripts"]:
        for item in script:
            if item is not None and not isinstance(item, Watermark) and item not in (IDLE, ACTIVE):
                sent.update(values_of(item))
    arrived = Counter()
    watermarks = {}
    for event in log.events:
        if event[0] == "rows":
            who, values = event[1], event[3]
            arrived.update(values)
            if not late_allowed:
                assert min(values) >= watermarks.get(who, -1)
        elif event[0] == "watermark":
            assert event[2] > watermarks.get(event[1], -1)
            watermarks[event[1]] = event[2]
    assert arrived == Counter({value: count * copies(case) for value, count in sent.items()})
    assert len(log.of("complete")) == case["members"] * case["workers"]


@settings(max_examples=60, deadline=None)
@given(cases(idle=False))
def test_no_row_is_lost_and_no_step_makes_a_row_late(case):
    check(case, run_case(case), late_allowed=False)


@settings(max_examples=60, deadline=None)
@given(cases(idle=True))
def test_idle_sources_lose_no_row_and_let_watermarks_only_rise(case):
    check(case, run_case(case), late_allowed=True)
