"""A member on Spark: one ordinary Spark job of one long task, whose Python worker is the member.

Its MemberTask travels only inside the closure of the task. It exits, too, when the JVM that started it is gone. A copy
that Spark makes of it (speculation, a retry) is the same incarnation: whoever registers first is it, others are turned
away, and so is a retry after its end: the coordinator submits the next incarnation itself.
"""

import functools
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from jetfast.control.member_agent import Deliver, RunningExecution, make_execution, unpickle_dag, unpickle_store
from jetfast.control.messages import Prepare
from jetfast.control.remote_member import MemberTask, Surroundings, run_member
from jetfast.core.dag import Dag
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.transport import Transport
from jetfast.errors import ResourcesError

ADVICE = (
    "set host= of SparkCluster to a name or address of the driver that executors reach, and port_range= to ports "
    "that are open between all hosts"
)
RESULT_SCHEMA = "member long"
EXIT_GRACE_S = 0.0
"""Seconds that a member whose coordinator, JVM or lease is gone has to stop by itself; then its process is ended. None:
whoever takes its place counts on its end with its lease."""

MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def member_function(task: MemberTask, folders: Sequence[str] = ()) -> MapInArrow:
    """Return the function of the Spark job that is member `task.member`, for `DataFrame.mapInArrow`.

    It imports also from `folders`, last.
    """

    def jetfast_member(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass  # the one row of the range says nothing
        sys.path += [folder for folder in folders if folder not in sys.path]
        run_spark_member(task)
        yield from ()

    return jetfast_member


def run_spark_member(task: MemberTask) -> None:
    """Be the member in this Python worker. Raises as `run_member`."""
    parent = os.getppid()

    def missing() -> str | None:
        """Tell whether the JVM is gone: without it the worker's parent is another process."""
        return "its JVM has gone" if os.getppid() != parent else None

    run_member(
        task,
        Surroundings(
            ADVICE,
            EXIT_GRACE_S,
            load_dag=load_dag,
            make_execution=make_execution_that_shares,
            missing=missing,
            sends_logs=True,
        ),
    )
    _spare_modules()


def make_execution_that_shares(dag: Dag, prepare: Prepare, transport: Transport, deliver: Deliver) -> RunningExecution:
    """Make the engine's execution. Raises ResourcesError if the snapshot store is another one than the driver's."""

    def load_store(pickled: bytes) -> SnapshotStore:
        store = unpickle_store(pickled)
        if store.read_record(prepare.job) is None:  # the driver has written it a moment ago
            raise ResourcesError(
                f"{store.name} of {socket.gethostname()} is not that of the driver: it knows no job {prepare.job!r}. "
                "Snapshots need a directory that driver and executors share, or an object store"
            )
        return store

    return make_execution(dag, prepare, transport, deliver, load_store=load_store)


@functools.cache
def _spare_modules() -> None:
    """Let no collection of garbage look at what was imported, once in the life of a worker: behind its first job.

    Spark collects after each task, and the members of a job are long tasks that make little garbage: looking at modules
    took 40 ms of each, and 16 ms at those alone that a first job imports while it runs.
    """
    gc.collect()  # what is garbage by now would never be freed
    gc.freeze()


def load_dag(dag: bytes) -> Dag:
    """Read the graph of the job. Raises ResourcesError if a function in it comes from a module that is not here."""
    try:
        return unpickle_dag(dag)
    except ImportError as error:
        raise ResourcesError(
            f"a step of the job cannot be loaded on {socket.gethostname()}: {error}. Modules of your own must reach "
            "Spark's workers: spark.sparkContext.addPyFile(...), or install them there"
        ) from error
