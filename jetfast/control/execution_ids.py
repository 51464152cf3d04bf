"""Gives executions their ids, which only ever grow: whoever sees two of them knows which is the newer one."""

import threading
import time

_execution_id_lock = threading.Lock()
_last_execution_id = 0


def new_execution_id(last: int = 0) -> int:
    """Return an id greater than `last`, any this process gave out, and those of earlier coordinators (by the clock)."""
    global _last_execution_id
    with _execution_id_lock:
        _last_execution_id = max(_last_execution_id + 1, last + 1, time.time_ns() // 1000)
        return _last_execution_id
