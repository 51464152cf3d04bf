"""Snapshots in an S3 server: conditional puts decide who may replace a record."""

from collections.abc import Iterator

import pytest

from jetfast.api import snapshots
from jetfast.engine.snapshot_store import (
    ExecutionRecord,
    SnapshotArea,
    SnapshotStore,
    StateEntry,
    ValidationRecord,
    VersionedRecord,
    check_totals,
)
from jetfast.errors import JobDefinitionError, RecordConflict, StoreUnavailable
from tests.connectors.s3_server import CREDENTIALS, S3Server

pytestmark = pytest.mark.services
AREA = SnapshotArea(7, 1)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with S3Server() as server:
        yield server.endpoint


@pytest.fixture
def store(endpoint: str) -> SnapshotStore:
    return snapshots.object_store(
        "s3://bucket/jobs", endpoint=endpoint, client_options={"allow_http": True}, **CREDENTIALS
    )


def test_a_bucket_holds_snapshots_exactly_once(store: SnapshotStore) -> None:
    store.check()
    entries = [StateEntry(0, "windows", (3,), (), (b"x" * 7_000_000,))]
    saved = store.write_file("job", AREA, "sum", "0", entries)
    validation = ValidationRecord(AREA, {"sum": saved}, 271, {"sum": 1})
    store.write_validation("job", validation)
    assert check_totals(store, "job", AREA) == validation
    assert list(store.read_files("job", AREA, "sum")) == entries
    record = ExecutionRecord(job="job", job_id="id", execution_id=7, snapshot=AREA)
    version = store.replace_record(record, 0)
    with pytest.raises(RecordConflict):
        store.replace_record(ExecutionRecord(job="job", job_id="id", execution_id=6), 0)
    assert store.read_record("job") == VersionedRecord(record, version)
    assert store.list_areas("job") == [AREA]
    store.delete_area("job", AREA)
    assert store.list_areas("job") == []


def test_a_server_that_does_not_answer_is_unavailable_and_refused_at_submission() -> None:
    nowhere = snapshots.object_store(
        "s3://bucket",
        endpoint="http://127.0.0.1:1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
        **CREDENTIALS,
    )
    with pytest.raises(StoreUnavailable):
        nowhere.read_record("job")
    with pytest.raises(JobDefinitionError, match="s3://bucket"):
        nowhere.check()
