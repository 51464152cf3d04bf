"""Named bytes in an object store (S3, Google Cloud Storage, Azure, ...), created exclusively by a conditional put."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jetfast.errors import JobDefinitionError, OutcomeUnknown, StoreUnavailable
from jetfast.types import Secret, redact

logger = logging.getLogger("jetfast")

_MISSING = "snapshots in object stores need obstore: pip install 'jetfast[s3]'"

_SECRET_LENGTH_MIN = 6
"""Shorter values of options are shown."""


class ObjectStoreBlobs:
    """Blobs below a URL such as "s3://bucket/prefix".

    Parameters
    ----------
    url : of a bucket or container, and what names begin with in it
    options : as `obstore.store.from_url` takes them ("region", "endpoint", "access_key_id", ...); what is not given
        comes from the environment, as with the clouds' own tools
    """

    exclusive_by = "conditional puts (If-None-Match)"

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = Secret(url)
        self.options = dict(options or {})
        self._opened: Any = None

    @property
    def name(self) -> str:
        return f"object store {self.url}"

    @property
    def survives(self) -> str:
        return f"the loss of every process, as long as {self.url} is there"

    def sweep(self, folder: str) -> None:
        """An object is whole or not there; parts of uploads that were cut off expire by rules of the bucket."""

    def check_access(self) -> None:
        logger.info("%s: jetfast cannot judge who else can write to it, and so decide what jobs restore", self.name)

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        store = self._store()
        import obstore

        try:
            obstore.put(store, name, iter(pieces))
        except Exception as error:
            raise self._unavailable(f"{name} cannot be written", error) from error

    def create(self, name: str, data: bytes) -> bool:
        store = self._store()
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            obstore.put(store, name, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except Exception as error:
            raise OutcomeUnknown(
                f"{self.name}: it is not known whether {name} was created: {self._told(error)}"
            ) from error
        return True

    def get(self, name: str) -> bytes | None:
        store = self._store()
        import obstore

        try:
            return bytes(obstore.get(store, name).bytes())
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._unavailable(f"{name} cannot be read", error) from error

    def list(self, folder: str) -> list[str]:
        store = self._store()
        import obstore

        try:
            found = [item["path"] for chunk in obstore.list(store, prefix=f"{folder}/") for item in chunk]
        except Exception as error:
            raise self._unavailable(f"{folder} cannot be listed", error) from error
        return sorted(found)

    def list_folders(self) -> Sequence[str]:
        store = self._store()
        import obstore

        try:
            found = obstore.list_with_delimiter(store)["common_prefixes"]
        except Exception as error:
            raise self._unavailable("it cannot be listed", error) from error
        return sorted(found)

    def list_parts(self, folder: str) -> Sequence[str]:
        store = self._store()
        import obstore

        try:
            found = obstore.list_with_delimiter(store, prefix=f"{folder}/")
        except Exception as error:
            raise self._unavailable(f"{folder} cannot be listed", error) from error
        paths = [*found["common_prefixes"], *(item["path"] for item in found["objects"])]
        return sorted(path.rpartition("/")[2] for path in paths)

    def delete_folder(self, folder: str) -> None:
        self.delete(self.list(folder))

    def delete(self, names: Sequence[str]) -> None:
        store = self._store()
        import obstore

        for name in names:
            try:
                obstore.delete(store, name)
            except FileNotFoundError:
                continue
            except Exception as error:
                raise self._unavailable(f"{name} cannot be deleted", error) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # each process opens its own

    def __repr__(self) -> str:
        return f"ObjectStoreBlobs({self.url!r})"

    def _store(self) -> Any:
        if self._opened is None:
            try:
                from obstore.store import from_url
            except ImportError as error:
                raise JobDefinitionError(_MISSING) from error
            try:
                self._opened = from_url(self.url, **self.options)
            except Exception as error:
                raise JobDefinitionError(f"{self.name} cannot be opened: {self._told(error)}") from None
        return self._opened

    def _unavailable(self, what: str, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{self.name}: {what}: {self._told(error)}")

    def _told(self, error: Exception) -> str:
        """What obstore says, without the values of options: one that it cannot take may be a key."""
        text = redact(_said(error))
        for value in self.options.values():
            if isinstance(value, str) and len(value) >= _SECRET_LENGTH_MIN:
                text = text.replace(value, "***")
        return text


def _said(error: Exception) -> str:
    """Return what obstore says, without the structures that it prints behind that."""
    return str(error).partition("\n\nDebug source:")[0]
