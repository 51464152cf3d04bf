"""Merging members' figures: totals add up, what belongs to a process counts once, the lowest watermark holds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.control.metrics import MemberReport, merge_metrics


def report(member: int, pid: int = 1, **values: object) -> MemberReport:
    return MemberReport(member, pid, "host", values)


def vertex(**counters: object) -> dict[str, object]:
    return dict(counters)


def test_a_job_without_reports_has_all_figures_at_zero() -> None:
    metrics = merge_metrics([], ["source"], ["sink"], 0.0)
    for name in ("rows_read", "rows_written", "late_rows", "partly_late_rows", "rejected_rows"):
        assert metrics[name] == 0
    assert metrics["watermark_us"] is None
    assert metrics["members"] == []


def test_rows_of_vertices_add_up_over_members() -> None:
    values = {
        "vertices": {
            "source": vertex(rows_out=10, rejected_rows=1, watermark_us=5),
            "windows": vertex(rows_in=10, rows_out=4, late_rows=2, partly_late_rows=3, watermark_us=5),
            "sink": vertex(rows_in=4),
        }
    }
    other = {
        "vertices": {
            "source": vertex(rows_out=7, watermark_us=3),
            "windows": vertex(rows_in=7, late_rows=1, watermark_us=None),
            "sink": vertex(rows_in=5),
        }
    }
    metrics = merge_metrics([report(1, 2, **other), report(0, 1, **values)], ["source"], ["sink"], 2.0)
    assert (metrics["rows_read"], metrics["rows_written"], metrics["seconds"]) == (17, 9, 2.0)
    assert (metrics["late_rows"], metrics["partly_late_rows"], metrics["rejected_rows"]) == (3, 3, 1)
    assert metrics["watermark_us"] == 3
    assert metrics["vertices"]["windows"] == vertex(
        rows_in=17, rows_out=4, late_rows=3, partly_late_rows=3, watermark_us=5
    )
    assert [(m["member"], m["pid"], m["rows_read"]) for m in metrics["members"]] == [(0, 1, 10), (1, 2, 7)]


def test_a_source_that_counts_what_it_read_is_believed() -> None:
    vertices = {"source": vertex(rows_read=10, rejected_rows=2, rows_out=8)}
    metrics = merge_metrics([report(0, vertices=vertices)], ["source"], [], 1.0)
    assert metrics["rows_read"] == metrics["members"][0]["rows_read"] == 10


def test_figures_of_one_process_count_once_for_members_that_share_it() -> None:
    shared = [report(0, 1, peak_rss_bytes=100), report(1, 1, peak_rss_bytes=120)]
    assert merge_metrics(shared, [], [], 1.0)["peak_rss_bytes"] == 120
    apart = [report(0, 1, peak_rss_bytes=100), report(1, 2, peak_rss_bytes=120)]
    assert merge_metrics(apart, [], [], 1.0)["peak_rss_bytes"] == 220


def test_what_crosses_between_members_is_told_per_member_and_in_total() -> None:
    peers = [{"peer": 1, "rows_sent": 1, "rows_received": 2, "bytes_sent": 30, "bytes_received": 40}]
    metrics = merge_metrics([report(0, 1, peers=peers * 2), report(1, 2, peers=peers)], [], [], 1.0)
    assert metrics["members"][0]["rows_received"] == 4
    assert (metrics["rows_received"], metrics["bytes_sent"], metrics["bytes_received"]) == (6, 90, 120)


def test_other_figures_are_totals() -> None:
    reports = [report(0, queued_bytes_peak=5), report(1, queued_bytes_peak=6)]
    metrics = merge_metrics(reports, [], [], 1.0)
    assert metrics["queued_bytes_peak"] == 11


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_matter(rows: list[int], random) -> None:
    reports = [
        report(member, member % 2, peak_rss_bytes=count, vertices={"s": vertex(rows_out=count, watermark_us=count)})
        for member, count in enumerate(rows)
    ]
    expected = merge_metrics(reports, ["s"], [], 1.0)
    random.shuffle(reports)
    assert merge_metrics(reports, ["s"], [], 1.0) == expected
    assert expected["rows_read"] == sum(rows)
    assert expected["watermark_us"] == min(rows)


def test_the_share_of_python_is_weighed_by_cpu_time_and_unknown_before_a_sample() -> None:
    busy, idle = {"sampled_cpu_ns": 900, "sampled_kernel_ns": 890}, {"sampled_cpu_ns": 100, "sampled_kernel_ns": 10}
    assert merge_metrics([report(0, **busy), report(1, **idle)], [], [], 1.0)["python_share"] == pytest.approx(0.1)
    assert merge_metrics([report(0, sampled_cpu_ns=0, sampled_kernel_ns=0)], [], [], 1.0)["python_share"] is None
    assert merge_metrics([], [], [], 1.0)["python_share"] is None


def test_blocks_of_a_pool_count_once_for_members_that_share_it() -> None:
    shared = [report(0, 1, arena_allocations=7), report(1, 1, arena_allocations=7)]
    assert merge_metrics(shared, [], [], 1.0)["arena_allocations"] == 7
