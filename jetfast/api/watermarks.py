"""How far event time has come, as `jetfast.watermarks`: policies, throttling, coalescing; each works on its own, too.

    policy = jf.watermarks.fixed_lag("10s")
    policy.report(timestamps, now_us), policy.current(now_us)      -> watermark
    jf.watermarks.emit_by_min_step("1s").throttle(watermark)       -> watermark or None
    jf.watermarks.WatermarkCoalescer(2).observe_watermark(0, 100)  -> what is forwarded, in order

A policy of your own is a class with `report` and `current` (`WatermarkPolicy`); what is given to `with_event_time` is
called without arguments once for each source partition: the class itself will do.
"""

from jetfast.core.throttling import (
    WatermarkThrottle,
    emit_by_frame,
    emit_by_min_step,
    no_throttling,
)
from jetfast.core.watermark_policies import (
    WatermarkPolicy,
    fixed_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    limiting_timestamp_and_wall_clock_lag,
    real_time_lag,
)
from jetfast.kernels.watermarks import WatermarkCoalescer
from jetfast.types import MAX_TIME, MIN_TIME

__all__ = [
    "MAX_TIME",
    "MIN_TIME",
    "WatermarkCoalescer",
    "WatermarkPolicy",
    "WatermarkThrottle",
    "emit_by_frame",
    "emit_by_min_step",
    "fixed_lag",
    "limiting_lag_and_delay",
    "limiting_lag_and_lull",
    "limiting_timestamp_and_wall_clock_lag",
    "no_throttling",
    "real_time_lag",
]
