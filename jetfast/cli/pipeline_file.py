"""Finds the pipeline in a user's file: FILE.py, or FILE.py:NAME.

The file is run as a module, with its folder first in `sys.path` as `python FILE.py` would have it, and not as
`__main__`: what stands below `if __name__ == "__main__"` does not run. NAME is a variable or a function without
arguments. Functions of the file go to members by value, since members cannot import it.
"""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

import cloudpickle

from jetfast.api.pipeline import Pipeline
from jetfast.connectors.away import is_away
from jetfast.errors import JetfastError, JobDefinitionError, SystemUnavailable

MODULE = "jetfast_pipeline"
"""Name that the file has as a module."""


def load_pipeline(place: str, job: str | None = None) -> Pipeline:
    """Return the pipeline of a file.

    Parameters
    ----------
    place : FILE.py, or FILE.py:NAME
    job : name of the job or pipeline that is looked for, where the file has several; None: it must have one

    Raises JobDefinitionError: no such file, it fails, it has no pipeline, or several and none of that name.
    """
    file, name = _split(place)
    module = _run(file)
    if name:
        return _named(file, module, name)
    found: dict[str, Pipeline] = {}
    for variable, value in vars(module).items():
        if isinstance(value, Pipeline) and not any(value is other for other in found.values()):
            found[variable] = value
    if not found:
        raise JobDefinitionError(
            f"{file} has no pipeline: give a variable of the file a jetfast.Pipeline (not below "
            f'`if __name__ == "__main__"`), or name a function that returns one, as in {file}:make_pipeline'
        )
    wanted = [pipeline for pipeline in found.values() if job is not None and pipeline.name == job]
    if len(wanted) == 1:
        return wanted[0]
    if len(found) == 1:
        return next(iter(found.values()))
    listed = ", ".join(f"{variable} ({pipeline.name!r})" for variable, pipeline in found.items())
    missing = "" if job is None else f", not exactly one of them named {job!r}"
    raise JobDefinitionError(f"{file} has {len(found)} pipelines{missing}: {listed}; say which one, as in {file}:NAME")


def _split(place: str) -> tuple[Path, str]:
    file, colon, name = place.rpartition(":")
    if colon and name.isidentifier() and file:
        return Path(file), name
    return Path(place), ""


def _run(file: Path) -> ModuleType:
    if not file.is_file():
        raise JobDefinitionError(f"there is no file {str(file)!r}")
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise JobDefinitionError(f"{file} is no Python file: its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    sys.path.insert(0, str(file.absolute().parent))
    cloudpickle.register_pickle_by_value(module)
    try:
        spec.loader.exec_module(module)
    except JetfastError:
        raise
    except Exception as error:
        raise _failed(str(file), file, error) from error
    return module


def _failed(what: str, file: Path, error: Exception) -> JobDefinitionError:
    kind = SystemUnavailable if is_away(error) else JobDefinitionError
    return kind(f"{what} failed{_line_in(file, error)}: {type(error).__name__}: {error}")


def _line_in(file: Path, error: Exception) -> str:
    """Return where in the file an error came from."""
    path = str(file.absolute())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f" at line {lines[-1]}" if lines else ""


def _named(file: Path, module: ModuleType, name: str) -> Pipeline:
    value = getattr(module, name, None)
    if value is None:
        there = ", ".join(variable for variable, other in vars(module).items() if isinstance(other, Pipeline))
        raise JobDefinitionError(f"{file} has no {name!r}" + (f"; its pipelines are {there}" if there else ""))
    if callable(value) and not isinstance(value, Pipeline):
        try:
            value = value()
        except JetfastError:
            raise
        except Exception as error:
            raise _failed(f"{name}() of {file}", file, error) from error
    if not isinstance(value, Pipeline):
        raise JobDefinitionError(f"{name!r} of {file} must be a jetfast.Pipeline, or return one; it is {value!r}")
    return value
