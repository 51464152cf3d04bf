"""Answers a query with jetfast: the rows that its pipeline collects, or writes to files."""

from tempfile import TemporaryDirectory

import pyarrow as pa

from jetfast.clusters.cluster import Cluster
from jetfast.clusters.local import LocalCluster
from jetfast.connectors.files import files
from jetfast.errors import JobDefinitionError
from jetfast.nexmark.query import Events, Query

LOG_FILE_SIZE = "8MB"


def answer_with_jetfast(query: Query, events: Events, cluster: Cluster) -> pa.Table:
    """Run the query and return its rows; the files of one that writes them are gone then.

    Raises JobDefinitionError for a query that goes by a clock, if the cluster is not in this process.
    """
    if query.writes_files:
        return _answer_in_files(query, events, cluster)
    if query.goes_by_clock:
        return _answer_by_clock(query, events, cluster)
    pipeline, answer = query.make_pipeline(events)
    answer.collect()
    return cluster.submit(pipeline, progress=False).to_arrow()


def _answer_in_files(query: Query, events: Events, cluster: Cluster) -> pa.Table:
    from pyarrow.dataset import dataset

    pipeline, answer = query.make_pipeline(events)
    with TemporaryDirectory(prefix="nexmark-") as directory:
        answer.write(files(directory, "parquet", file_size=LOG_FILE_SIZE), name="log")
        cluster.submit(pipeline, progress=False).wait()
        return dataset(directory, schema=answer.schema, format="parquet").to_table()


def _answer_by_clock(query: Query, events: Events, cluster: Cluster) -> pa.Table:
    if not isinstance(cluster, LocalCluster):
        raise needs_local_cluster(query)
    clock = events.make_clock()
    pipeline, answer = query.make_pipeline(events, clock)
    answer.collect()
    on_clock = LocalCluster(cluster.members, cluster.workers, clock=clock)
    return on_clock.submit(pipeline, progress=False).to_arrow()


def needs_local_cluster(query: Query) -> JobDefinitionError:
    """Return the error of a query that goes by a clock, asked on a cluster that is not in this process."""
    return JobDefinitionError(f"{query.name} runs on a virtual clock, which only the local cluster takes")
