"""A driver that is killed: two streams, to files and to PostgreSQL, from the same rows, until all is written.

python -m tests.spark.driver_of_streams SETTINGS

SETTINGS is JSON: source, out and checkpoints (directories), conninfo, spark (settings), strikes (of each sink or null).
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from jetfast.spark import register
from tests.spark.striking_sinks import STRIKES, StrickenFiles, StrickenPostgres


def main(settings: dict[str, Any]) -> None:
    builder = SparkSession.builder.master("local[2]").appName("driver of streams")
    for name, value in settings["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    if settings["strikes"]:
        spark.dataSource.register(StrickenFiles)
        spark.dataSource.register(StrickenPostgres)
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", "2").parquet(settings["source"])
    queries = []
    for sink, options in (
        ("files", {"path": settings["out"]}),
        ("postgres", {"conninfo": settings["conninfo"], "table": "rows"}),
    ):
        stream = rows.writeStream.format(f"jetfast.{sink}").options(**options).trigger(availableNow=True)
        stream = stream.option("checkpointLocation", f"{settings['checkpoints']}/{sink}")
        if settings["strikes"]:
            stream = stream.option(STRIKES, settings["strikes"][sink])
        queries.append(stream.start())
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
