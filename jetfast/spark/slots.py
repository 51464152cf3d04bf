"""Counts the slots of a Spark session, and refuses sessions that cannot carry members, before anything runs."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from jetfast.errors import JobDefinitionError, ResourcesError

WAIT_S = 20.0
_LOOK_S = 0.2
_DYNAMIC_EXECUTORS = 2
"""That are asked for where Spark starts executors for whoever asks."""


class Slots(NamedTuple):
    """Places for tasks, of `cpus_per_task` cores each."""

    executors: int
    total: int
    busy: int
    cpus_per_task: int
    executors_expected: int | None = None
    """Executors that there will be when all have come; None if nobody knows."""
    may_grow_to: int = 0
    """Slots that dynamic allocation may bring; 0 without it."""
    per_executor: int = 1
    """Of each executor that is up, or may come."""

    @property
    def free(self) -> int:
        return max(self.total - self.busy, 0)


def is_connect(spark: Any) -> bool:
    """Is this a session of Spark Connect, whose driver is another process?"""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def check_session(spark: Any) -> None:
    """Raise JobDefinitionError or ResourcesError for what is no Spark session, or one that members cannot live in."""
    if is_connect(spark):
        raise ResourcesError(
            "SparkCluster needs a session in the driver's own process, this one is a Spark Connect session. A pipeline "
            "that ends can be run there by jetfast.spark.run(pipeline, spark=...); for all others run the program on "
            "the driver (SparkSession.builder.master(...))"
        )
    if not hasattr(spark, "sparkContext"):
        raise JobDefinitionError(f"SparkCluster needs a SparkSession, got {type(spark).__name__}")
    if spark.sparkContext._jsc is None:
        raise ResourcesError("the Spark session has been stopped; make a new one")
    setting = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
    if str(spark.conf.get(setting, "false")).lower() == "true":
        raise ResourcesError(
            f"{setting} (or spark.python.worker.killOnIdleTimeout) is true: a member looks idle to Spark, which would "
            "kill it. Set it to false"
        )
    setting = "spark.speculation.task.duration.threshold"
    settings = spark.sparkContext.getConf()
    if str(settings.get("spark.speculation", "false")).lower() == "true" and settings.get(setting, None) is not None:
        raise ResourcesError(
            f"spark.speculation is on with {setting}: Spark would start copies of members again and again, and end "
            "the members after spark.task.maxFailures of them. Unset one of the two"
        )


class Size(NamedTuple):
    """Of a cluster of jetfast."""

    members: int
    workers: int
    """Threads of each member."""


def size_of(spark: Any, members: int | None, workers: int | None) -> Size:
    """Return the size that is wanted, the rest chosen: by `choose_size`, or a thread for each core of a slot."""
    if members is None:
        chosen = choose_size(lambda: count_slots(spark))
        return chosen if workers is None else Size(chosen.members, workers)
    if workers is None:
        workers = int(spark.sparkContext.getConf().get("spark.task.cpus", "1"))
    return Size(members, workers)


def choose_size(
    look: Callable[[], Slots],
    wait_s: float = WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Size:
    """Return a member for each executor, with a thread for each of its cores.

    Under dynamic allocation there may be no executor yet: two are asked for, if so many may come. Where nobody knows
    how many will come, the first is waited for.
    """
    deadline = clock() + wait_s
    while True:
        slots = look()
        executors = max(slots.executors, slots.executors_expected or 0)
        if slots.may_grow_to:
            executors = max(executors, min(_DYNAMIC_EXECUTORS, slots.may_grow_to // slots.per_executor))
        if executors or clock() >= deadline:
            break
        sleep(_LOOK_S)
    return Size(max(executors, 1), slots.per_executor * slots.cpus_per_task)


def count_slots(spark: Any) -> Slots:
    """Return the slots of the executors that are up now."""
    context = spark.sparkContext
    cpus_per_task = int(context.getConf().get("spark.task.cpus", "1"))
    per_executor = 0
    executors = total = 0
    summaries = context._jsc.sc().statusStore().executorList(True)
    for index in range(summaries.size()):
        cores = int(summaries.apply(index).totalCores())
        if cores > 0:  # the driver of a cluster has none
            executors += 1
            total += cores // cpus_per_task
            per_executor = max(per_executor, cores // cpus_per_task)
    # The scheduler's own figures: those of the status store may be seconds old.
    running = context._jsc.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
    busy = 0
    while running.hasNext():
        busy += int(running.next())
    per_executor = per_executor or _per_executor(context, cpus_per_task)
    return Slots(
        executors,
        total,
        busy,
        cpus_per_task,
        _executors_expected(context),
        _may_grow_to(context, per_executor),
        per_executor,
    )


def require_slots(
    look: Callable[[], Slots],
    needed: int,
    wait_s: float = WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    *,
    start_wait_s: float | None = None,
) -> Slots:
    """Return the slots once `needed` of them are free. Raises ResourcesError naming needed and present.

    Looks again for `wait_s` seconds after an executor has come, or from the beginning, while more may come: executors
    of a session that was started just now, slots of a job that is just ending. For executors that are certain to come,
    and for the first one, it waits for `start_wait_s` instead, if that is given: a host may be slow to start them.
    """
    since_s, executors = clock(), 0
    while True:
        slots = look()
        if max(slots.free, slots.may_grow_to - slots.busy) >= needed:
            return slots
        now_s = clock()
        if slots.executors > executors:
            since_s, executors = now_s, slots.executors
        complete = slots.executors_expected is not None and slots.executors >= slots.executors_expected
        start = not slots.may_grow_to and slots.executors < (slots.executors_expected or 1)
        patience_s = wait_s if start_wait_s is None or not start else max(wait_s, start_wait_s)
        if (complete and slots.total < needed) or now_s - since_s >= patience_s:
            break
        sleep(_LOOK_S)
    grow = f"; dynamic allocation may bring it to {slots.may_grow_to}" if slots.may_grow_to else ""
    raise ResourcesError(
        f"{needed} free Spark slots are needed, one for each member, but there are {slots.free}: "
        f"{slots.executors} executor(s) with {slots.total} slot(s) of {slots.cpus_per_task} core(s) (spark.task.cpus), "
        f"{slots.busy} of them busy{grow}. Ask for fewer members=, or start Spark with more cores"
    )


def _executors_expected(context: Any) -> int | None:
    """Return how many executors there will be, or None if nobody knows."""
    master = str(context.master)
    if master == "local" or master.startswith("local["):
        return 1
    if master.startswith("local-cluster["):
        return int(master.removeprefix("local-cluster[").split(",")[0])
    settings = context.getConf()
    instances = settings.get("spark.executor.instances", None)
    return int(instances) if instances is not None and not _is_dynamic(settings) else None


def _per_executor(context: Any, cpus_per_task: int) -> int:
    """Return how many slots an executor will have, when none is up yet."""
    master = str(context.master)
    if master.startswith("local-cluster["):
        cores = int(master.removeprefix("local-cluster[").split(",")[1])
    else:
        cores = int(context.getConf().get("spark.executor.cores", "1"))
    return max(cores // cpus_per_task, 1)


def _may_grow_to(context: Any, per_executor: int) -> int:
    settings = context.getConf()
    if not _is_dynamic(settings):
        return 0
    return int(settings.get("spark.dynamicAllocation.maxExecutors", str(2**20))) * per_executor


def _is_dynamic(settings: Any) -> bool:
    return str(settings.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
