"""Where a job keeps its snapshots, as `jetfast.snapshots`.

    store = jf.snapshots.directory("/var/lib/jobs")
    job = jf.LocalCluster().submit(pipeline, snapshot_store=store)
    job.export_snapshot("before the upgrade")
    jf.snapshots.named(store)                        # what there is to start from
    jf.snapshots.delete(store, "before the upgrade")

A store may hold any number of jobs; each has a name.
"""

import os
from typing import Any

from jetfast.engine.blob_snapshot_store import BlobSnapshotStore
from jetfast.engine.directory_blobs import DirectoryBlobs
from jetfast.engine.encrypted_blobs import EncryptedBlobs, Key
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.named_snapshots import NamedSnapshot, delete_named, list_named
from jetfast.engine.object_store_blobs import ObjectStoreBlobs
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.types import redact

__all__ = ["NamedSnapshot", "SnapshotStore", "delete", "directory", "encrypted", "memory", "named", "object_store"]


def memory() -> SnapshotStore:
    """Snapshots in the memory of this process: they survive members, not the process. For `LocalCluster` only."""
    return MemorySnapshotStore()


def directory(path: str | os.PathLike[str], *, allow_shared_store: bool = False) -> SnapshotStore:
    """Snapshots in a directory that all members reach: on this host, or on a network file system with hard links.

    A directory that everybody can write to, or that belongs to another user, is refused at submission: who can write to
    a store decides what jobs restore. `allow_shared_store=True` permits it.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise TypeError(f"the path of a snapshot directory must be text or a path, got {path!r}")
    if "://" in os.fspath(path):
        raise TypeError(f"{os.fspath(path)!r} is no directory; for a URL there is jetfast.snapshots.object_store")
    return BlobSnapshotStore(DirectoryBlobs(path, allow_shared_store))


def object_store(url: str, **options: Any) -> SnapshotStore:
    """Snapshots in an object store with conditional puts: "s3://bucket/prefix", "gs://...", "az://...".

    `options` are those of `obstore.store.from_url` ("region", "endpoint", ...); what is not given comes from the
    environment. Needs `pip install 'jetfast[s3]'`. One that ignores conditional puts is refused at submission.
    """
    if not isinstance(url, str) or "://" not in url:
        raise TypeError(f'the URL of an object store must be like "s3://bucket/prefix", got {redact(str(url))!r}')
    return BlobSnapshotStore(ObjectStoreBlobs(url, options))


def encrypted(store: SnapshotStore, key: Key) -> SnapshotStore:
    """The same store with its files encrypted (AES-256-GCM); needs `pip install 'jetfast[encryption]'`.

    Parameters
    ----------
    store : of `directory` or `object_store`
    key : 32 bytes, as of `secrets.token_bytes(32)`; or a function of the id of a key that returns (id, 32 bytes), and
        for None those of the key to encrypt with. It raises KeyError for an id that it does not know. So keys can be
        changed: it knows the old one as long as there are files that were encrypted with it

    A file that was altered, or put in the place of another one, is refused. Names of jobs and steps stay readable. The
    key goes to members with the job: with members on other hosts give a function that fetches it there.
    """
    if not isinstance(store, BlobSnapshotStore) or isinstance(store.blobs, EncryptedBlobs):
        raise TypeError(f"only a store of snapshots.directory or object_store can be encrypted, got {store!r}")
    return BlobSnapshotStore(EncryptedBlobs(store.blobs, key))


def named(store: SnapshotStore, job: str | None = None) -> tuple[NamedSnapshot, ...]:
    """Return the snapshots that were exported to a store, by name; of one job only, if it is given.

    One that is damaged says so in `problem`; whether all of its state can be read shows when a job starts from it.
    """
    return list_named(store, job)


def delete(store: SnapshotStore, name: str) -> None:
    """Delete an exported snapshot. JobDefinitionError: there is none of that name. Jobs that have started from it, or
    start just now and have copied it, go on.
    """
    delete_named(store, name)
