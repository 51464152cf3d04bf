"""How processes that run this Python are started: the interpreter's flags, and the folders they import from.

A process that is started with `-c` or `-m` imports from its working directory first. A file there, `json.py` say, would
then take the place of a module of the standard library, under the rights of the user who runs the job. So child
processes start with `-P`, which leaves the working directory out, and import from the folders of this process:

    named by the user       the script's folder, PYTHONPATH, installed packages: in the same order, as absolute paths
    there by default        the working directory of an interactive session, of a notebook, and of `python -m` for a
                            module of another folder: last, so that modules there are found and replace no others
    not searched here       not searched there
"""

import os
import sys
from pathlib import Path


def interpreter_arguments() -> list[str]:
    """Return the program and the flags of a child process: as isolated as this one, and never less than `-P`."""
    arguments = [sys.executable, "-P"]
    if sys.flags.isolated:  # not for others: it leaves out PYTHONPATH and the user's packages
        return [*arguments, "-I"]
    if sys.flags.ignore_environment:
        arguments.append("-E")
    if sys.flags.no_user_site:
        arguments.append("-s")
    return arguments


def import_path() -> list[str]:
    """Return `sys.path` for a child process, see above."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed: nothing can be imported from there
        return [entry for entry in sys.path if isinstance(entry, str) and os.path.isabs(entry)]
    named = {os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    named.add(_folder_of_main())
    kept: list[str] = []
    last: list[str] = []
    for entry in sys.path:
        if not isinstance(entry, str):  # the import system ignores it, too
            continue
        by_default = entry == "" or (entry == here and here not in named)
        path = os.path.abspath(entry)
        if path not in (into := last if by_default else kept):
            into.append(path)
    return kept + [path for path in last if path not in kept]


def _folder_of_main() -> str:
    """Return the folder that the program was imported from; empty if it is no file."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None:
        return ""
    spec = getattr(main, "__spec__", None)
    packages = 0 if spec is None else spec.name.count(".")
    return str(Path(file).absolute().parents[packages])
