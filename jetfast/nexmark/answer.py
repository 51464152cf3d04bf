"""Answers a query with jetfast: the rows that its pipeline collects, or writes to files."""

from tempfile import TemporaryDirectory

import pyarrow as pa

from jetfast.clusters.local import LocalCluster
from jetfast.clusters.processes import ProcessCluster
from jetfast.connectors.files import files
from jetfast.nexmark.query import Events, Query

LOG_FILE_SIZE = "8MB"


def answer_with_jetfast(query: Query, events: Events, cluster: LocalCluster | ProcessCluster) -> pa.Table:
    """Run the query and return its rows; the files of one that writes them are gone then."""
    if query.writes_files:
        return _answer_in_files(query, events, cluster)
    pipeline, answer = query.make_pipeline(events)
    answer.collect()
    return cluster.submit(pipeline, progress=False).to_arrow()


def _answer_in_files(query: Query, events: Events, cluster: LocalCluster | ProcessCluster) -> pa.Table:
    from pyarrow.dataset import dataset

    pipeline, answer = query.make_pipeline(events)
    with TemporaryDirectory(prefix="nexmark-") as directory:
        answer.write(files(directory, "parquet", file_size=LOG_FILE_SIZE), name="log")
        cluster.submit(pipeline, progress=False).wait()
        return dataset(directory, schema=answer.schema, format="parquet").to_table()
