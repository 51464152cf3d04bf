"""The clusters that hunted jobs run on: their sizes, and the processes of a coordinator that is to die."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jetfast as jf
from jetfast.clusters.cluster import Cluster

ClusterKind = Literal["processes", "spark"]
SHAPES: dict[ClusterKind, tuple[tuple[int, int], ...]] = {
    "processes": ((2, 1), (2, 1), (1, 2), (3, 1)),
    "spark": ((3, 1), (3, 1), (2, 2), (4, 1)),
}
"""Members, and workers of each, that a coordinator is started with, as chance has it."""
EXECUTORS = "local-cluster[3,2,1024]"
"""Three executors of two slots, each a JVM of its own."""


@contextlib.contextmanager
def open_cluster(kind: ClusterKind, members: int, workers: int, folder: Path) -> Iterator[Cluster]:
    """Give a cluster that keeps snapshots in the folder; on Spark in a session of its own, which ends with it."""
    store = jf.snapshots.directory(folder / "snapshots")
    if kind == "processes":
        yield jf.ProcessCluster(members, workers, snapshot_store=store)
        return
    from jetfast.spark import SparkCluster

    session = open_session(folder)
    try:
        yield SparkCluster(session, members, workers, snapshot_store=store, start_timeout="10m")
    finally:
        session.stop()


def open_session(folder: Path) -> Any:
    """Return a Spark session on executors that are processes of this host."""
    import sys

    import pyspark
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # they are started from it
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    builder = SparkSession.builder.master(EXECUTORS).appName("hunted")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def executor_of(worker: int) -> int:
    """Return the process id of the executor that a Python worker belongs to. ProcessLookupError: it has ended."""
    executor = parent_of(parent_of(worker))
    if not is_jvm(executor):
        raise ProcessLookupError(f"{worker} is no worker of an executor")
    return executor


def is_jvm(pid: int) -> bool:
    """Does a process run Java?"""
    try:
        return "java" in os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """Return the process id of the parent. ProcessLookupError: it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError as error:
        raise ProcessLookupError(f"{pid} has ended") from error


def descendants_of(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have, the nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                children.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]


def kill_driver(pid: int) -> None:
    """SIGKILL to a program and to the JVM that it has started: members must see for themselves that it is gone."""
    with contextlib.suppress(ProcessLookupError):
        started = [child for child in descendants_of(pid) if parent_of(child) == pid and is_jvm(child)]
        os.kill(pid, signal.SIGKILL)
        for child in started:
            os.kill(child, signal.SIGKILL)


def kill_all(pids: list[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
