"""How much longer than asked for a process sleeps on this machine: what no program on it can be free of.

    python -m benchmarks.hiccups

sleeps to each millisecond in turn, until a line with two times (time.perf_counter_ns) comes in; it prints how late it
woke between them, p99.9 in nanoseconds (G. Tene, jHiccup, 2012). A process of its own: pauses of what it runs beside
are not excused.
"""

import subprocess
import sys
import threading
import time
from typing import Self

import numpy as np

STEP_NS = 1_000_000


def sleep_until(when_ns: int) -> None:
    """Sleep, unless it is past that time."""
    left_ns = when_ns - time.perf_counter_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


class HiccupMeter:
    """Runs the meter beside what is done in its `with` block."""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hiccups"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()  # it runs
        return self

    def percentile_ns(self, begin_ns: int, end_ns: int) -> float:
        """p99.9 between two times."""
        answer, _ = self.process.communicate(f"{begin_ns} {end_ns}\n")
        return float(answer)

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


def main() -> None:
    """Measure until asked."""
    line: list[str] = []
    asked = threading.Thread(target=lambda: line.append(sys.stdin.readline()))
    asked.start()
    due_ns: list[int] = []
    late_ns: list[int] = []
    print("measuring", flush=True)
    due = time.perf_counter_ns()
    while asked.is_alive():
        due += STEP_NS
        sleep_until(due)
        due_ns.append(due)
        late_ns.append(time.perf_counter_ns() - due)
    if not line[0]:
        return
    begin_ns, end_ns = map(int, line[0].split())
    times = np.array(due_ns)
    chosen = np.array(late_ns)[(times >= begin_ns) & (times < end_ns)]
    print(float(np.percentile(chosen, 99.9)))


if __name__ == "__main__":
    main()
