"""Executors that are processes of this host: a session with them, and which of them a worker belongs to."""

import os
from pathlib import Path
from typing import Any


def local_cluster(make_spark_session: Any, executors: int) -> Any:
    """Return a session on executors of two slots each, each a JVM of its own."""
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # they are started from it
    return make_spark_session(f"local-cluster[{executors},2,1024]")


def executor_of(worker: int) -> int:
    """Return the process id of the executor that a Python worker belongs to."""
    executor = parent_of(parent_of(worker))
    assert "java" in os.readlink(f"/proc/{executor}/exe")
    return executor


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
