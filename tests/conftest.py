"""Shared by all tests: how many examples a property tries, Spark sessions (`spark`), servers (`services`)."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.connectors.postgres_server import PostgresServer

# No deadline: a machine with two busy cores is slow now and then, and tests assert no times.
settings.register_profile("jetfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jetfast")

FEW_EXAMPLES = 5
"""A property that asks for no more than these always gets them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let properties try a fourth of their examples where simulations are left out: others on each run, all in
    `make test`."""
    if "not simulation" not in config.option.markexpr:
        return
    properties = {item.function for item in items if isinstance(item, pytest.Function)}
    for function in filter(is_hypothesis_test, properties):
        wanted = function._hypothesis_internal_use_settings
        fewer = max(wanted.max_examples // 4, min(wanted.max_examples, FEW_EXAMPLES))
        function._hypothesis_internal_use_settings = settings(wanted, max_examples=fewer)


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, not among all that they import."""
    gc.collect()
    gc.freeze()


# Spark's Python workers are this interpreter; the system's python3 would lack pyarrow.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

# And they import what the tests import, installed or not.
ROOT = str(Path(__file__).parent.parent)
os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])

# Jobs of tests are found by no other program of this user, nor by other tests that run at the same time.
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="jetfast-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)

SessionFactory = Callable[..., Any]


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")


@pytest.fixture(scope="session")
def make_spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionFactory]:
    """Return a function (master, **settings) -> SparkSession; one JVM serves the whole test session.

    A call stops the session before it if the master or the settings differ. Setting names have "_" for ".".
    """
    if _java() is None:
        pytest.fail("Spark needs Java 17: apt-get install openjdk-17-jre-headless", pytrace=False)
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        pytest.fail("pyspark is not installed: pip install '.[spark]'", pytrace=False)
    directory = tmp_path_factory.mktemp("spark")
    current: dict[str, Any] = {}

    def make(master: str = "local[4]", **options: object) -> Any:
        wanted = {
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            **{name.replace("_", "."): str(value) for name, value in options.items()},
        }
        stopped = bool(current) and current["session"].sparkContext._jsc is None
        if stopped or current.get("key") != (master, wanted):
            if current and not stopped:
                current["session"].stop()
            builder = SparkSession.builder.master(master).appName("jetfast-tests")
            for name, value in wanted.items():
                builder = builder.config(name, value)
            current["session"] = builder.getOrCreate()
            current["session"].sparkContext.setLogLevel("ERROR")
            current["key"] = (master, wanted)
        return current["session"]

    yield make
    if current:
        current["session"].stop()


@pytest.fixture
def spark(make_spark_session: SessionFactory) -> Any:
    """A session on local[4]: four slots in one JVM."""
    return make_spark_session("local[4]")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server with prepared transactions."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def unprepared_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server as it comes: max_prepared_transactions is 0."""
    with PostgresServer(max_prepared_transactions=0) as server:
        yield server
