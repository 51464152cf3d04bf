"""The jobs that run in this process: others reach them, the end of the program stops them, a name runs once a store."""

import atexit
import weakref

from jetfast.control.job import Job
from jetfast.control.job_client import find_jobs
from jetfast.control.job_server import JobServer
from jetfast.control.runner import Runner
from jetfast.core.dag import Dag
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.errors import JobDefinitionError

EXIT_WAIT_S = 10.0
ANSWER_TIMEOUT_S = 2.0
"""A job of another process that does not answer for so long may be taken over."""

_running: weakref.WeakSet[Runner] = weakref.WeakSet()


def start_job(runner: Runner, dag: Dag, *, progress: bool | None) -> Job:
    """Let a job begin and return its handle.

    When the interpreter ends it is cancelled, and has EXIT_WAIT_S to stop: no member is left, no thread cut off in a
    kernel.
    """
    job = Job(runner, dag, progress=progress)
    server = JobServer(job)
    runner.on_end = server.close
    server.start()
    runner.start()
    _running.add(runner)
    return job


def refuse_running(job: str, store: SnapshotStore) -> None:
    """Raise JobDefinitionError if a job of this name runs on this host and keeps its snapshots in the same store.

    The two would take each other's place again and again. One whose process does not answer may be taken over: its next
    write to the store fails. So may one on another host, which nobody sees from here.
    """
    here = [runner for runner in list(_running) if runner.plan.job == job and not runner.has_ended]
    if any(runner.plan.snapshot_store is store for runner in here):
        raise _runs_already(job, store, "in this process")
    if not store.shared:
        return
    for _, report in find_jobs(job, ANSWER_TIMEOUT_S)[0]:
        if report.store == store.name:
            raise _runs_already(job, store, f"in process {report.pid}")


def _runs_already(job: str, store: SnapshotStore, where: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"a job named {job!r} runs already {where}, with its snapshots in {store.name}; cancel it, or "
        "submit this one under another name="
    )


@atexit.register
def _stop_running_jobs() -> None:
    runners = list(_running)
    for runner in runners:
        runner.cancel()
    for runner in runners:
        runner.wait(EXIT_WAIT_S)
