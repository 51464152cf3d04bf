"""The options that say where members live, and the cluster that they ask for."""

import os
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from jetfast.clusters.cluster import Cluster
from jetfast.clusters.local import LocalCluster
from jetfast.clusters.processes import ProcessCluster
from jetfast.errors import JobDefinitionError, ResourcesError
from jetfast.types import PARTITION_COUNT


class ClusterKind(StrEnum):
    """Where members live."""

    LOCAL = "local"
    PROCESSES = "processes"
    SPARK = "spark"


Kind = Annotated[
    ClusterKind,
    typer.Option(
        "--cluster", case_sensitive=False, help="Members: threads here, processes of this host, or tasks of Spark."
    ),
]
Members = Annotated[
    int | None, typer.Option(min=1, help="Members; default: 1 (local), 2 (processes), one for each executor (spark).")
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of each member; default: cores (local), 1 (processes), see docs (spark)."),
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master, such as local[4]; default: as spark-submit has it.")
]


def make_cluster(
    kind: ClusterKind,
    members: int | None,
    workers: int | None,
    master: str | None = None,
    partition_count: int = PARTITION_COUNT,
) -> Cluster:
    """Return the cluster that the options ask for. Raises JobDefinitionError."""
    if kind is ClusterKind.SPARK:
        from jetfast.spark import SparkCluster

        return SparkCluster(_spark_session(master), members, workers, partition_count=partition_count)
    if master is not None:
        raise JobDefinitionError("--master is Spark's: it goes with --cluster spark")
    if kind is ClusterKind.LOCAL:
        return LocalCluster(members or 1, workers, partition_count=partition_count)
    return ProcessCluster(members or 2, workers or 1, partition_count=partition_count)


def _spark_session(master: str | None) -> Any:
    """Return the session of this process, made if there is none; its workers run this interpreter by default."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ResourcesError("--cluster spark needs pyspark: pip install 'jetfast[spark]'") from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("jetfast").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.executorEnv.PYTHONSAFEPATH", "1")  # workers import nothing from where they stand
    session = (builder if master is None else builder.master(master)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")  # what members log comes over anyway
    return session
