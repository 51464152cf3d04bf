"""Watermark policies, as `jetfast.watermarks`: how far event time has come in a source partition."""

from jetfast.core.event_time import WatermarkPolicy, fixed_lag

__all__ = ["WatermarkPolicy", "fixed_lag"]
