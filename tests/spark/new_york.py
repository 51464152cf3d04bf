"""A session in a time zone that shifts between summer and winter, with few partitions."""

from collections.abc import Iterator
from typing import Any


def new_york_session(make_spark_session: Any) -> Iterator[Any]:
    """As others use it; a time zone that shifts between summer and winter, and few partitions."""
    spark = make_spark_session("local[4]")
    settings = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.shuffle.partitions": "3"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
