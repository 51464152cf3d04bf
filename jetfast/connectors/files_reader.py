"""Reads the files of one source partition, one after the other, and goes on where a snapshot says."""

import logging
import struct
import zlib
from collections.abc import Iterable

import pyarrow as pa

from jetfast.connectors.file_formats import START, FileReader, may_grow
from jetfast.connectors.file_marks import Marks, find_change
from jetfast.connectors.file_readers import open_file
from jetfast.connectors.found_files import READ_ERRORS, FileSettings, FoundFiles, compare_file
from jetfast.core.batch import Batch
from jetfast.core.source import REJECTED_SCHEMA, Position, Rows
from jetfast.errors import JobFailedError

logger = logging.getLogger("jetfast")

_POSITION = struct.Struct("<qqqqqI")  # file of the partition, place in the file, CRC-32 of names up to this file's
"""The marks of the file follow, but in positions of earlier versions."""


class FilesReader:
    """Reads the files of one source partition, one after the other."""

    def __init__(
        self,
        what: str,
        found: FoundFiles,
        schema: pa.Schema,
        settings: FileSettings,
        names: list[str],
        position: Position | None,
    ) -> None:
        self.what = what
        self.found = found
        self.schema = schema
        self.settings = settings
        self.names = names
        self.file: FileReader | None = None
        self.row = 0
        self.index = 0
        self.place = START
        self.saved: Marks | None = None
        """Of the file that the position is in, until it is opened."""
        self.names_checksum = _names_checksum(names[:1])
        if position is not None:
            self._go_to(position)

    def _go_to(self, position: Position) -> None:
        """Go on at a saved position, if the files up to it are those that were there."""
        self.index, *place, self.names_checksum = _POSITION.unpack_from(position)
        if len(position) > _POSITION.size:
            self.saved = Marks.unpack(position[_POSITION.size :])
        self.place = (place[0], place[1], place[2], place[3])
        names = self.names[: self.index + 1]
        if len(names) <= self.index or _names_checksum(names) != self.names_checksum:
            raise JobFailedError(
                f"{self.what}: the snapshot counts on the first {self.index + 1} files of a partition, which are not "
                f"the same any more: it begins with {', '.join(map(repr, names[:3]))} now. New files need names that "
                "come later; none may be renamed or removed before the job is completed"
            )

    def read(self) -> Rows | None:
        while self.index < len(self.names):
            name = self.names[self.index]
            try:
                if self.file is None:
                    self.file = self._open_unchanged(name)
                rows = self.file.read()
            except READ_ERRORS as error:
                raise JobFailedError(
                    f"{self.what}: {name!r} cannot be read further at row {self.row}: {type(error).__name__}: {error}"
                ) from error
            if rows is None:
                self.file.close()
                self.file, self.index, self.place, self.row = None, self.index + 1, START, 0
                self.names_checksum = _names_checksum(self.names[self.index : self.index + 1], self.names_checksum)
                continue
            self.place = rows.place
            self.row = rows.first_row + rows.batch.num_rows
            rejected = None
            if rows.malformed:
                columns = [
                    [name] * len(rows.malformed),
                    *(list(values) for values in zip(*rows.malformed, strict=True)),
                ]
                rejected = Batch.from_arrow(pa.record_batch(columns, schema=REJECTED_SCHEMA))
            return Rows(
                Batch.from_arrow(pa.RecordBatch.from_arrays(rows.batch.columns, schema=self.schema)),
                _POSITION.pack(self.index, *self.place, self.names_checksum) + self.file.marks.pack(),
                rows.first_row,
                rejected,
                origin=name,
                row_numbers=rows.row_numbers,
            )
        return None

    def _open_unchanged(self, name: str) -> FileReader:
        """Open a file; one that a saved position is in must be the same up to there, or what the user says happens."""
        file = self._open(name)
        saved, self.saved = self.saved, None
        grows = may_grow(self.found.file_format)
        change = None if saved is None else find_change(saved, file.marks, grows)
        if change is None and grows and file.marks.length < self.place[0]:  # positions of earlier versions tell it, too
            change = f"it ends after {file.marks.length} bytes, of which {self.place[0]} had been read"
        if change is None:
            return file
        what = f"{self.what}: {name!r} is not the file any more that was read before: {change}"
        if self.settings.on_changed_input == "ignore":
            logger.warning("%s; reading continues at the saved position (on_changed_input)", what)
            return file
        file.close()
        if self.settings.on_changed_input == "reread":
            logger.warning("%s; it is read from its beginning (on_changed_input)", what)
            self.place, self.row = START, 0
            return self._open(name)
        raise JobFailedError(
            f"{what}. Put the old file back, or say by on_changed_input= of jf.files that it is to be read again from "
            f'its beginning ("reread") or from the saved position ("ignore"). Rows may be appended to text at any time'
        )

    def _open(self, name: str) -> FileReader:
        found = self.found
        if not found.was_compared(name):
            difference, _ = compare_file(found, name, self.settings.options)
            if difference is not None:
                raise JobFailedError(f"{self.what}: the files differ: {difference}")
        return open_file(
            found.filesystem,
            found.paths[name],
            found.file_format,
            self.schema,
            self.place,
            self.settings.batch_rows,
            self.settings.options,
            found.exact and len(self.schema) == len(found.schema),
        )

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


def _names_checksum(names: Iterable[str], before: int = 0) -> int:
    """Return the CRC-32 of names in their order, going on from that of the names before them."""
    for name in names:
        before = zlib.crc32(name.encode(errors="surrogateescape") + b"\0", before)
    return before
