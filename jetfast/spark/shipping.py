"""The functions of a job go to executors together with the modules of the user that they come from.

A function from the script itself travels by value, one from an installed module by name. A module that stands beside
the script is neither: executors do not have it. So what a job refers to is looked through, and modules that are not
installed travel by value, too, with those that they refer to.
"""

import pickletools
import site
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

from jetfast.errors import JobDefinitionError

_registering = threading.Lock()
"""What cloudpickle takes by value is a setting of the process."""


def pickle_with_modules(pickled: Callable[[], bytes], sent: Collection[str] = ()) -> bytes:
    """Return what `pickled` returns when the user's modules in it are pickled by value.

    Parameters
    ----------
    pickled : pickles by cloudpickle; called again for each layer of modules that refer to others
    sent : names of modules that executors get otherwise; they go by name

    A module that cannot be pickled by value goes by name, and all others with it.
    """
    import cloudpickle

    registered: list[ModuleType] = []
    with _registering:
        found = by_name = pickled()
        try:
            while new := users_modules(found, sent):
                for module in new:
                    cloudpickle.register_pickle_by_value(module)
                    registered.append(module)
                found = pickled()
        except JobDefinitionError:
            return by_name
        finally:
            for module in registered:
                cloudpickle.unregister_pickle_by_value(module)
    return found


def users_modules(pickled: bytes, known: Collection[str]) -> list[ModuleType]:
    """Return the modules that a pickle names that are neither installed, nor known or a part of one that is known.

    Those that are pickled by value already are known.
    """
    from cloudpickle.cloudpickle import list_registry_pickle_by_value

    known = {*known, *list_registry_pickle_by_value(), "jetfast", "__main__"}
    names = sorted(_names_in(pickled).intersection(sys.modules))
    return [
        sys.modules[name]
        for name in names
        if not any(name == one or name.startswith(f"{one}.") for one in known) and not _is_installed(sys.modules[name])
    ]


def sent_by_spark(context: Any) -> set[str]:
    """Return the names of the modules and packages that `addPyFile` of a SparkContext has sent."""
    from pyspark import SparkFiles

    names: set[str] = set()
    for file in context._python_includes:
        path = Path(SparkFiles.getRootDirectory(), file)
        if path.suffix == ".py":
            names.add(path.stem)
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names.update(name.partition("/")[0].removesuffix(".py") for name in archive.namelist())
    return names


def _names_in(pickled: bytes) -> set[str]:
    """Every text of a pickle: names of modules are among them."""
    return {argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str)}


def _is_installed(module: ModuleType) -> bool:
    """Does a module come with the interpreter, or was it installed for it?"""
    file = getattr(module, "__file__", None)
    if file is None:  # built in, or a package without a file of its own
        return True
    folders = [
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    ]
    path = Path(file).resolve()
    return any(path.is_relative_to(Path(folder).resolve()) for folder in folders)
