"""What one source processor tells of its event time, for `job.explain_watermark()`: plain dicts that can be sent.

{"watermark_us": int | None,        sent last; None: none yet
 "idle": bool,                      it has said that all its partitions are idle
 "policy": str,                     as the user wrote it, such as fixed_lag("10s")
 "partition_count", "unfinished": int,
 "leap": None | {"at_us", "from_us", "to_us": int, "all_idle": bool},
 "partitions": [{                   unfinished ones that are furthest behind, and those with overtaken rows
     "partition": str, "watermark_us": int | None,
     "raised_us": int,              wall clock when its watermark last rose, or its processor started
     "rows_us": int | None,         wall clock when its last rows came
     "idle", "finished", "opened": bool,
     "needs_us": int | None,        a row must be later for the watermark to rise; None: the policy does not tell
     "silent_us": int,              polled time since its last rows
     "idle_in_us": int | None,      polled time after which it will be idle; None: never, or it is
     "overtaken": None | {"rows", "rows_by_all_idle", "first_us", "last_us", "most_us": int}}]}
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jetfast.core.event_time import SourceEventTime
from jetfast.core.watermark_policies import FixedLag, WatermarkPolicy
from jetfast.types import MIN_TIME

REPORTED_PARTITIONS_MAX = 8


def report_event_time(event_time: SourceEventTime, names: Sequence[str], opened: Sequence[bool]) -> dict[str, Any]:
    """Return the report, see above. `names` and `opened`: of each source partition. Any thread may call it."""
    order = list(event_time.reading_order())
    overtaken = dict(event_time.overtaken)
    active = [partition for partition in order if not event_time.idle[partition]]
    chosen = [*active[:REPORTED_PARTITIONS_MAX], *active[-1:], *order[:REPORTED_PARTITIONS_MAX], *order[-1:]]
    chosen += list(overtaken)[:REPORTED_PARTITIONS_MAX]
    leap = event_time.idle_leap
    policies = event_time.policies
    return {
        "watermark_us": _known(event_time.last),
        "idle": event_time.sent_idle,
        "policy": _policy_name(policies[0]) if policies else "",
        "partition_count": len(names),
        "unfinished": len(order),
        "leap": None if leap is None else asdict(leap),
        "partitions": [
            {
                "partition": names[partition],
                "watermark_us": _known(event_time.watermarks[partition]),
                "raised_us": event_time.raised_us[partition],
                "rows_us": event_time.rows_us[partition],
                "idle": event_time.idle[partition],
                "finished": event_time.finished[partition],
                "opened": partition < len(opened) and opened[partition],
                "needs_us": _needed(event_time, partition),
                "silent_us": event_time.silent_us(partition),
                "idle_in_us": event_time.idle_in_us(partition),
                "overtaken": asdict(overtaken[partition]) if partition in overtaken else None,
            }
            for partition in dict.fromkeys(chosen)
        ],
    }


def _needed(event_time: SourceEventTime, partition: int) -> int | None:
    policy, watermark = event_time.policies[partition], event_time.watermarks[partition]
    return watermark + policy.lag_us if isinstance(policy, FixedLag) and watermark > MIN_TIME else None


def _policy_name(policy: WatermarkPolicy) -> str:
    """As the user wrote it; one of the user's own that does not say has the name of its class."""
    return type(policy).__name__ if type(policy).__repr__ is object.__repr__ else repr(policy)


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_TIME else watermark
