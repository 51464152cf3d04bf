"""The text that commands print about one job, or a line for each of several."""

from jetfast.cli.output import describe_seconds, print_facts, print_json, print_table
from jetfast.control.job_client import SilentJob
from jetfast.control.job_report import JobReport, SnapshotFigures
from jetfast.control.progress import format_time, shorten_count


def describe_outcome(report: JobReport) -> str:
    """Return status, rows and the error of a job on one line."""
    text = f"{report.status}: {report.rows_read:,} rows in, {report.rows_written:,} out"
    return text if report.error is None else f"{text}; {report.error}"


def print_report(report: JobReport, *, as_json: bool) -> None:
    """Print where a job stands."""
    if as_json:
        print_json(report)
        return
    holder = report.held_back_by
    held_back = "" if holder is None else f"held back by {holder.partition!r} of {holder.source!r}: {holder.waits_for}"
    last = report.last_snapshot
    print_facts(
        {
            "job": f"{report.job}  (id {report.id[:12]}, process {report.pid} on {report.host})",
            "status": f"{report.status}, {describe_seconds(report.seconds)} since its submission",
            "error": report.error or "",
            "suspended because": report.suspension_cause or "",
            "waits for": report.waits_for,
            "cluster": f"{report.cluster}: {len(report.members)} of {report.members_wanted} members, "
            f"{report.workers} worker(s) each",
            "members": [f"{m.member}: process {m.pid} on {m.host}, {m.rows_read:,} rows in" for m in report.members],
            "guarantee": [
                report.guarantee,
                *(f"sink {sink}: {kept}" for sink, kept in report.sink_guarantees.items()),
                *(f"weakened: {why}" for why in report.weakened_by),
            ],
            "execution": f"{report.execution_id}, {report.restarts} restart(s)",
            "snapshots": [] if report.store is None else _describe_snapshots(report),
            "last snapshot": "" if last is None else _describe_snapshot(last, report),
            "rows in": f"{report.rows_read:,}"
            + ("" if report.total_rows is None else f" of {report.total_rows:,}")
            + f", {report.rows_per_second:,.0f} a second",
            "rows out": f"{report.rows_written:,}",
            "late": f"{report.late_rows:,}, partly late {report.partly_late_rows:,}, rejected {report.rejected_rows:,}",
            "watermark": [_describe_watermark(report), held_back],
            "steps": [
                f"{name}: {step.rows_in:,} rows in, {step.rows_out:,} out"
                + (f", {step.queued_items:,} batches wait" if step.queued_items else "")
                for name, step in report.steps.items()
            ],
        }
    )


def _describe_snapshots(report: JobReport) -> list[str]:
    interval = "" if report.snapshot_interval_s is None else f", every {describe_seconds(report.snapshot_interval_s)}"
    taken = f"{report.snapshots_taken:,} taken, {report.snapshots_failed:,} failed{interval}"
    return [taken, f"in {report.store}, which survives {report.survives}"]


def _describe_snapshot(last: SnapshotFigures, report: JobReport) -> str:
    age_s = report.seconds - last.started_s - last.seconds
    outcome = f"failed: {'; '.join(last.errors)}" if last.errors else f"{shorten_count(last.bytes)}B"
    return (
        f"{last.snapshot_id} ({last.kind}), {describe_seconds(max(0.0, age_s))} ago: {outcome} in "
        f"{last.seconds:.3f} s, pause {last.pause_us / 1000:.1f} ms"
    )


def _describe_watermark(report: JobReport) -> str:
    if report.watermark_us is None or report.watermark_lag_us is None:
        return ""
    return f"{format_time(report.watermark_us)}, {_lag(report)} behind the clock"


def _lag(report: JobReport) -> str:
    return "-" if report.watermark_lag_us is None else describe_seconds(report.watermark_lag_us / 1e6)


def print_jobs(reports: list[JobReport], silent: list[SilentJob]) -> None:
    """Print a line for each running job."""
    print_table(
        ("JOB", "ID", "STATUS", "FOR", "CLUSTER", "ROWS IN", "ROWS OUT", "LAG", "LAST SNAPSHOT", "RESTARTS", "PID"),
        map(_row, reports),
    )
    for job in silent:
        print_facts({"silent": job.why})


def _row(report: JobReport) -> tuple[str, ...]:
    last = report.last_snapshot
    snapshot = "-"
    if last is not None:
        snapshot = "failed" if last.errors else f"{shorten_count(last.bytes)}B in {last.seconds:.2f} s"
    return (
        report.job,
        report.id[:12],
        report.status,
        describe_seconds(report.seconds),
        report.cluster or "-",
        f"{report.rows_read:,}",
        f"{report.rows_written:,}",
        _lag(report),
        snapshot,
        str(report.restarts),
        str(report.pid),
    )
