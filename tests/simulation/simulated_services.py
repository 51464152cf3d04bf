"""Outside services of simulated jobs: their answers come when the seed says, on the thread that asks."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from jetfast.processors import map_using_service

ANSWERED = 0.2
"""Probability that an answer has come when somebody looks."""


class LaterAnswer(Future[Any]):
    """The answer of a call, which is made when it has come."""

    def __init__(self, random: Random, call: Callable[[], Any]) -> None:
        super().__init__()
        self.random, self.call = random, call

    def done(self) -> bool:
        if not super().done() and self.random.random() < ANSWERED:
            self.come()
        return super().done()

    def come(self) -> None:
        try:
            self.set_result(self.call())
        except Exception as error:
            self.set_exception(error)


@contextmanager
def services_in_order(random: Random) -> Iterator[None]:
    """While this is entered, calls of services have no threads."""

    class Calls:
        """In the place of a pool of threads."""

        def __init__(self, concurrency: int, name: str) -> None:
            self.concurrency, self.name = concurrency, name

        def submit(self, function: Callable[..., Any], *arguments: Any) -> LaterAnswer:
            return LaterAnswer(random, lambda: function(*arguments))

        def shutdown(self, wait: bool, cancel_futures: bool) -> None:
            """Nothing is under way."""

    def wait(answers: Sequence[LaterAnswer], timeout: float, until: str) -> Any:
        random.choice(answers).come()  # none of them has: who has looked gave away those that had
        return SimpleNamespace(done=True)

    with patch.multiple(map_using_service, ThreadPoolExecutor=Calls, wait=wait):
        yield
