"""Who has asked something of a job and waits for the answer."""

import threading
from collections.abc import Callable
from concurrent.futures import Future


class OpenRequests:
    """Requests by number, each answered once: when it is done or refused, or when the job ends. Any thread."""

    def __init__(self) -> None:
        self._open: dict[int, Future[None]] = {}
        self._last = 0
        self._refusal: Callable[[], Exception] | None = None
        """Makes the answer to whoever asks when the job has ended; None: it has not."""
        self._lock = threading.Lock()

    def add(self) -> "tuple[int, Future[None]]":
        """Return the number of a new request, and what will bear its answer."""
        future: Future[None] = Future()
        with self._lock:
            self._last += 1
            if self._refusal is None:
                self._open[self._last] = future
            else:
                future.set_exception(self._refusal())
            return self._last, future

    def answer(self, request: int, error: Exception | None) -> None:
        """What was asked for is done (None), or is not. Nothing happens to a request that has its answer."""
        with self._lock:
            future = self._open.pop(request, None)
        if future is None:
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def close(self, refusal: Callable[[], Exception]) -> None:
        """Refuse all that are open, and all that come; `refusal` makes an error for each."""
        with self._lock:
            self._refusal = refusal
            left, self._open = self._open, {}
        for future in left.values():
            future.set_exception(refusal())
