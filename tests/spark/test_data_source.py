"""Options of the streaming sinks, as Spark gives them: what is wrong with them is said before a row is written."""

from typing import Any

import pytest

pytestmark = pytest.mark.spark  # pyspark, but no JVM


def stream_writer(sink: str, options: dict[str, str], overwrite: bool = False) -> Any:
    from pyspark.sql.datasource import CaseInsensitiveDict
    from pyspark.sql.types import LongType, StructType

    from jetfast.spark.data_source import FilesSink, PostgresSink

    source = {"jetfast.files": FilesSink, "jetfast.postgres": PostgresSink}[sink](CaseInsensitiveDict(options))
    return source.streamWriter(StructType().add("id", LongType()), overwrite)


@pytest.mark.parametrize(
    ("sink", "options", "message"),
    [
        ("jetfast.files", {}, "jetfast.files needs option 'path': a directory"),
        ("jetfast.files", {"path": "/tmp/x.parquet"}, "the name of one file"),
        ("jetfast.files", {"path": "gs://bucket/x"}, "neither a directory of a mounted file system nor s3://bucket"),
        ("jetfast.files", {"path": "s3://bucket"}, "s3://bucket is a whole bucket"),
        ("jetfast.files", {"path": "s3://bucket/x", "endpoint": "host:9000"}, "must be a URL such as http://host:9000"),
        ("jetfast.files", {"path": "s3://bucket/x", "access_key_id": "k"}, "secret_access_key go together"),
        ("jetfast.files", {"path": "/tmp/x", "region": "us-east-1"}, "option 'region' is for paths that begin with s3"),
        ("jetfast.files", {"path": "/tmp/x", "colour": "red"}, "jetfast.files has no option 'colour'; there are path:"),
        ("jetfast.files", {"path": "/tmp/x", "format": "xls"}, "there is no format 'xls'"),
        ("jetfast.postgres", {"conninfo": "host=127.0.0.1 port=1"}, "jetfast.postgres needs option 'table'"),
        ("jetfast.postgres", {"conninfo": "host=127.0.0.1 port=1", "table": "rows"}, "cannot be reached"),
        ("jetfast.postgres", {"table": "rows", "transactions": "some"}, 'must be "prepared", "staged" or None'),
    ],
)
def test_a_wrong_option_is_named(sink: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        stream_writer(sink, options)


def test_the_options_of_spark_itself_are_passed_over(tmp_path: Any) -> None:
    writer = stream_writer("jetfast.files", {"path": str(tmp_path), "checkpointLocation": "/x", "queryName": "q"})
    assert writer.blobs.path == tmp_path


def test_modes_that_replace_rows_are_refused(tmp_path: Any) -> None:
    with pytest.raises(Exception, match="append"):
        stream_writer("jetfast.files", {"path": str(tmp_path)}, overwrite=True)
