"""Functions of pipelines that let the process they run in be killed at named crash points, so many times in all."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from jetfast.core.crash_points import CrashPoint, set_crash_hook


def kill_at(point: CrashPoint, passes: int, folder: Path, times: int) -> Callable[[CrashPoint], None]:
    """Return a crash hook: at `point`, when a process comes there for the time after `passes`, it dies by SIGKILL;
    `times` in all, counted by files in `folder`. At points of a restore only once something has crashed.
    """
    passed = 0

    def reach(reached: CrashPoint) -> None:
        nonlocal passed
        if reached != point or (point.startswith("restore") and not any(folder.iterdir())):
            return
        passed += 1
        if passed <= passes:
            return
        for number in range(times):
            try:
                os.close(os.open(folder / f"{point}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


class PassesRows:
    """Leaves rows as they are; a process into which it is unpickled dies at each of the points, by `kill_at`."""

    def __init__(self, passes: Mapping[CrashPoint, int], folder: Path, times: int = 1) -> None:
        self.passes = dict(passes)
        self.folder = folder
        self.times = times

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def __reduce__(self) -> tuple[Callable[..., "PassesRows"], tuple[object, ...]]:
        return arrive, (self.passes, self.folder, self.times)


def arrive(passes: Mapping[CrashPoint, int], folder: Path, times: int) -> PassesRows:
    """Called where it is unpickled: in members, and not in the process that submits."""
    hooks = [kill_at(point, number, folder, times) for point, number in passes.items()]

    def reach(reached: CrashPoint) -> None:
        for hook in hooks:
            hook(reached)

    set_crash_hook(reach)
    return PassesRows(passes, folder, times)
