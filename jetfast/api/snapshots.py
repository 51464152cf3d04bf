"""Where a job keeps its snapshots, as `jetfast.snapshots`.

    job = jf.LocalCluster().submit(pipeline, snapshot_store=jf.snapshots.directory("/var/lib/jobs"))

A store may hold any number of jobs; each has a name.
"""

import os
from typing import Any

from jetfast.engine.blob_snapshot_store import BlobSnapshotStore
from jetfast.engine.directory_blobs import DirectoryBlobs
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.object_store_blobs import ObjectStoreBlobs
from jetfast.engine.snapshot_store import SnapshotStore

__all__ = ["SnapshotStore", "directory", "memory", "object_store"]


def memory() -> SnapshotStore:
    """Snapshots in the memory of this process: they survive members, not the process. For `LocalCluster` only."""
    return MemorySnapshotStore()


def directory(path: str | os.PathLike[str]) -> SnapshotStore:
    """Snapshots in a directory that all members reach: on this host, or on a network file system with hard links."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise TypeError(f"the path of a snapshot directory must be text or a path, got {path!r}")
    if "://" in os.fspath(path):
        raise TypeError(f"{os.fspath(path)!r} is no directory; for a URL there is jetfast.snapshots.object_store")
    return BlobSnapshotStore(DirectoryBlobs(path))


def object_store(url: str, **options: Any) -> SnapshotStore:
    """Snapshots in an object store with conditional puts: "s3://bucket/prefix", "gs://...", "az://...".

    `options` are those of `obstore.store.from_url` ("region", "endpoint", ...); what is not given comes from the
    environment. Needs `pip install 'jetfast[s3]'`. One that ignores conditional puts is refused at submission.
    """
    if not isinstance(url, str) or "://" not in url:
        raise TypeError(f'the URL of an object store must be like "s3://bucket/prefix", got {url!r}')
    return BlobSnapshotStore(ObjectStoreBlobs(url, options))
