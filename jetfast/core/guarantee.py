"""What a job promises about each row after a failure."""

from enum import Enum


class Guarantee(Enum):
    """NONE: a restart starts over. AT_LEAST_ONCE: no row lost, some twice. EXACTLY_ONCE: each row counts once."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"
