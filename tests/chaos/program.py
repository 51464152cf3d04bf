"""The coordinator's process of a hunted job: submits the pipeline and waits. Killed and started again by `Hunt`.

    python -m tests.chaos.program SETTINGS      (as JSON)

SIGUSR1: write to standard error what the job waits for.
"""

import faulthandler
import signal
import sys
from pathlib import Path

import msgspec

import jetfast as jf
from jetfast.errors import JobDefinitionError
from tests.chaos.grounds import open_cluster
from tests.chaos.targets import Target
from tests.chaos.watched import Watched
from tests.chaos.works import Work


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
