"""Which files a path, a list, a directory or a pattern means, and how they are grouped into source partitions."""

import os
import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Any

from jetfast.connectors.file_formats import FORMATS, compression_of, format_of
from jetfast.errors import JobDefinitionError
from jetfast.types import Secret, redact

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Groups = Sequence[Sequence[str | os.PathLike[str]]] | Callable[[str], str] | str

_WILDCARD = re.compile(r"[*?\[]")


def as_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text. A URL may hold keys: it is shown without them, and `redact` names it."""
    text = os.fspath(path)
    return Secret(text) if "://" in text else text


def resolve_filesystem(path: str, filesystem: Any, base: str) -> tuple[Any, str]:
    """Return the filesystem and the path in it.

    On a local disk it is absolute, from `base`: the folder of the process that described the pipeline, not of a member.
    """
    from pyarrow import fs

    if filesystem is None:
        if "://" in path:
            scheme, _, rest = path.partition("://")
            begin = _WILDCARD.search(rest)
            fixed = rest if begin is None else rest[: rest.rfind("/", 0, begin.start())]
            try:
                found, root = fs.FileSystem.from_uri(f"{scheme}://{fixed}")
            except Exception as error:
                raise JobDefinitionError(f"{redact(path)} cannot be opened: {redact(str(error))}") from None
            return found, root + rest[len(fixed) :]
        filesystem = fs.LocalFileSystem()
    elif not isinstance(filesystem, fs.FileSystem):
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    if isinstance(filesystem, fs.LocalFileSystem):
        return filesystem, os.path.normpath(os.path.join(base, os.path.expanduser(path)))
    return filesystem, path


def file_names(filesystem: Any, directory: str) -> list[str]:
    """Return the names of the files in a directory: none if it is not there yet."""
    from pyarrow import fs

    selector = fs.FileSelector(directory, allow_not_found=True)
    try:
        listed = filesystem.get_file_info(selector)
    except FileNotFoundError:
        # Arrow lists first and looks for the directory after that: one that another processor made in between is an
        # error to it. Now it is there.
        listed = filesystem.get_file_info(selector)
    return [info.base_name for info in listed if info.type == fs.FileType.File]


def list_files(
    what: str, paths: Paths, filesystem: Any, base: str, file_format: str | None
) -> tuple[Any, str, dict[str, str]]:
    """Return filesystem, format, and the files: name for people (as the user wrote it) -> path, in name order.

    A list must name files that exist. A directory gives its files of a known format (all of them if the format is
    given), without those whose names begin with "." or "_", and without its sub-directories. "**" in a pattern goes
    through them.

    Raises JobDefinitionError if there is none, or they are of several formats.
    """
    if isinstance(paths, str | os.PathLike):
        written = as_text(paths)
        filesystem, path = resolve_filesystem(written, filesystem, base)
        found = _expand(what, written, filesystem, path)
        suitable = {
            name: path for name, path in found.items() if file_format is not None or format_of(path) is not None
        }
        if not suitable:
            if found:
                raise JobDefinitionError(
                    f"{what}: the suffix of {next(iter(found))!r} tells no format; give format=, one of "
                    f"{', '.join(FORMATS)}"
                )
            raise JobDefinitionError(f"{what}: no file matches {redact(written)!r}")
    else:
        suitable = {}
        for item in paths:
            filesystem, path = resolve_filesystem(as_text(item), filesystem, base)
            if filesystem.get_file_info(path).type.name == "NotFound":
                raise JobDefinitionError(f"{what}: there is no file {redact(as_text(item))!r}")
            suitable[redact(as_text(item))] = path
        if not suitable:
            raise JobDefinitionError(f"{what}: the list of files is empty")
    suitable = dict(sorted(suitable.items()))
    return filesystem, file_format or _common_format(what, suitable), suitable


def _expand(what: str, written: str, filesystem: Any, path: str) -> dict[str, str]:
    """Return name -> path of everything that one path, directory or pattern means."""
    from pyarrow import fs

    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.File:
        return {redact(written): path}
    if info.type == fs.FileType.Directory:
        listed = filesystem.get_file_info(fs.FileSelector(path))
        return {
            posixpath.join(redact(written), file.base_name): file.path
            for file in listed
            if file.type == fs.FileType.File and not file.base_name.startswith((".", "_"))
        }
    begin = _WILDCARD.search(path)
    if begin is None:
        raise JobDefinitionError(f"{what}: there is no file or directory {redact(written)!r}")
    root = path[: path.rfind("/", 0, begin.start()) + 1]
    pattern = re.compile(_regular_expression(path))
    if filesystem.get_file_info(root or ".").type != fs.FileType.Directory:
        raise JobDefinitionError(f"{what}: no file matches {redact(written)!r}: there is no directory {root!r}")
    listed = filesystem.get_file_info(fs.FileSelector(root, recursive="/" in path[begin.start() :] or "**" in path))
    fixed = written[: written.rfind("/", 0, _first_wildcard(written)) + 1]
    return {
        redact(fixed) + file.path[len(root) :]: file.path
        for file in listed
        if file.type == fs.FileType.File and pattern.fullmatch(file.path) and not file.base_name.startswith((".", "_"))
    }


def _first_wildcard(written: str) -> int:
    match = _WILDCARD.search(written)
    return len(written) if match is None else match.start()


def _regular_expression(pattern: str) -> str:
    """Translate a shell pattern: * and ? stop at a slash, ** does not, [abc] and [!abc] are classes."""
    text = ""
    position = 0
    while position < len(pattern):
        rest = pattern[position:]
        characters = re.match(r"\[(!?)([^\]]+)\]", rest)
        if rest.startswith("**/"):
            text, position = text + "(?:.*/)?", position + 3
        elif rest.startswith("**"):
            text, position = text + ".*", position + 2
        elif rest.startswith("*"):
            text, position = text + "[^/]*", position + 1
        elif rest.startswith("?"):
            text, position = text + "[^/]", position + 1
        elif characters is not None:
            inner = characters[2].replace("\\", "\\\\")
            text += f"[{'^' if characters[1] else ''}{inner}]"
            position += characters.end()
        else:
            text, position = text + re.escape(pattern[position]), position + 1
    return text


def _common_format(what: str, files: dict[str, str]) -> str:
    first_name, first_path = next(iter(files.items()))
    first = format_of(first_path)
    if first is None:
        raise JobDefinitionError(
            f"{what}: the suffix of {first_name!r} tells no format; give format=, one of {', '.join(FORMATS)}"
        )
    for name, path in files.items():
        other = format_of(path)
        if other != first:
            raise JobDefinitionError(
                f"{what}: {first_name!r} is {first} and {name!r} is {other or 'of no known format'}; "
                f"read them as two sources, or give format="
            )
    return first


def group_files(what: str, files: dict[str, str], groups: Groups | None) -> dict[str, list[str]]:
    """Return source partitions: name -> names of its files, in the order in which they are read.

    None: each file alone. A function of the file's name gives the name of its group; a regular expression finds it (its
    first group, or all that it matches). Files of these groups are in name order; lists stay as they are written, and
    must name each file once.
    """
    if groups is None:
        return {name: [name] for name in files}
    if isinstance(groups, str) or callable(groups):
        label = _finder(what, groups) if isinstance(groups, str) else groups
        found: dict[str, list[str]] = {}
        for name in files:
            found.setdefault(str(label(name)), []).append(name)
        return dict(sorted(found.items()))
    by_any_name = {posixpath.basename(name): name for name in files}
    by_any_name |= {path: name for name, path in files.items()} | {name: name for name in files}
    partitions: dict[str, list[str]] = {}
    used: set[str] = set()
    for index, group in enumerate(groups):
        names = []
        for item in group:
            named = by_any_name.get(redact(as_text(item)))
            if named is None:
                raise JobDefinitionError(
                    f"{what}: partitions= names {redact(as_text(item))!r}, which is not among the files"
                )
            if named in used:
                raise JobDefinitionError(f"{what}: partitions= names {named!r} twice")
            used.add(named)
            names.append(named)
        partitions[f"group {index}"] = names
    forgotten = [name for name in files if name not in used]
    if forgotten:
        raise JobDefinitionError(
            f"{what}: partitions= leaves out {len(forgotten)} of {len(files)} files, such as {forgotten[0]!r}"
        )
    return partitions


def _finder(what: str, pattern: str) -> Callable[[str], str]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise JobDefinitionError(f"{what}: partitions= is no regular expression: {pattern!r}: {error}") from error

    def find(name: str) -> str:
        match = expression.search(name)
        if match is None:
            raise JobDefinitionError(f"{what}: partitions={pattern!r} matches nothing in {name!r}")
        return match[1] if expression.groups else match[0]

    return find


def is_single_file(path: str, file_format: str) -> bool:
    """Does an output path mean one file rather than a directory of part files?"""
    if compression_of(path) is not None and file_format not in ("csv", "json"):
        return False
    return format_of(path) == file_format
