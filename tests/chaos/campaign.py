"""Hunts jobs, one after the other or several at once, until all that was planned has been killed; adds it all up."""

import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from jetfast.core.crash_points import CRASH_POINTS
from tests.chaos.faults import FAULTS, Fault, PlannedFault, plan_faults, possible_faults
from tests.chaos.hunt import Hunt, Toll
from tests.chaos.hunted_job import HuntedJob, StuckError
from tests.chaos.kills import (
    RANDOM_MOMENT,
    Kill,
    Occasion,
    plan_freezes,
    plan_kills,
    plan_kills_on_spark,
    plan_random_kills,
)
from tests.chaos.targets import Found, SinkKind, Targets, targets
from tests.chaos.works import NUMBERED, Work
from tests.connectors.postgres_server import PostgresServer

KILLS_A_JOB = 25


@dataclass
class Campaign:
    """What is to be killed, and what has become of it."""

    places: Targets
    folder: Path
    seed: int
    tell: Callable[[str], None]
    planned: "queue.SimpleQueue[Kill | PlannedFault]"
    wanted: int
    """Kills, freezes and faults."""
    work: Work
    tolls: list[Toll] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    _jobs: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hunt_until_done(self) -> None:
        """Hunt one job after the other, as long as there is somebody to be killed. Several threads may do so."""
        while not self.planned.empty() and not self.stuck:
            with self._lock:
                self._jobs += 1
                number = self._jobs
            self._hunt_one(number)

    def _hunt_one(self, number: int) -> None:
        folder = self.folder / f"job-{number}"
        folder.mkdir()
        random = Random(f"{self.seed} {number}")
        kills = min(KILLS_A_JOB, self.wanted)
        target = self.places.target(number, folder)
        with closing(HuntedJob(target, self.work, random)) as job:
            hunt = Hunt(job, random, self.places.database)
            try:
                self._disturb(hunt, kills)
                found = hunt.finish()
            except StuckError as error:
                self.stuck.append(f"seed {self.seed}, job {number}: {error}")
            else:
                self.found.append(found)
                self.tell(f"{target.job}: {hunt.toll.total} kills, {found}")
            self.tolls.append(hunt.toll)

    def _disturb(self, hunt: Hunt, wanted: int) -> None:
        while hunt.toll.done < wanted:
            try:
                planned = self.planned.get_nowait()
            except queue.Empty:
                return
            if isinstance(planned, PlannedFault):
                hunt.meet(planned)
            else:
                hunt.kill(planned)
            self.tell(f"{hunt.job.target.job}: {planned}")


def run_campaign(
    kind: SinkKind,
    kills: int,
    *,
    freezes: int = 0,
    faults: int = 0,
    fault: Fault | None = None,
    work: Work = NUMBERED,
    seed: int = 0,
    jobs_at_once: int = 1,
    server: PostgresServer | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Kill `kills` processes and return the figures, see `__main__`; `stuck` has what is to be read when one is.

    `freezes` members are frozen for longer than a lease, and `faults` of the systems around the job happen, in between;
    only those of one kind, if `fault` names it.

    Those of a query die at random moments, those of numbered rows at crash points, too; on Spark executors die as well.
    """
    started_s = time.monotonic()
    work = msgspec.structs.replace(work, faults=faults > 0)
    planned: queue.SimpleQueue[Kill | PlannedFault] = queue.SimpleQueue()
    plan = plan_kills_on_spark if work.cluster == "spark" else plan_random_kills if work.query else plan_kills
    kinds = possible_faults(kind) if fault is None else [fault]
    in_order = [
        *(plan(kills, seed) if kills else ()),
        *plan_freezes(freezes, seed),
        *plan_faults(faults, seed, kinds),
    ]
    if freezes or faults:
        Random(seed).shuffle(in_order)
    for kill in in_order:
        planned.put(kill)
    with (
        targets(kind, server) as places,
        # Executors that were left alone may still write there.
        tempfile.TemporaryDirectory(prefix="jetfast-chaos-", ignore_cleanup_errors=True) as folder,
    ):
        campaign = Campaign(places, Path(folder), seed, tell, planned, kills + freezes + faults, work)
        with ThreadPoolExecutor(jobs_at_once) as hunters:
            for done in [hunters.submit(campaign.hunt_until_done) for _ in range(jobs_at_once)]:
                done.result()
    return summarize(campaign.tolls, campaign.found, campaign.stuck) | {
        "seed": seed,
        "wall_s": round(time.monotonic() - started_s, 1),
    }


def summarize(tolls: Sequence[Toll], found: Sequence[Found], stuck: Sequence[str]) -> dict[str, Any]:
    """Add up the figures of several hunts."""
    occasions: tuple[Occasion, ...] = (*CRASH_POINTS, RANDOM_MOMENT)
    recoveries_s = [recovery_s for toll in tolls for recovery_s in toll.recoveries_s]
    return {
        "kills": sum(toll.total for toll in tolls),
        "kills_per_point": {occasion: sum(toll.kills[occasion] for toll in tolls) for occasion in occasions},
        "members_killed": sum(toll.victims["member"] for toll in tolls),
        "executors_killed": sum(toll.victims["executor"] for toll in tolls),
        "coordinators_killed": sum(toll.victims["coordinator"] for toll in tolls),
        "hosts_killed": sum(toll.victims["host"] for toll in tolls),
        "freezes": sum(toll.freezes for toll in tolls),
        "faults": sum(toll.faults.total() for toll in tolls),
        "faults_by_kind": {fault: sum(toll.faults[fault] for toll in tolls) for fault in FAULTS},
        "zombies": sum(toll.zombies for toll in tolls),
        "jobs": len(tolls),
        "rows": sum(one.rows for one in found),
        **{name: sum(getattr(one, name) for one in found) for name in ("lost", "duplicated", "wrong", "left")},
        "stuck": list(stuck),
        "recovery_s_mean": round(sum(recoveries_s) / len(recoveries_s), 3) if recoveries_s else None,
        "recovery_s_worst": round(max(recoveries_s), 3) if recoveries_s else None,
    }


def failed(figures: dict[str, Any]) -> bool:
    """Is there anything that must not be, or nothing that was looked at?"""
    return not figures["rows"] or any(figures[name] for name in ("lost", "duplicated", "wrong", "left", "stuck"))


def tell_on_standard_error(line: str) -> None:
    """Show how it goes on."""
    print(line, file=sys.stderr, flush=True)
