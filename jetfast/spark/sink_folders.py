"""Where the files of a streaming sink go: a directory of a mounted file system, or a place in an S3 bucket."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jetfast.connectors.file_listing import resolve_filesystem
from jetfast.engine.blob_snapshot_store import Blobs
from jetfast.engine.directory_blobs import DirectoryBlobs
from jetfast.engine.object_store_blobs import ObjectStoreBlobs
from jetfast.errors import JobDefinitionError

S3_OPTIONS = {
    "endpoint": "of an S3 server that is not Amazon's, such as http://host:9000",
    "region": "of the bucket",
    "access_key_id": "without it the environment of the executors counts (AWS_ACCESS_KEY_ID, roles)",
    "secret_access_key": "belongs to access_key_id",
}
_S3 = "s3://"


class SinkFolder(NamedTuple):
    """Picklable."""

    path: str
    """In the file system."""
    filesystem: Any
    """Of pyarrow; None: the local one."""
    blobs: Blobs
    """For what is decided, below the same folder."""


def sink_folder(path: str, options: Mapping[str, str]) -> SinkFolder:
    """Return what a path and the S3_OPTIONS mean. Raises JobDefinitionError."""
    if path.startswith(_S3):
        return _in_bucket(path.rstrip("/"), options)
    if "://" in path and not path.startswith("file://"):
        raise JobDefinitionError(
            f"jetfast.files: {path} is neither a directory of a mounted file system nor s3://bucket/folder: batches "
            "are decided by hard links, or by conditional puts"
        )
    if options:
        raise JobDefinitionError(f"jetfast.files: option {min(options)!r} is for paths that begin with {_S3}")
    _, directory = resolve_filesystem(path, None, os.getcwd())
    return SinkFolder(directory, None, DirectoryBlobs(directory))


def _in_bucket(url: str, options: Mapping[str, str]) -> SinkFolder:
    from pyarrow import fs

    path = url.removeprefix(_S3)
    if "/" not in path:
        raise JobDefinitionError(f"jetfast.files: {url} is a whole bucket; write to a folder of it")
    if ("access_key_id" in options) != ("secret_access_key" in options):
        raise JobDefinitionError("jetfast.files: access_key_id and secret_access_key go together")
    endpoint = urlsplit(options.get("endpoint", "https://"))
    if endpoint.scheme not in ("http", "https") or ("endpoint" in options and not endpoint.netloc):
        raise JobDefinitionError(
            f"jetfast.files: endpoint must be a URL such as http://host:9000, got {options['endpoint']!r}"
        )
    settings = {
        "access_key": options.get("access_key_id"),
        "secret_key": options.get("secret_access_key"),
        "endpoint_override": endpoint.netloc or None,
        "region": options.get("region"),
    }
    filesystem = fs.S3FileSystem(
        scheme=endpoint.scheme, **{name: value for name, value in settings.items() if value is not None}
    )
    plain = {"client_options": {"allow_http": True}} if endpoint.scheme == "http" else {}
    return SinkFolder(path, filesystem, ObjectStoreBlobs(url, {**options, **plain}))
