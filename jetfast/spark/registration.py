"""Makes the data sources of jetfast known to a Spark session."""

from typing import Any


def register(spark: Any) -> None:
    """Let Structured Streaming of this session write exactly once to files and to PostgreSQL.

        jetfast.spark.register(spark)
        df.writeStream.format("jetfast.postgres").option("table", "delays").option("checkpointLocation", ...).start()

    Rows of a batch become visible once, whatever is killed between any two steps: tasks, executors, the driver. What an
    attempt that failed has written is never visible, and is removed, at the latest when the query commits again.

    `jetfast.files`: option path, a directory that all executors reach or s3://bucket/folder (new part files are added
    to what is there), and format: parquet (default), csv, json, ipc, ipc_stream. The files of a batch become visible
    one by one. For S3 also endpoint, region, access_key_id and secret_access_key; what is not given comes from the
    environment of the executors. Needs a store with conditional puts, and `pip install 'jetfast[s3]'`.
    `jetfast.postgres`: options table, conninfo (as of `jf.postgres`; better leave a password to a password file) and
    transactions: "prepared" or "staged"; by default prepared where the server allows it and the table has no unique
    index, for a prepared row would hold up the next attempt to write it.

    Append mode only, and not with continuous triggers. Needs pyspark 4.1 and a `checkpointLocation` that stays.
    """
    from jetfast.spark.data_source import FilesSink, PostgresSink

    for source in (FilesSink, PostgresSink):
        spark.dataSource.register(source)
