"""Says which processors of a member stand still, since when, and what for: a call, room, an input, a row to read.

A processor stands still when the time in which it did something (`busy_ns`) has not grown for STANDSTILL_S. It is in a
call when its worker has not finished a round for as long; then the place where that thread is now is told, too. Others
of that worker wait for their turn, and are not told of.
"""

import sys
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetfast.engine.execution import Execution
    from jetfast.engine.inbound_edge import Inbound
    from jetfast.engine.processor_tasklet import ProcessorTasklet
    from jetfast.engine.worker import Worker

STANDSTILL_S = 5.0
INPUTS_NAMED = 5
"""Inputs of a processor, or processors that it writes to, that are named."""


def standstill_metrics(execution: "Execution", now_us: int) -> list[dict[str, Any]]:
    """Return what `jetfast.engine.metrics` tells as "standstill". Called by the thread that reports, and no other."""
    found: list[dict[str, Any]] = []
    in_call = {
        worker
        for worker in execution.workers
        if _seconds_still(execution, worker.thread.name, worker.rounds, now_us) >= STANDSTILL_S and worker.calling
    }
    for tasklet in execution.tasklets:
        seconds = _seconds_still(execution, tasklet.name, tasklet.busy_ns, now_us)
        if tasklet.ended or seconds < STANDSTILL_S:
            continue
        worker = execution.worker_of[tasklet.name]
        if worker in in_call and worker.calling is tasklet:
            kind, waits_for = "call", f"a call to return{_place(worker)}{_waiting_batches(execution, tasklet)}"
        elif tasklet.outbox.blocked:
            kind, waits_for = "room", f"room in the queues to {_full(execution, tasklet)}"
        elif worker in in_call:
            continue
        else:
            kind, waits_for = _missing(tasklet.inbound)
        found.append({"step": tasklet.name, "seconds": seconds, "kind": kind, "for": waits_for})
    return found


def _seconds_still(execution: "Execution", name: str, activity: int, now_us: int) -> float:
    seen = execution.activity_seen.get(name)
    if seen is None or seen[0] != activity:
        seen = execution.activity_seen[name] = (activity, now_us)
    return (now_us - seen[1]) / 1e6


def _missing(inbound: "Inbound | None") -> tuple[str, str]:
    if inbound is None:
        return "source", "rows: its source has none to read"
    if barriers := inbound.missing_barriers():
        return "barrier", f"snapshot barriers of {_listed(barriers)}"
    live = _listed(inbound.live_upstreams())
    if inbound.waiting_groups:
        return "input", f"the end of {live}, which it reads before its other inputs"
    return "input", f"rows of {live}"


def _full(execution: "Execution", tasklet: "ProcessorTasklet") -> str:
    edges = zip(execution.dag.outbound(tasklet.context.vertex), tasklet.outbox.edges, strict=True)
    return _listed([f"{edge.destination}-{processor}" for edge, queues in edges for processor in queues.full()])


def _waiting_batches(execution: "Execution", tasklet: "ProcessorTasklet") -> str:
    """Which inputs have batches that wait for a processor that is in a call."""
    vertex, index = tasklet.context.vertex, tasklet.context.index
    waiting: list[str] = []
    for channel, queue in list(execution.queues.items()):
        edge = execution.dag.edges[channel.edge]
        if edge.destination == vertex and channel.downstream == index and (items := len(queue)):
            waiting.append(f"{items} of {edge.source}-{channel.upstream}")
    return f"; batches that wait for it: {_listed(waiting)}" if waiting else ""


def _place(worker: "Worker") -> str:
    """Where its thread is: the outermost function that jetfast has called and that is not its own, and the line."""
    frame = sys._current_frames().get(worker.thread.ident or 0)
    chain: list[FrameType] = []
    while frame is not None:
        chain.append(frame)
        frame = frame.f_back
    inside = False
    for outer in reversed(chain):
        module = outer.f_globals.get("__name__", "")
        ours = module == "jetfast" or module.startswith("jetfast.")
        if inside and not ours and not module.startswith("pyarrow."):
            file = PurePath(outer.f_code.co_filename).name
            return f", in {outer.f_code.co_qualname} ({file}:{outer.f_lineno})"
        inside = inside or ours
    return ""


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:INPUTS_NAMED])}{', ...' if len(names) > INPUTS_NAMED else ''}"
