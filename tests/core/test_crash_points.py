"""Crash points: nothing happens at them unless a test says so."""

import pytest

from jetfast.core.crash_points import CRASH_POINTS, reach, set_crash_hook


def test_without_a_hook_nothing_happens_at_a_crash_point():
    for point in CRASH_POINTS:
        reach(point)


def test_a_hook_is_told_the_point_and_may_raise():
    reached = []

    def hook(point):
        reached.append(point)
        if point == "before_phase2":
            raise RuntimeError("crashed")

    set_crash_hook(hook)
    try:
        reach("after_prepare")
        with pytest.raises(RuntimeError, match="crashed"):
            reach("before_phase2")
    finally:
        set_crash_hook(None)
    reach("before_phase2")
    assert reached == ["after_prepare", "before_phase2"]
