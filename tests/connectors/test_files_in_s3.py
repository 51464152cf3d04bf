"""Files in an S3 server: read, written, and written exactly once with snapshots in the same bucket."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast.connectors.file_marks import Marks
from jetfast.connectors.part_files import PartDirectory, PartSettings
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobDefinitionError, JobFailedError
from tests.connectors.reading import read_partition
from tests.connectors.s3_server import CREDENTIALS, S3Server

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

ROWS = 3000
MARKS_BYTES = 32


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        for number in range(3):
            table = pa.table({"id": range(number * 1000, number * 1000 + 1000)})
            pq.write_table(table, f"bucket/in/{number}.parquet", filesystem=server.filesystem)
        yield server


def ids_in(server: S3Server, folder: str) -> list[int]:
    """What jetfast reads there."""
    pipeline = jf.Pipeline("read")
    pipeline.read(jf.files(f"bucket/{folder}/*.parquet", filesystem=server.filesystem), name="files").collect()
    return sorted(jf.LocalCluster(workers=1).submit(pipeline, progress=False).to_arrow()["id"].to_pylist())


def test_files_of_a_bucket_are_read_and_written(server: S3Server) -> None:
    pipeline = jf.Pipeline("copy")
    rows = pipeline.read(jf.files("bucket/in", filesystem=server.filesystem), name="files")
    rows.write(jf.files("bucket/copied", format="parquet", filesystem=server.filesystem))
    jf.LocalCluster(workers=2).submit(pipeline, progress=False).wait()
    assert ids_in(server, "copied") == list(range(ROWS))


def test_a_job_that_fails_goes_on_from_a_snapshot_in_the_bucket_and_writes_each_row_once(server: S3Server) -> None:
    store = jf.snapshots.object_store(
        "s3://bucket/jobs", endpoint=server.endpoint, client_options={"allow_http": True}, **CREDENTIALS
    )
    fails = True

    def number(rows: pa.Array, random: object) -> pa.RecordBatch:
        return pa.record_batch({"id": rows})

    def trip(batch: pa.RecordBatch) -> pa.RecordBatch:
        if fails and any(name.startswith("part-") for name in server.names("once")):
            raise ValueError("struck")
        return batch

    def start(rate: float | None) -> jf.Job:
        pipeline = jf.Pipeline("once")
        rows = pipeline.read(jf.generator(number, rows=ROWS, rate=rate, partitions=2), name="numbers")
        sink = jf.files("bucket/once", format="parquet", filesystem=server.filesystem)
        rows.map_batches(trip, name="trip").write(sink)
        cluster = jf.LocalCluster(workers=1, snapshot_store=store)
        return cluster.submit(pipeline, snapshot_interval="100ms", progress=False)

    with pytest.raises(JobFailedError, match="struck"):
        start(20.0).wait()  # rows for more than a minute: there are snapshots before they end
    fails = False
    start(None).wait()
    assert ids_in(server, "once") == list(range(ROWS))
    assert all(name.startswith("part-") for name in server.names("once"))


def test_two_that_commit_the_same_file_lose_nothing(server: S3Server) -> None:
    filesystem = server.filesystem
    settings = PartSettings(filesystem, "bucket/twice", "parquet", pa.schema([("id", pa.int64())]))
    first, second = (PartDirectory(settings, ProcessorContext("sink")) for _ in range(2))
    pq.write_table(pa.table({"id": [1]}), "bucket/twice/.part.tmp", filesystem=filesystem)
    names = [(".part.tmp", "part-0.parquet")]
    first.publish(names)
    with pytest.raises(OSError, match=r"part\.tmp"):
        second.publish(names)  # had looked before
    assert ids_in(server, "twice") == [1]


def test_a_bucket_that_cannot_be_written_is_refused_at_submission(server: S3Server) -> None:
    with pytest.raises(JobDefinitionError, match="no-such-bucket/out cannot be written"):
        jf.files("no-such-bucket/out", format="parquet", filesystem=server.filesystem).check_target()
    jf.files("bucket/tried", format="parquet", filesystem=server.filesystem).check_target()
    assert server.names("tried") == []


def test_an_object_that_was_replaced_is_known_by_its_etag(server: S3Server) -> None:
    filesystem = server.filesystem

    def write(words: list[str]) -> None:
        with filesystem.open_output_stream("bucket/changed/x.csv") as stream:
            stream.write("".join(f"{word}\n" for word in ["word", *words]).encode())
        pq.write_table(pa.table({"word": words}), "bucket/changed/x.parquet", filesystem=filesystem)

    for name in ("x.csv", "x.parquet"):
        write(["a", "b", "c"])
        source = jf.files(f"bucket/changed/{name}", filesystem=filesystem, batch_rows=2)
        (partition,) = source.partitions()
        whole = read_partition(source, partition)
        assert Marks.unpack(whole.positions[0][-MARKS_BYTES:]).etag != 0
        assert read_partition(source, partition, whole.positions[0]).rows == [{"word": "c"}]
        write(["x", "y", "z"])
        with pytest.raises(JobFailedError, match="is not the file any more that was read before"):
            read_partition(source, partition, whole.positions[-1])
    write(["a", "b", "c"])
    position = read_partition(jf.files("bucket/changed/x.csv", filesystem=filesystem), "bucket/changed/x.csv").positions
    write(["a", "b", "c", "d"])  # the ETag changes, and what was read is the same
    source = jf.files("bucket/changed/x.csv", filesystem=filesystem)
    assert read_partition(source, "bucket/changed/x.csv", position[-1]).rows == [{"word": "d"}]
