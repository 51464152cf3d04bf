"""Who is to be killed, when and how: the plan of a campaign, drawn from its seed before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from jetfast.core.crash_points import CRASH_POINTS, CrashPoint

RANDOM_MOMENT: Literal["random_moment"] = "random_moment"
Occasion = CrashPoint | Literal["random_moment"]
Victim = Literal["member", "coordinator", "host", "executor", "frozen"]
"""`host`: the coordinator and all that it has started, at once. `frozen`: a member that is stopped for longer than its
lease, and goes on when another has taken its place."""

PASSES_MAX: dict[CrashPoint, int] = {
    # How often a process may pass the point before it dies there: those of a restart are passed once by each restart,
    # those of the coordinator once or twice by a snapshot, the others by each step.
    "restore_before_commit": 0,
    "restore_between_commit_and_rollback": 0,
    "between_two_commits": 0,
    "before_validation_record": 4,
    "between_records": 4,
    "after_execution_record": 4,
    "before_phase2": 8,
    "after_prepare": 6,
    "after_commit_before_ack": 20,
    "before_barrier": 20,
    "after_state_saved": 20,
    "after_ids_saved": 20,
    "before_ack": 20,
}
IN_A_RESTART: frozenset[CrashPoint] = frozenset(
    ("restore_before_commit", "restore_between_commit_and_rollback", "between_two_commits")
)
"""Reached only after somebody else has died."""
FEWER_PROCESSORS: CrashPoint = "between_two_commits"
"""Reached in a restart where one processor settles what two have left."""

VICTIMS: Sequence[tuple[Victim, ...]] = [
    *[("member",)] * 12,
    *[("coordinator",)] * 3,
    *[("host",)] * 2,
    *[("member", "member")] * 2,
]
"""A member mostly, the coordinator at times, seldom two members or all at once."""
VICTIMS_ON_SPARK: Sequence[tuple[Victim, ...]] = [
    *[("member",)] * 6,
    *[("executor",)] * 5,
    *[("coordinator",)] * 3,
    ("member", "executor"),
]
DELAY_S_MAX = 0.4
EARLY = 0.2


@dataclass(frozen=True)
class Kill:
    """One kill that is planned."""

    occasion: Occasion
    passes: int = 0
    """At a crash point: see `watched.Order`."""
    victims: tuple[Victim, ...] = ()
    """At a random moment: whom."""
    delay_s: float = 0.0
    """At a random moment: so long after rows flow."""
    early: bool = False
    """Also when no snapshot has been decided since the last kill: then the job waits longer before it begins again."""


def plan_kills(count: int, seed: int) -> Sequence[Kill]:
    """Return about `count` kills: each crash point alike often, and as many at random moments as are left.

    One at a point of a restart needs another, at a random moment, before it.
    """
    random = Random(seed)
    each = max(1, count // (2 * len(CRASH_POINTS)))
    kills = [
        Kill(point, passes=random.randint(0, PASSES_MAX[point])) for point in get_args(CrashPoint) for _ in range(each)
    ]
    left = max(0, count - each * (len(CRASH_POINTS) + len(IN_A_RESTART)))
    kills += [random_kill(random) for _ in range(left)]
    random.shuffle(kills)
    return kills


def plan_random_kills(count: int, seed: int) -> Sequence[Kill]:
    """Return `count` kills at random moments."""
    random = Random(seed)
    return [random_kill(random) for _ in range(count)]


def plan_freezes(count: int, seed: int) -> Sequence[Kill]:
    """Return `count` members that are only frozen: by turns alone, when the coordinator ends it for certain, and with
    the coordinator, when nobody can.
    """
    random = Random(f"{seed} freezes")
    choices: Sequence[tuple[Victim, ...]] = (("frozen",), ("frozen", "coordinator"))
    return [random_kill(random, (choices[number % 2],)) for number in range(count)]


def plan_kills_on_spark(count: int, seed: int) -> Sequence[Kill]:
    """Return `count` kills: each kind of victim, and then two at random moments for each one at a crash point."""
    random = Random(seed)
    kills = [random_kill(random, (victims,)) for victims in (("member",), ("executor",), ("coordinator",))][:count]
    points = [point for point in get_args(CrashPoint) if point not in IN_A_RESTART]
    while len(kills) < count:
        if len(kills) % 3:
            kills.append(random_kill(random, VICTIMS_ON_SPARK))
        else:
            point = random.choice(points)
            kills.append(Kill(point, passes=random.randint(0, PASSES_MAX[point])))
    return kills


def random_kill(random: Random, choices: Sequence[tuple[Victim, ...]] = VICTIMS) -> Kill:
    """Return one at a random moment."""
    victims = random.choice(choices)
    early = random.random() < EARLY
    return Kill(RANDOM_MOMENT, victims=victims, delay_s=random.uniform(0.0, DELAY_S_MAX), early=early)
