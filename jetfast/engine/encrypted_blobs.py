"""Named bytes that are encrypted before they reach a store, and refused if they were altered, moved or exchanged.

    file      head | salt 16 | segment+
    head      "JETFASTE" | version u16 | length of key id u8 | key id | nonce 12 | data key, wrapped 48
    segment   AES-256-GCM of 1 MiB (the last one: of what is left), and its tag of 16 bytes

The data key is random, one for each execution and process, and wrapped by the user's key with AES-256-GCM. Each file
has a key of its own: HKDF-SHA256 of the data key with a random salt. So no nonce is used twice, and the nonce of a
segment is its number, with a bit that tells the last one. Associated data are the head of the file and its name, which
holds the version of a record, or execution, snapshot, step and kind: what was put in another place does not open.
"""

import hashlib
import os
import re
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jetfast.engine.blob_snapshot_store import Blobs
from jetfast.engine.snapshot_files import ENCRYPTED_MAGIC, MAGIC
from jetfast.errors import JetfastError, JobDefinitionError, SnapshotDamaged, StoreUnavailable

KEY_BYTES = 32
SEGMENT_BYTES = 1 << 20
Key = bytes | Callable[[str | None], tuple[str, bytes]]
"""32 bytes; or a function that returns (id, 32 bytes): for an id that key, for None the one to encrypt with."""
_VERSION = 1
_HEAD = struct.Struct("<8sHB")
_NONCE_BYTES = 12
_TAG_BYTES = 16
_WRAPPED_BYTES = KEY_BYTES + _TAG_BYTES
_SALT_BYTES = 16
_LAST = 1 << 32
_EXECUTION = re.compile(r"/areas/(\d+)-")
_KEPT_KEYS = 256
_MISSING = "encrypted snapshots need cryptography: pip install 'jetfast[encryption]'"


class EncryptedBlobs:
    """Blobs that encrypt for other blobs. Names are not encrypted: they tell jobs, steps and sizes."""

    def __init__(self, blobs: Blobs, key: Key) -> None:
        """Raises TypeError or JobDefinitionError for what is no key."""
        if isinstance(key, bytes):
            _check_key(key)
        elif not callable(key):
            raise TypeError(f"the key of a snapshot store must be 32 bytes or a function, got {type(key).__name__}")
        try:
            import cryptography  # noqa: F401
        except ImportError as error:
            raise JobDefinitionError(_MISSING) from error
        self.blobs = blobs
        self.exclusive_by = blobs.exclusive_by
        self._key = key
        self._lock = threading.Lock()
        self._own: dict[str, tuple[bytes, bytes]] = {}
        """By execution, the head of files and the data key."""
        self._unwrapped: dict[bytes, bytes] = {}
        """By head of files."""

    @property
    def name(self) -> str:
        return f"{self.blobs.name} (encrypted)"

    @property
    def survives(self) -> str:
        return f"{self.blobs.survives}, and the key"

    def sweep(self, folder: str) -> None:
        self.blobs.sweep(folder)

    def check_access(self) -> None:
        self.blobs.check_access()

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        self.blobs.put(name, self._sealed(name, pieces))

    def create(self, name: str, data: bytes) -> bool:
        return self.blobs.create(name, b"".join(self._sealed(name, [data])))

    def get(self, name: str) -> bytes | None:
        data = self.blobs.get(name)
        return None if data is None else self._opened(name, data)

    def list(self, folder: str) -> list[str]:
        return self.blobs.list(folder)

    def list_folders(self) -> Sequence[str]:
        return self.blobs.list_folders()

    def list_parts(self, folder: str) -> Sequence[str]:
        return self.blobs.list_parts(folder)

    def delete(self, names: Sequence[str]) -> None:
        self.blobs.delete(names)

    def delete_folder(self, folder: str) -> None:
        self.blobs.delete_folder(folder)

    def __getstate__(self) -> dict[str, Any]:
        return {"blobs": self.blobs, "key": self._key}  # each process has data keys of its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["blobs"], state["key"])  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"EncryptedBlobs({self.blobs!r}, ***)"

    def _sealed(self, name: str, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
        """The pieces of an encrypted file; no more than a segment is held."""
        head, data_key = self._data_key(name)
        salt = os.urandom(_SALT_BYTES)
        cipher, associated = _file_cipher(data_key, salt), _associated(head + salt, name)
        yield head + salt
        waiting = bytearray()
        number = 0
        for piece in pieces:
            view = memoryview(piece)
            while len(view):
                if len(waiting) == SEGMENT_BYTES:
                    yield cipher.encrypt(_nonce(number, last=False), waiting, associated)
                    waiting = bytearray()
                    number += 1
                room = SEGMENT_BYTES - len(waiting)
                waiting += view[:room]
                view = view[room:]
        yield cipher.encrypt(_nonce(number, last=True), waiting, associated)

    def _opened(self, name: str, data: bytes) -> bytes:
        """What a file holds. Raises SnapshotDamaged and JobDefinitionError."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(data)
        head_bytes = self._head_bytes(name, view)
        salt_end = head_bytes + _SALT_BYTES
        if len(view) < salt_end + _TAG_BYTES:
            raise SnapshotDamaged(f"{self.name}: {name} ends after {len(view)} bytes")
        data_key = self._unwrap(name, bytes(view[:head_bytes]))
        cipher = _file_cipher(data_key, bytes(view[head_bytes:salt_end]))
        associated = _associated(bytes(view[:salt_end]), name)
        opened = bytearray()
        starts = range(salt_end, len(view), SEGMENT_BYTES + _TAG_BYTES)
        try:
            for number, start in enumerate(starts):
                segment = view[start : start + SEGMENT_BYTES + _TAG_BYTES]
                opened += cipher.decrypt(_nonce(number, last=start == starts[-1]), segment, associated)
        except (InvalidTag, ValueError) as error:
            raise SnapshotDamaged(
                f"{self.name}: {name} was altered, or is a file of another place or age: it does not open there"
            ) from error
        return bytes(opened)

    def _head_bytes(self, name: str, view: memoryview) -> int:
        if bytes(view[: len(MAGIC)]) == MAGIC:
            raise SnapshotDamaged(
                f"{self.name}: {name} is not encrypted: it was written without a key, or put there by another user. "
                "Open a store that was written without a key without one, or keep encrypted snapshots in a new store"
            )
        if len(view) < _HEAD.size or bytes(view[: len(ENCRYPTED_MAGIC)]) != ENCRYPTED_MAGIC:
            raise SnapshotDamaged(f"{self.name}: {name} is no encrypted file of a snapshot, or has been cut")
        _, version, id_bytes = _HEAD.unpack(view[: _HEAD.size])
        if version != _VERSION:
            raise SnapshotDamaged(f"{self.name}: {name} has encryption version {version}, not {_VERSION}")
        return int(_HEAD.size + id_bytes + _NONCE_BYTES + _WRAPPED_BYTES)

    def _data_key(self, name: str) -> tuple[bytes, bytes]:
        """The head of a file that is written under a name, and the data key of its execution."""
        match = _EXECUTION.search(name)
        execution = f"{os.getpid()}/{'' if match is None else match[1]}"
        with self._lock:
            found = self._own.get(execution)
            if found is None:
                if len(self._own) >= _KEPT_KEYS:
                    self._own.clear()
                found = self._own[execution] = self._new_data_key()
        return found

    def _new_data_key(self) -> tuple[bytes, bytes]:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, key = self._ask_for_key(None)
        if not 0 < len(key_id.encode()) < 256:
            raise JobDefinitionError(f"the id of a key must be 1 to 255 bytes of text, got {key_id!r}")
        head = _HEAD.pack(ENCRYPTED_MAGIC, _VERSION, len(key_id.encode())) + key_id.encode()
        data_key, nonce = os.urandom(KEY_BYTES), os.urandom(_NONCE_BYTES)
        return head + nonce + AESGCM(key).encrypt(nonce, data_key, head), data_key

    def _unwrap(self, name: str, head: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        with self._lock:
            known = self._unwrapped.get(head)
        if known is not None:
            return known
        begin = len(head) - _WRAPPED_BYTES - _NONCE_BYTES
        try:
            key_id = head[_HEAD.size : begin].decode()
        except UnicodeDecodeError as error:
            raise SnapshotDamaged(f"{self.name}: the head of {name} was altered") from error
        found_id, key = self._ask_for_key(key_id)
        if found_id != key_id:
            raise JobDefinitionError(
                f"{self.name}: {name} was encrypted with the key {key_id!r}, and the key that was given is {found_id!r}"
            )
        nonce, wrapped = head[begin : begin + _NONCE_BYTES], head[begin + _NONCE_BYTES :]
        try:
            data_key = AESGCM(key).decrypt(nonce, wrapped, head[:begin])
        except InvalidTag as error:
            raise JobDefinitionError(
                f"{self.name}: {name} does not open with the key {key_id!r}: another key was given under that id, or "
                "the head of the file was altered"
            ) from error
        with self._lock:
            if len(self._unwrapped) >= _KEPT_KEYS:
                self._unwrapped.clear()
            self._unwrapped[head] = data_key
        return data_key

    def _ask_for_key(self, key_id: str | None) -> tuple[str, bytes]:
        """The user's key of an id; None: the one to encrypt with."""
        if isinstance(self._key, bytes):
            return key_id_of(self._key), self._key
        try:
            found_id, key = self._key(key_id)
        except LookupError as error:
            raise JobDefinitionError(f"{self.name}: the key {key_id!r} is not known: {error}") from error
        except JetfastError:
            raise
        except Exception as error:
            raise StoreUnavailable(f"{self.name}: the key {key_id!r} cannot be had: {error}") from error
        _check_key(key)
        return found_id, key


def key_id_of(key: bytes) -> str:
    """Return the id of a key that was given as bytes: a digest, which does not tell the key."""
    return hashlib.sha256(b"jetfast key id\0" + key).hexdigest()[:16]


def _check_key(key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        what = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise JobDefinitionError(f"the key of a snapshot store must be {KEY_BYTES} bytes, got {what}")


def _file_cipher(data_key: bytes, salt: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, b"jetfast file").derive(data_key))


def _nonce(number: int, last: bool) -> bytes:
    return (number | (_LAST if last else 0)).to_bytes(_NONCE_BYTES, "big")


def _associated(head: bytes, name: str) -> bytes:
    return head + name.encode()
