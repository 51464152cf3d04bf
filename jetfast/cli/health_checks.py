"""Looks at what jetfast needs of a machine, as a user meets it: each finding says what was found and what to do.

Nothing is started for it, a JVM least of all; a store is written to, and what was written is removed again.
"""

import importlib.metadata
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from jetfast.cli.stored_jobs import open_store
from jetfast.control.job_sockets import job_directories, listen_for_job, remove_socket
from jetfast.control.progress import shorten_count
from jetfast.engine.blob_snapshot_store import BlobSnapshotStore
from jetfast.errors import JetfastError
from jetfast.kernels.partitioning import simd

OK = "ok"
NOTE = "note"
"""Not needed by all: look at it if you need it."""
PROBLEM = "problem"

LIBRARIES = ("pyarrow", "numpy", "msgspec", "cloudpickle", "rich", "typer")
OPEN_FILES_MIN = 1024
PROCESSES_MIN = 1024
FREE_MEMORY_MIN = 2 * 10**9
FREE_DISK_MIN = 10**9
SLOW_WRITE_S = 0.1
PYTHON_MIN = (3, 11)
JAVA_MIN = 17


class Finding(Struct, frozen=True):
    """What one check found."""

    check: str
    level: str
    """ok, note or problem."""
    found: str
    advice: str = ""
    """What to do; "": nothing."""


def check_machine(store: str | None = None, postgres: str | None = None) -> Iterator[Finding]:
    """Yield all findings; of a snapshot store (directory or URL) and a PostgreSQL server (DSN) if they are given."""
    yield check_python()
    yield check_kernels()
    for library in LIBRARIES:
        yield check_library(library)
    yield from check_spark()
    yield check_run_directory()
    yield from check_limits()
    yield check_memory()
    if store is not None:
        yield from check_store(store)
    if postgres is not None:
        yield check_postgres(postgres)


def check_python() -> Finding:
    """Is this a Python that jetfast is made for?"""
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info[:2] < PYTHON_MIN:
        return Finding("python", PROBLEM, found, f"use Python {'.'.join(map(str, PYTHON_MIN))} or later")
    return Finding("python", OK, found)


def check_kernels() -> Finding:
    """Which vector instructions do the native parts use? (Without these parts no command runs.)"""
    used, best = simd()
    if used != best:
        advice = f"unset JETFAST_SIMD to use {best}"
        return Finding("kernels", NOTE, f"vector instructions: {used}; this machine has {best}", advice)
    return Finding("kernels", OK, f"vector instructions: {used}")


def check_library(name: str) -> Finding:
    """Is a library there, in a version that jetfast asks for?"""
    version = _version(name)
    needed = _needed(name)
    if version is None:
        return Finding(name, PROBLEM, "it is not installed", f"pip install '{name}{needed}'")
    minimum = re.search(r">=\s*([\d.]+)", needed)
    if minimum is not None and _numbers(version) < _numbers(minimum[1]):
        return Finding(name, PROBLEM, version, f"jetfast needs {needed}: pip install '{name}{needed}'")
    return Finding(name, OK, version)


def check_spark() -> Iterator[Finding]:
    """Is there what SparkCluster needs? Without pyspark nobody asks for the rest."""
    version = _version("pyspark")
    if version is None:
        yield Finding("pyspark", NOTE, "it is not installed", "for SparkCluster: pip install 'jetfast[spark]'")
        return
    yield Finding("pyspark", OK, version)
    pandas = _version("pandas")
    if pandas is None or _numbers(pandas) >= (3,):
        yield Finding(
            "pandas", PROBLEM, pandas or "it is not installed", "Spark needs pandas 2: pip install 'pandas<3'"
        )
    yield _check_java()
    wanted = os.environ.get("PYSPARK_PYTHON")
    if wanted is None:
        advice = f"Spark's workers would be the system's python3: export PYSPARK_PYTHON={sys.executable}"
        yield Finding("PYSPARK_PYTHON", NOTE, "it is not set", advice)
    elif shutil.which(wanted) is None:
        yield Finding("PYSPARK_PYTHON", PROBLEM, wanted, "there is no such program; set it to a Python with jetfast")
    else:
        yield Finding("PYSPARK_PYTHON", OK, wanted)


def _check_java() -> Finding:
    """Which Java there is, by the file that says so in each: to ask it would start a JVM."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")
    advice = f"Spark needs Java {JAVA_MIN} or later: install it, and set JAVA_HOME to it"
    if program is None:
        where = "JAVA_HOME has none" if home else "there is no `java` in PATH, and JAVA_HOME is not set"
        return Finding("java", PROBLEM, where, advice)
    folder = Path(program).resolve().parent.parent
    try:
        version = re.search(r'^JAVA_VERSION="([^"]+)"', (folder / "release").read_text(), re.MULTILINE)
    except OSError:
        version = None
    if version is None:
        return Finding("java", NOTE, f"{folder}, of an unknown version", advice)
    found = f"{version[1]} at {folder}"
    return (
        Finding("java", OK, found) if _numbers(version[1]) >= (JAVA_MIN,) else Finding("java", PROBLEM, found, advice)
    )


def check_run_directory() -> Finding:
    """Can jobs of this user be reached by the command line?"""
    try:
        listening, path = listen_for_job("doctor", uuid.uuid4().hex)
    except OSError as error:
        tried = ", ".join(map(str, job_directories()))
        return Finding("sockets", PROBLEM, str(error), f"make one of these a directory of your own, mode 0700: {tried}")
    listening.close()
    remove_socket(path)
    return Finding("sockets", OK, f"jobs are reached in {path.parent}")


def check_limits() -> Iterator[Finding]:
    """May this user open enough files, and start enough threads?"""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = (
        ("open files", resource.RLIMIT_NOFILE, OPEN_FILES_MIN, "ulimit -n 65536"),
        ("processes", resource.RLIMIT_NPROC, PROCESSES_MIN, "ulimit -u 4096"),
    )
    for name, limit, needed, advice in limits:
        soft, hard = resource.getrlimit(limit)
        found = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
        if soft == resource.RLIM_INFINITY or soft >= needed:
            yield Finding(name, OK, found)
        else:
            up_to = "" if hard in (resource.RLIM_INFINITY, soft) else f" (up to {hard:,} without help of root)"
            yield Finding(name, PROBLEM, found, f"sources, sinks and members need more: {advice}{up_to}")


def check_memory() -> Finding:
    """How much memory is free, in this control group, too?"""
    free = _free_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if free is None:
        return Finding("memory", NOTE, f"unknown here; {cores} core(s)")
    found = f"{shorten_count(free)}B free, {cores} core(s)"
    if free < FREE_MEMORY_MIN:
        advice = f"below {shorten_count(FREE_MEMORY_MIN)}B: give jobs a smaller memory_limit (1GB for each member)"
        return Finding("memory", NOTE, found, advice)
    return Finding("memory", OK, found)


def check_store(place: str) -> Iterator[Finding]:
    """Can snapshots be kept exactly once here, durably, and how fast?"""
    try:
        store = open_store(place)
        store.check()
    except (JetfastError, TypeError) as error:
        yield Finding(
            "store", PROBLEM, str(error), "give a place that you may write to, on a file system with hard links"
        )
        return
    yield Finding(
        "store", OK, f"{store.name} can be written to; of two who create a file there one learns that it lost"
    )
    if not isinstance(store, BlobSnapshotStore):
        return
    probe = f"probe-{uuid.uuid4().hex}"
    began = time.monotonic()
    store.blobs.put(probe, [b"1" * 4096])
    seconds = time.monotonic() - began
    store.blobs.delete([probe])
    found = f"4 KB are durable after {seconds * 1000:.1f} ms"
    if seconds > SLOW_WRITE_S:
        yield Finding("store speed", NOTE, found, "each snapshot waits for a few such writes: take a longer interval")
    else:
        yield Finding("store speed", OK, found)
    if "://" not in place:
        free = shutil.disk_usage(place).free
        low = free < FREE_DISK_MIN
        advice = "two snapshots, and each named one, must fit" if low else ""
        yield Finding("store space", PROBLEM if low else OK, f"{shorten_count(free)}B free", advice)


def check_postgres(dsn: str) -> Finding:
    """Does a server allow prepared transactions, by which rows are written exactly once?"""
    try:
        import psycopg
    except ImportError:
        return Finding("postgres", PROBLEM, "psycopg is not installed", "pip install 'jetfast[postgres]'")
    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            row = connection.execute("show max_prepared_transactions").fetchone()
    except psycopg.Error as error:
        return Finding(
            "postgres", PROBLEM, f"it cannot be reached: {error}".strip(), "look at host, port, user and password"
        )
    allowed = int(row[0]) if row is not None else 0
    found = f"max_prepared_transactions = {allowed}"
    if allowed == 0:
        advice = (
            "rows written exactly once go through a second table; to prepare them instead, as superuser: ALTER SYSTEM "
            "SET max_prepared_transactions = 100 (two for each writer), and restart the server"
        )
        return Finding("postgres", NOTE, found, advice)
    return Finding("postgres", OK, found)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _needed(name: str) -> str:
    """The versions of a library that jetfast asks for, as in ">=18"; "" if nobody knows."""
    try:
        requirements = importlib.metadata.requires("jetfast") or []
    except importlib.metadata.PackageNotFoundError:  # it runs from its sources
        return ""
    for requirement in requirements:
        if match := re.fullmatch(rf"{re.escape(name)}\s*([<>=!~][^;]*)?", requirement.strip()):
            return (match[1] or "").strip()
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _free_memory() -> int | None:
    """Bytes that could be taken without swapping."""
    free: list[int] = []
    try:
        available = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        free += [int(available[1]) * 1024] if available else []
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit.isdigit():
            free.append(int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError):  # no Linux, or no control group: what is known by now will do
        pass
    return min(free, default=None)
