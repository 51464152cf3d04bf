"""What users ask of a simulated job while it runs and fails: operations of its life, and upgrades.

    suspend             and "resume" when nothing happens any more; in between perhaps "export suspended"
    restart, export     of the running job
    cancel and export   the next coordinator starts from the named snapshot, if there is one
    upgrade             cancel; the next coordinator has a pipeline with another source and its sinks besides. The
                        user first ends coordinators that have the old pipeline and have not claimed the job: the last
                        claim counts, and theirs would come after that of the new pipeline

Who goes on has other members, workers and key partitions. What is asked may be refused, or come to nothing because of
faults: rows must be there once all the same.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from jetfast.control.job_events import (
    CancelAndExportAsked,
    ExportAsked,
    OperationAsked,
    RestartAsked,
    ResumeAsked,
    SuspendAsked,
)
from jetfast.control.job_status import JobStatus
from tests.simulation.scenario import add_source

if TYPE_CHECKING:
    from tests.simulation.simulated_run import SimulatedRun

KINDS = ("suspend", "restart", "export", "cancel and export", "upgrade")
OPERATIONS = (*KINDS, "resume", "export suspended", "start from export")
"""Those that must occur."""
NAME = "exported"
RETRY_STEPS = 40
"""A job that does not run now may run a little later."""


class Operations:
    """The operations of one run. `choice` says which, and when."""

    def __init__(self, run: "SimulatedRun", choice: Random) -> None:
        self.run = run
        self.choice = choice
        self.due = sorted(
            (int(choice.expovariate(1 / 300)), choice.choice(KINDS)) for _ in range(choice.choice([0, 0, 1, 1, 2]))
        )
        self.exported: Future[None] | None = None
        """What a job that is being cancelled says of its export."""
        self.adds_source = False

    @property
    def next_step(self) -> int | None:
        """When the next operation is due."""
        return self.due[0][0] if self.due else None

    def ask_next(self) -> None:
        """Ask for what is due, if the job runs; else later."""
        _, kind = self.due[0]
        run = self.run
        runner = run.job.runner
        if runner.status is not JobStatus.RUNNING:
            self.due[0] = (run.step + RETRY_STEPS, kind)
            self.due.sort()
            return
        del self.due[0]
        run.note(kind)
        if kind == "suspend":
            runner.ask(SuspendAsked)
        elif kind == "restart":
            runner.ask(RestartAsked)
        elif kind == "export":
            runner.ask(partial(ExportAsked, name=NAME))
        elif kind == "cancel and export":
            self.exported = runner.ask(partial(CancelAndExportAsked, name=NAME))
        else:
            self.adds_source = True
            runner.cancel()

    def wake(self) -> None:
        """The job is suspended, and nobody has anything to do."""
        kind, operation = self.choice.choice(_WHILE_SUSPENDED)
        self.run.note(kind)
        self.run.job.runner.ask(operation)

    def next_submission(self) -> dict[str, Any]:
        """Options of the next coordinator; the last one has ended because it was cancelled."""
        run = self.run
        exported, self.exported = self.exported, None
        if self.adds_source and not run.store.is_completed():
            run.end_unclaimed()
            add_source(run.scenario, self.choice, run.clock)
        self.adds_source = False
        if exported is None or not exported.done() or exported.exception() is not None:
            return {}
        run.note("start from export")
        return {"initial_snapshot": NAME}


_WHILE_SUSPENDED: list[tuple[str, Callable[[int], OperationAsked]]] = [
    ("resume", ResumeAsked),
    ("resume", ResumeAsked),
    ("export suspended", partial(ExportAsked, name=NAME)),
]
