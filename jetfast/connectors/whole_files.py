"""Writes files that become visible when the job has finished: one for all rows, or one for each writer."""

import posixpath
from typing import Any

import pyarrow as pa

from jetfast.connectors.file_formats import default_suffix
from jetfast.connectors.file_listing import file_names
from jetfast.connectors.file_writers import FileWriter
from jetfast.connectors.part_files import part_number
from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext


class FilesWriter:
    """One part file, or the one file. A writer without rows makes none, but the first does: the result can always be
    read.
    """

    def __init__(
        self,
        filesystem: Any,
        path: str,
        file_format: str,
        single: bool,
        schema: pa.Schema,
        context: ProcessorContext,
    ) -> None:
        self.filesystem = filesystem
        self.directory = posixpath.dirname(path) if single else path
        self.single = single
        self.index = context.index
        self.parallelism = context.parallelism
        self.name = posixpath.basename(path) if single else f"part-{self.index:05d}{default_suffix(file_format)}"
        final = posixpath.join(self.directory, self.name)
        self._remove_leftovers()
        temporary = posixpath.join(self.directory, f".{self.name}.{context.execution_id}.tmp")
        self.file = FileWriter(filesystem, final, temporary, file_format, schema)

    def write(self, batch: Batch) -> None:
        self.file.write(batch)

    def finish(self) -> None:
        if self.index == 0 or self.single or self.file.has_rows:
            self.file.finish()
            kept = self.name
        else:
            kept = ""
        if not self.single:
            self._remove_old_parts(kept)

    def flush(self) -> None:
        """Nothing is promised of a file before it is finished: a job that writes it keeps no guarantee."""

    def abort(self) -> None:
        self.file.abort()

    def _remove_old_parts(self, kept: str) -> None:
        """Remove what was left under this writer's number; the first writer also does it for numbers without writer.

        It is from an earlier job that may be replaced, or from an earlier execution of this job: `check_target` has
        looked.
        """
        for name in file_names(self.filesystem, self.directory):
            number = part_number(name)
            mine = number == self.index or (self.index == 0 and number is not None and number >= self.parallelism)
            if mine and name != kept:
                self.filesystem.delete_file(posixpath.join(self.directory, name))

    def _remove_leftovers(self) -> None:
        """Remove temporary files of this very file, from a process that was killed."""
        for name in file_names(self.filesystem, self.directory):
            if name.startswith(f".{self.name}.") and name.endswith(".tmp"):
                self.filesystem.delete_file(posixpath.join(self.directory, name))
