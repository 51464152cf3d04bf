"""Modules that executors lack travel with the job; those that they have go by name."""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from jetfast.errors import JobDefinitionError
from jetfast.spark.shipping import pickle_with_modules, users_modules

Write = Callable[..., ModuleType]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module that stands beside the script, and imports it."""
    monkeypatch.syspath_prepend(tmp_path)
    written: list[str] = []

    def write_module(name: str, text: str) -> ModuleType:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        written.append(name)
        return importlib.import_module(name)

    yield write_module
    for name in written:
        for part in (name, name.partition(".")[0]):
            sys.modules.pop(part, None)


def sent_to_another_process(function: Any, sent: tuple[str, ...] = ()) -> Any:
    """What a process that has none of the user's modules makes of a function."""
    registered = cloudpickle.list_registry_pickle_by_value()
    pickled = pickle_with_modules(lambda: cloudpickle.dumps(function), sent)
    assert cloudpickle.list_registry_pickle_by_value() == registered
    ours = [name for name in sys.modules if name.startswith("users_")]
    for name in ours:
        del sys.modules[name]
    sys.path.pop(0)
    return cloudpickle.loads(pickled)


def test_a_module_beside_the_script_travels_with_those_that_it_refers_to(write: Write) -> None:
    write("users_rates", "FACTOR = 3\n\ndef scale(x):\n    return x * FACTOR\n")
    module = write("users_steps", "import users_rates\n\ndef step(x):\n    return users_rates.scale(x) + 1\n")
    assert sent_to_another_process(module.step)(2) == 7


def test_a_class_of_a_package_travels(write: Write) -> None:
    module = write(
        "users_package.counters",
        "class Counter:\n    def __init__(self, first):\n        self.first = first\n\n"
        "    def __call__(self, x):\n        return self.first + x\n",
    )
    assert sent_to_another_process(module.Counter(5))(2) == 7


def test_a_module_that_spark_sends_goes_by_name(write: Write) -> None:
    module = write("users_sent", "def step(x):\n    return x\n")
    with pytest.raises(ModuleNotFoundError, match="users_sent"):
        sent_to_another_process(module.step, ("users_sent",))


def test_a_module_that_cannot_be_pickled_goes_by_name(write: Write) -> None:
    module = write(
        "users_locked", "import threading\nlock = threading.Lock()\n\ndef step():\n    return lock.locked()\n"
    )

    def pickled() -> bytes:
        try:
            return cloudpickle.dumps(module.step)
        except TypeError as error:
            raise JobDefinitionError(str(error)) from error

    assert cloudpickle.loads(pickle_with_modules(pickled)) is module.step


def test_what_is_installed_goes_by_name() -> None:
    assert users_modules(cloudpickle.dumps([threading.Thread, pytest.approx, JobDefinitionError, len]), ()) == []
