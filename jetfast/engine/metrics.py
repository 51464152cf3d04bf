"""What an execution tells of itself while it runs: plain ints, strings, lists and dicts.

    {"job": str, "execution_id": int, "member": int,
     "vertices": {name: {
         "processors": int, "finished": int,      of this member; how many have ended
         "rows_in", "rows_out", "batches_in", "batches_out": int,
         "busy_us": int,                          time in which its processors did something, waits for the GIL included
         "queued_items": int, "queue_capacity": int,   in the queues of this member that lead into the vertex
         "watermark_us": int | None,              the least over its processors that have not finished; None: none yet
         "idle_processors": int,                  those whose inputs are all idle
         ... and ProcessorContext.counters, summed by name ("late_rows", ...)
     }},
     "peers": [{"peer", "rows_sent", "rows_received", "bytes_sent", "bytes_received": int}],
     "sampled_cpu_ns", "sampled_kernel_ns": int,  CPU time of sampled rounds of the workers; of that, in kernels
     "queued_bytes": int, "queued_bytes_peak": int, "memory_limit": int | None}

Counters are read while others write them: each is exact for its moment, they need not fit each other.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetfast.engine.execution import Execution
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
        "peers": [dict(peer._asdict()) for peer in peers],
        "sampled_cpu_ns": sum(worker.cpu_sampler.cpu_ns for worker in execution.workers),
        "sampled_kernel_ns": sum(worker.cpu_sampler.kernel_ns for worker in execution.workers),
        "queued_bytes": 0 if budget is None else budget.used_bytes,
        "queued_bytes_peak": 0 if budget is None else budget.peak_bytes,
        "memory_limit": execution.memory_limit,
    }


def vertex_metrics(tasklets: list["ProcessorTasklet"]) -> dict[str, Any]:
    """Sum up the processors of one vertex on one member."""
    counters: dict[str, int] = {}
    for tasklet in tasklets:
        for name, count in tasklet.context.counters.copy().items():
            counters[name] = counters.get(name, 0) + count
    live = [tasklet for tasklet in tasklets if not tasklet.finished] or tasklets
    watermarks = [tasklet.watermark_us for tasklet in live]
    reached = [watermark for watermark in watermarks if watermark is not None]
    return {
        "processors": len(tasklets),
        "finished": sum(tasklet.finished for tasklet in tasklets),
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
