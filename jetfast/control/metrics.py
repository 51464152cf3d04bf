"""Merges what the members of an execution report into the figures of the job.

`job.metrics` is a plain dict:

    rows_read            by sources, rejected ones included     rows_written         rows that reached sinks
    late_rows            in no window                           partly_late_rows     missed some windows
    rejected_rows        malformed, or without a time           rows_received        crossed from member to member
    bytes_sent           between members                        bytes_received       the same, seen from the other end
    seconds              since submission, until the end        rows_per_second      read in the last 10 s, see below
    watermark_us         lowest of the sources (None: none yet) peak_rss_bytes       of all processes of members
    vertices             {name: {counter: total}}
    total_rows           that the sources will give, if known   (None: unknown)
    members              [{member, pid, host, rows_read, rows_received, bytes_sent, bytes_received, ...}]
    queued_bytes_peak    in queues of all members               arena_bytes          in use and pooled, all processes
    python_share         of workers' CPU time, that outside of  arena_allocations    blocks from the system, ever: the
                         kernels; None: not measured yet                             same once a job has warmed up

    restarts             executions after the first         snapshots_taken      and snapshots_failed: of all executions
    snapshots            of the last ones, oldest first: execution_id, snapshot_id, kind, started_s (since submission),
                         seconds, entries, bytes, pause_us and align_us (the longest of a processor), errors

Rows that steps have put aside and that reach a sink count as late or rejected, and not as written.

What processors count (rows_read, rows_written, late_rows, ...) is of the job: it is part of snapshots, and continues
after a restart or another submission as if nothing had happened. Restarts, snapshots and seconds are of this
submission. All other figures count from the beginning of the present execution, those of steps (rows_in, rows_out)
included. To compare both, execution_rows_read and execution_rows_written leave out what was restored. rows_per_second
is of the last 10 s of the present execution, restored rows left out; it stands still while the job is suspended.
Besides these, whatever else `jetfast.engine.metrics` counts for a member, added up.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

WATERMARK = "watermark_us"
"""A lowest value, not a total."""
_PER_PROCESS = ("peak_rss_bytes", "arena_bytes", "arena_allocations")
"""Members that share a process report the same figure; it counts once."""
_CROSSED = ("rows_sent", "rows_received", "bytes_sent", "bytes_received")
_NO_FIGURES = {"pid", "peers", "job", "execution_id", "member"}


class MemberReport(NamedTuple):
    """One member's last report."""

    member: int
    pid: int
    host: str
    values: Mapping[str, Any]


def merge_metrics(
    reports: Iterable[MemberReport],
    sources: Collection[str],
    sinks: Collection[str],
    seconds: float,
    rows_per_second: float = 0.0,
) -> dict[str, Any]:
    """Return the metrics of a job. `sources` and `sinks` name the vertices without inbound and outbound edges, but for
    sinks of rows that were put aside.
    """
    reports = sorted(reports)
    vertices: dict[str, dict[str, Any]] = {}
    for report in reports:
        for vertex, counters in report.values.get("vertices", {}).items():
            _add(vertices.setdefault(vertex, {}), counters)
    merged: dict[str, Any] = {
        "rows_read": _rows_read(vertices, sources),
        "rows_written": _counted(vertices, sinks, "rows_written", "rows_in"),
        **{name: _sum(vertices, name) for name in ("late_rows", "partly_late_rows", "rejected_rows")},
        "execution_rows_read": _rows_read(vertices, sources) - _sum(vertices, "restored_rows_read", sources),
        "execution_rows_written": (
            _counted(vertices, sinks, "rows_written", "rows_in") - _sum(vertices, "restored_rows_written", sinks)
        ),
        "seconds": seconds,
        "rows_per_second": rows_per_second,
        WATERMARK: _lowest(vertices[name].get(WATERMARK) for name in sources if name in vertices),
        "members": [_member(report, sources) for report in reports],
        "vertices": vertices,
    }
    for name in _CROSSED:
        merged[name] = sum(member[name] for member in merged["members"])
    _add_totals(merged, reports)
    cpu_ns = merged.get("sampled_cpu_ns", 0)
    merged["python_share"] = 1 - merged["sampled_kernel_ns"] / cpu_ns if cpu_ns else None
    return merged


def _add_totals(merged: dict[str, Any], reports: Collection[MemberReport]) -> None:
    names = {name for report in reports for name in report.values}
    for name in sorted(names - merged.keys() - _NO_FIGURES):
        values = [(r.host, r.pid, r.values[name]) for r in reports if _is_number(r.values.get(name))]
        if not values:
            continue
        if name in _PER_PROCESS:
            greatest: dict[tuple[str, int], Any] = {}
            for host, pid, value in values:
                greatest[host, pid] = max(value, greatest.get((host, pid), 0))
            merged[name] = sum(greatest.values())
        else:
            merged[name] = sum(value for _, _, value in values)


def _member(report: MemberReport, sources: Collection[str]) -> dict[str, Any]:
    peers = report.values.get("peers", ())
    vertices = report.values.get("vertices", {})
    figures = {name: value for name, value in report.values.items() if _is_number(value) and name not in _NO_FIGURES}
    return {
        **figures,
        "member": report.member,
        "pid": report.pid,
        "host": report.host,
        "rows_read": _rows_read(vertices, sources),
        **{name: sum(peer[name] for peer in peers) for name in _CROSSED},
    }


def _add(total: dict[str, Any], counters: Mapping[str, Any]) -> None:
    for name, value in counters.items():
        if name == WATERMARK:
            total[name] = _lowest([value, total.get(name)])
        elif _is_number(value):
            total[name] = total.get(name, 0) + value
        else:
            total[name] = value


def _sum(vertices: Mapping[str, Mapping[str, Any]], counter: str, among: Collection[str] | None = None) -> int:
    return sum(int(c.get(counter, 0)) for name, c in vertices.items() if among is None or name in among)


def _rows_read(vertices: Mapping[str, Mapping[str, Any]], sources: Collection[str]) -> int:
    """Sources count what they read, rejected rows included."""
    return _counted(vertices, sources, "rows_read", "rows_out")


def _counted(vertices: Mapping[str, Mapping[str, Any]], among: Collection[str], counter: str, otherwise: str) -> int:
    """The sum of what these vertices count; of one that does not, that of another figure."""
    figures = (vertices[name] for name in among if name in vertices)
    return sum(int(counters.get(counter, counters.get(otherwise, 0))) for counters in figures)


def _lowest(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
