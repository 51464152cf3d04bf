"""Secrets of connection strings, URLs and options are nowhere to be seen: not in text, logs, errors, records, names."""

import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.control.job_report import report_job
from jetfast.errors import JobDefinitionError
from jetfast.types import Secret, redact
from tests.connectors.postgres_server import PostgresServer
from tests.connectors.s3_server import BUCKET, S3Server

PLANTED = ["PlantedPassword", "PlantedKeyId", "PlantedSecretKey", "PlantedToken"]


def shows_none(*texts: object) -> None:
    for text in texts:
        for secret in PLANTED:
            assert secret not in str(text), text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=db password=PlantedPassword", "***"),
        ("postgresql://me:PlantedPassword@db/base?sslkey=PlantedToken&x=1", "postgresql://***@db/base?sslkey=***&x=1"),
        ("s3://PlantedKeyId:PlantedSecretKey@bucket/a?region=eu", "s3://***@bucket/a?region=eu"),
        ("s3://k:Planted/Secret@Key@bucket/a", "s3://k:Planted/Secret@Key@bucket/a"),
        (
            "s3://bucket/a?Access_Key=PlantedKeyId&session_token=PlantedToken",
            "s3://bucket/a?Access_Key=***&session_token=***",
        ),
        ("", ""),
    ],
)
def test_a_secret_is_whole_for_its_user_and_hidden_where_it_is_shown(text: str, shown: str) -> None:
    secret = Secret(text)
    assert secret == text
    assert secret.encode() == text.encode()
    assert Secret(secret) == text
    assert (str(secret), f"{secret}", f"{secret!r}", f"{[secret]}") == (shown, shown, repr(shown), f"[{shown!r}]")
    assert "%s %r" % (secret, secret) == f"{shown} {shown!r}"  # noqa: UP031 (as logging does)
    copied = pickle.loads(pickle.dumps(secret))
    assert (type(copied), copied == text) == (Secret, True)


def errors_of(call: Callable[[], object]) -> str:
    """All that is said of an error, its causes included. (Tracebacks have the lines of this file, too.)"""
    with pytest.raises(JobDefinitionError) as caught:
        call()
    texts: list[str] = []
    error: BaseException | None = caught.value
    while error is not None:
        texts += [repr(error), str(error)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)


def test_errors_about_what_cannot_be_opened_show_no_secret(tmp_path: Path) -> None:
    def write(sink: Any) -> None:
        pipeline = jf.Pipeline("wrong")
        pipeline.read(jf.memory({"n": [1]}), name="rows").write(sink)

    shows_none(
        errors_of(lambda: write(jf.postgres("host=127.0.0.1 port=1 password=PlantedPassword", "rows"))),
        errors_of(lambda: write(jf.postgres("hostPlantedPassword", "rows"))),
        errors_of(lambda: write(jf.postgres("postgresql://me:PlantedPassword@[127.0.0.1/base", "rows"))),
        errors_of(lambda: jf.files("nosuch://u:PlantedPassword@bucket/a.csv").schema),
        errors_of(lambda: jf.snapshots.object_store("nosuch://u:PlantedPassword@bucket/a").check()),
        errors_of(lambda: jf.snapshots.object_store("s3://b/a", nosuch_option="PlantedToken").check()),
    )


@pytest.mark.services
def test_a_job_shows_no_secret_in_names_logs_metrics_records_or_folders(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    caplog.set_level(logging.DEBUG, "jetfast")
    postgres_server.clear()
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("create table copied (n bigint)")
    with S3Server() as s3:
        s3.client.put_object(Bucket=BUCKET, Key="in/a.csv", Body=b"n\n1\n2\n")
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        source = jf.files(
            f"s3://PlantedKeyId:PlantedSecretKey@{BUCKET}/in/*.csv",
            format="csv",
            schema=pa.schema({"n": pa.int64()}),
        )
        sink = jf.postgres(f"{postgres_server.conninfo} password=PlantedPassword", "copied")
        store = jf.snapshots.object_store(
            f"s3://{BUCKET}/store",
            endpoint=s3.endpoint,
            access_key_id="PlantedKeyId",
            secret_access_key="PlantedSecretKey",
            session_token="PlantedToken",
            region="us-east-1",
            client_options={"allow_http": True},
        )
        pipeline = jf.Pipeline("secret")
        pipeline.read(source).write(sink)
        job = jf.LocalCluster(workers=1, snapshot_store=store).submit(pipeline)
        job.wait()
        found = store.read_record("secret")
        assert found is not None
        names = [each["Key"] for each in s3.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
        stored = [s3.client.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in names]
    assert job.metrics["rows_written"] == 2
    shows_none(source, repr(source), source.name, source.partitions(), sink, repr(sink), sink.name, sink.target)
    shows_none(store, repr(store), store.name, store.survives, getattr(store, "blobs", ""))
    shows_none(
        job, job._repr_html_(), job.metrics, job.explain_progress(), job.explain_snapshot(), job.explain_watermark()
    )
    shows_none(
        json.dumps(job.metrics, default=str), report_job(job), found, names, stored, list(job.runner.plan.parallelism)
    )
    shows_none(pipeline, job.runner.plan.submission, pipeline.plan(member_count=1, workers=1, two_stage=None))
    shows_none(caplog.text, *(vars(record) for record in caplog.records if record.name.startswith("jetfast")))
    assert redact("s3://a:b@c") == "s3://***@c"
