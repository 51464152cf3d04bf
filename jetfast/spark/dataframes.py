"""DataFrames as sources of pipelines, and results of pipelines as DataFrames: a jetfast step inside a Spark job.

Rows cross by way of files in a directory that driver and executors reach: tasks of Spark write what members read, and
the other way round. So a DataFrame, whose rows may come otherwise each time that Spark computes them, is computed once,
and a job that goes back to a snapshot reads the same rows again.
"""

import atexit
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from jetfast.api.pipeline import Pipeline
from jetfast.connectors.files import Files, files
from jetfast.control.temporary_folders import TemporaryFolder
from jetfast.core.guarantee import Guarantee
from jetfast.errors import JobDefinitionError
from jetfast.spark.cluster import SparkCluster
from jetfast.spark.connect_cluster import ConnectCluster, is_on_this_host
from jetfast.spark.conversion import arrow_schema, in_utc
from jetfast.spark.slots import is_connect


def read_dataframe(df: Any, *, directory: str | os.PathLike[str] | None = None) -> Files:
    """The rows of a batch DataFrame, as a source: `p.read(jetfast.spark.read_dataframe(df), name="rows")`.

    Spark computes them now, and writes a file for each of its partitions that has rows; each is a source partition. For
    event time the rows of each must be about in order: `df.coalesce(32).sortWithinPartitions("time")` (at most 64).

    Parameters
    ----------
    df : DataFrame, classic or Spark Connect
    directory : where the files go, below a folder of their own; driver and executors reach it under this path. None: a
        temporary one of this host, removed when this process ends. Only with a local master; any other one, such as
        spark://host:7077 on this host, needs it

    Raises JobDefinitionError for a streaming DataFrame, or if a directory is needed.
    """
    if df.isStreaming:
        raise JobDefinitionError(
            "read_dataframe needs a DataFrame that ends, this one is streaming: let the pipeline read its source itself"
        )
    spark = df.sparkSession
    folder = _new_folder(spark, directory, "rows")
    schema = arrow_schema(spark, df.schema)
    written = sorted(row["file"] for row in df.mapInArrow(_WritePart(str(folder)), "file string").collect())
    if not written:
        written = ["part-none.arrow"]
        _write(folder / written[0], schema, iter(()))
    source = files([folder / file for file in written], format="ipc")
    return _DataFrameRows(source.settings)


def run(
    pipeline: Pipeline,
    *,
    spark: Any = None,
    members: int | None = None,
    workers: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    host: str | None = None,
    port_range: tuple[int, int] | None = None,
    progress: bool | None = None,
) -> Any:
    """Run a pipeline that ends on the executors, and return what it collects as a DataFrame.

    Parameters
    ----------
    pipeline : one that has one stage that is collected, `stage.collect()`; it may write to other sinks, too
    spark : the session, classic or Spark Connect; None: the active one
    members, workers, host, port_range : as of `SparkCluster`. From a Connect client executors must reach the client
    directory : as of `read_dataframe`; here go the rows of the result
    progress : as of `SparkCluster.submit`

    Returns
    -------
    DataFrame over the rows, which were computed when this returns. Times without a zone, such as window_start, are
    timestamp_ntz in UTC.

    Raises JobDefinitionError if nothing, or several stages, are collected; errors of the job as `Job.wait`.
    """
    from pyspark.sql import SparkSession

    session = spark if spark is not None else SparkSession.getActiveSession()
    if session is None:
        raise JobDefinitionError("run needs a Spark session: spark=..., or one that is active in this thread")
    collected = pipeline.collected_steps()
    if len(collected) != 1:
        said = f"it collects {', '.join(map(repr, collected))}" if collected else "nothing is collected"
        raise JobDefinitionError(
            f"run needs one stage of pipeline {pipeline.name!r} that ends with .collect(), but {said}"
        )
    kind = ConnectCluster if is_connect(session) else SparkCluster
    cluster = kind(session, members, workers, host, port_range)
    folder = _new_folder(session, directory, "result")
    written = pipeline.with_sink(collected[0], files(str(folder), format="parquet"))
    with cluster.submit(written, guarantee=Guarantee.NONE, progress=progress) as job:
        job.wait()
    return session.read.parquet(str(folder))


class _DataFrameRows(Files):
    """Files that hold a DataFrame."""

    @property
    def name(self) -> str:
        return "dataframe"


@dataclass(frozen=True)
class _WritePart:
    """Writes the rows of a Spark partition to a file, and tells its name.

    Each attempt has a file of its own, and counts if Spark takes its result: of a DataFrame that is computed twice the
    rows may differ, and a copy that was too slow may end when others have begun to read.
    """

    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        filled = (in_utc(rows) for rows in batches if rows.num_rows > 0)
        first = next(filled, None)
        if first is not None:
            file = f"part-{context.partitionId():05d}-{context.taskAttemptId()}.arrow"
            _write(Path(self.folder, file), first.schema, iter([first]), filled)
            yield pa.record_batch({"file": [file]})


def _write(path: Path, schema: pa.Schema, *rows: Iterator[pa.RecordBatch]) -> None:
    """Write an Arrow file that is there as a whole or not at all."""
    temporary = path.parent / f".writing-{uuid.uuid4().hex}"
    try:
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for some in rows:
                for batch in some:
                    writer.write_batch(batch)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _new_folder(spark: Any, directory: str | os.PathLike[str] | None, what: str) -> Path:
    """Make a folder that nobody else writes to."""
    if directory is None:
        if not str(spark.conf.get("spark.master", "")).startswith("local") or (
            is_connect(spark) and not is_on_this_host(spark)
        ):
            raise JobDefinitionError(
                "executors may be on other hosts: give directory=, a folder that driver and executors reach"
            )
        temporary = TemporaryFolder()
        atexit.register(temporary.remove)
        return Path(temporary.path)
    folder = Path(directory).absolute() / f"{what}-{uuid.uuid4().hex}"
    folder.mkdir(parents=True)
    return folder
