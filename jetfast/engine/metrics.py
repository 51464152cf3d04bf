"""What an execution tells of itself while it runs: plain ints, strings, lists and dicts.

    {"job": str, "execution_id": int, "member": int,
     "vertices": {name: {
         "processors": int, "finished": int,      of this member; how many have ended (and may stay for snapshots)
         "rows_in", "rows_out", "batches_in", "batches_out": int,
         "busy_us": int,                          time in which its processors did something, waits for the GIL included
         "queued_items": int, "queue_capacity": int,   in the queues of this member that lead into the vertex
         "watermark_us": int | None,              the least over its processors that have not finished; None: none yet
         "idle_processors": int,                  those whose inputs are all idle
         "restored_rows_read", "restored_rows_written": int,    of those counters, what came from a snapshot
         ... and ProcessorContext.counters, summed by name ("late_rows", ...), restored ones included
     }},
     "event_time": {                          for `job.explain_watermark()`
         "now_us": int,                       wall clock of the report
         "sources": [{"vertex", "processor", "blocked", ...}],    jetfast.core.event_time_report; has it output that
                                                                  waits for room?
         "steps": [{"vertex": str, "processor": int, "watermark_us": int | None, "idle", "finished": bool,
                    "since_us": int,          wall clock when that watermark was first seen here
                    "input": str | None, "input_watermark_us": int | None,    which holds it back
                    "leap": None | {"at_us", "from_us", "to_us": int, "all_idle": bool}}]},
     "snapshot": None | {                     the round that is under way here
         "snapshot_id": int, "waits": [{"step": str, "for": str}]},    processors that owe an answer, and why
     "standstill": [{                         processors that have done nothing for a while: jetfast.engine.standstill
         "step": str, "seconds": float,
         "kind": str, "for": str}],           call, room, barrier, input or source; and which
     "peers": [{"peer", "rows_sent", "rows_received", "bytes_sent", "bytes_received": int}],
     "sampled_cpu_ns", "sampled_kernel_ns": int,  CPU time of sampled rounds of the workers; of that, in kernels
     "queued_bytes": int, "queued_bytes_peak": int, "memory_limit": int | None}

Counters are read while others write them: each is exact for its moment, they need not fit each other.
"""

from typing import TYPE_CHECKING, Any

from jetfast.engine.standstill import standstill_metrics
from jetfast.types import MIN_TIME

_SHOWN_IF_RESTORED = ("rows_read", "rows_written")

if TYPE_CHECKING:
    from jetfast.engine.execution import Execution
    from jetfast.engine.inbound_edge import Inbound
    from jetfast.engine.processor_tasklet import ProcessorTasklet


def execution_metrics(execution: "Execution") -> dict[str, Any]:
    """Return the metrics of one member's share of an execution, see above."""
    vertices: dict[str, dict[str, Any]] = {}
    for vertex in execution.dag.vertices:
        tasklets = [tasklet for tasklet in execution.tasklets if tasklet.context.vertex == vertex]
        vertices[vertex] = vertex_metrics(tasklets)
    for channel, queue in list(execution.queues.items()):
        metrics = vertices[execution.dag.edges[channel.edge].destination]
        metrics["queued_items"] += len(queue)
        metrics["queue_capacity"] += queue.capacity
    budget = execution.budget
    peers = [] if execution.transport is None else execution.transport.statistics()
    return {
        "job": execution.job,
        "execution_id": execution.execution_id,
        "member": execution.member,
        "vertices": vertices,
        "event_time": event_time_metrics(execution),
        "snapshot": snapshot_metrics(execution),
        "standstill": standstill_metrics(execution, execution.now_us()),
        "peers": [dict(peer._asdict()) for peer in peers],
        "sampled_cpu_ns": sum(worker.cpu_sampler.cpu_ns for worker in execution.workers),
        "sampled_kernel_ns": sum(worker.cpu_sampler.kernel_ns for worker in execution.workers),
        "queued_bytes": 0 if budget is None else budget.used_bytes,
        "queued_bytes_peak": 0 if budget is None else budget.peak_bytes,
        "memory_limit": execution.memory_limit,
    }


def event_time_metrics(execution: "Execution") -> dict[str, Any]:
    """Return what each processor of this member can tell about its watermark."""
    now_us = execution.now_us()
    sources: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for tasklet in execution.tasklets:
        context = tasklet.context
        where = {
            "vertex": context.vertex,
            "processor": context.index,
            "finished": tasklet.ended,
        }
        if tasklet.inbound is None:
            described = tasklet.describe_event_time()
            if described is not None:
                sources.append({**where, "blocked": bool(tasklet.outbox.blocked), **described})
        else:
            steps.append({**where, **inbound_metrics(tasklet.inbound, execution, tasklet.name, now_us)})
    return {"now_us": now_us, "sources": sources, "steps": steps}


def snapshot_metrics(execution: "Execution") -> dict[str, Any] | None:
    """Return which tasklets the present snapshot round waits for on this member; None: for none of them."""
    snapshots = execution.snapshots
    if snapshots is None or snapshots.round is None:
        return None
    waits = [(tasklet.name, tasklet.waits_for) for tasklet in execution.tasklets]
    owing = [{"step": name, "for": reason} for name, reason in waits if reason is not None]
    return {"snapshot_id": snapshots.round.snapshot_id, "waits": owing} if owing else None


def inbound_metrics(inbound: "Inbound", execution: "Execution", name: str, now_us: int) -> dict[str, Any]:
    """Return which input holds the watermark of one processor back."""
    watermark = inbound.watermark
    seen = execution.watermarks_seen.get(name)
    if seen is None or seen[0] != watermark:
        seen = execution.watermarks_seen[name] = (watermark, now_us)
    holder = inbound.holder()
    leap = inbound.leap
    return {
        "watermark_us": None if watermark == MIN_TIME else watermark,
        "idle": inbound.idle,
        "since_us": seen[1],
        "input": None if holder is None else holder[0].upstream,
        "input_watermark_us": None if holder is None or holder[1] == MIN_TIME else holder[1],
        "leap": None if leap is None else dict(zip(("at_us", "from_us", "to_us", "all_idle"), leap, strict=True)),
    }


def vertex_metrics(tasklets: list["ProcessorTasklet"]) -> dict[str, Any]:
    """Sum up the processors of one vertex on one member."""
    counters: dict[str, int] = {}
    for tasklet in tasklets:
        for name, count in tasklet.counters.items():
            counters[name] = counters.get(name, 0) + count
    for tasklet in tasklets:
        for name in _SHOWN_IF_RESTORED:
            if name in tasklet.restored_counters:
                shown = f"restored_{name}"
                counters[shown] = counters.get(shown, 0) + tasklet.restored_counters[name]
    live = [tasklet for tasklet in tasklets if not tasklet.ended] or tasklets
    watermarks = [tasklet.watermark_us for tasklet in live]
    reached = [watermark for watermark in watermarks if watermark is not None]
    return {
        "processors": len(tasklets),
        "finished": sum(tasklet.ended for tasklet in tasklets),
        "rows_in": sum(tasklet.rows_in for tasklet in tasklets),
        "rows_out": sum(tasklet.rows_out for tasklet in tasklets),
        "batches_in": sum(tasklet.batches_in for tasklet in tasklets),
        "batches_out": sum(tasklet.batches_out for tasklet in tasklets),
        "busy_us": sum(tasklet.busy_ns for tasklet in tasklets) // 1000,
        "queued_items": 0,
        "queue_capacity": 0,
        "watermark_us": min(reached) if reached and len(reached) == len(watermarks) else None,
        "idle_processors": sum(tasklet.asleep for tasklet in live),
        **counters,
    }
