"""The coordinator's process of a hunted job: submits the pipeline and waits. Killed and started again by `Hunt`.

    python -m tests.chaos.program SETTINGS      (as JSON)

SIGUSR1: write to standard error what the job waits for. Exit status 5: a system is away, so a later start may succeed;
7: the job refuses to start, and standard error says why.
"""

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path

import msgspec

import jetfast as jf
from jetfast.errors import JetfastError, JobDefinitionError, RestartableError
from tests.chaos.grounds import open_cluster
from tests.chaos.targets import Target
from tests.chaos.watched import Watched
from tests.chaos.works import Work

AWAY = 5
REFUSED = 7


class Settings(msgspec.Struct, frozen=True):
    """What the program is to do."""

    target: Target
    work: Work
    members: int
    workers: int

    @property
    def folder(self) -> Path:
        return Path(self.target.folder)


def main(settings: Settings) -> None:
    try:
        run(settings)
    except RestartableError as error:
        end(error, AWAY)
    except JetfastError as error:
        end(error, REFUSED)


def end(error: JetfastError, status: int) -> None:
    """Say why, and end without waiting for threads."""
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(status)


def run(settings: Settings) -> None:
    """Submit the job, or continue it, and wait for its end."""
    watched = Watched(settings.folder)
    pipeline = settings.work.pipeline(settings.target.sink(), watched)
    with open_cluster(settings.work.cluster, settings.members, settings.workers, settings.folder) as cluster:
        try:
            job = cluster.submit(
                pipeline, name=settings.target.job, snapshot_interval=settings.work.snapshot_interval, progress=False
            )
        except JobDefinitionError as error:
            if "is completed" not in str(error):
                raise
        else:
            signal.signal(signal.SIGUSR1, lambda *_: tell(job))
            assert job.guarantee is jf.Guarantee.EXACTLY_ONCE
            job.wait()
    watched.note("completed")


def tell(job: jf.Job) -> None:
    """Write what a job that does not go on waits for."""
    faulthandler.dump_traceback()
    print(f"{job.status.value}; {job.explain_snapshot()}; {job.runner.coordinator.status}", file=sys.stderr)
    print(f"{job.metrics['restarts']} restarts, {job.metrics['snapshots'][-3:]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Settings))
