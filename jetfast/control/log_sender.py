"""What is logged in a member's process goes to the process that submitted the job, which logs it as its own.

For members whose standard error ends elsewhere, such as in the log of an executor.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator

from jetfast.control.messages import NO_EXECUTION, Logged
from jetfast.errors import TransportError

RECORDS_MAX = 1000
"""That wait to be sent; more than that are counted only."""
TEXT_MAX = 16_000
"""Characters of a record, its traceback included, that are sent."""
END_WAIT_S = 1.0

_PASSED_ON = "jetfast_member"


class LogSender(logging.Handler):
    """Sends records; never makes whoever logs wait."""

    def __init__(self, member: int, send: Callable[[Logged], None]) -> None:
        super().__init__()
        self._member = member
        self._send = send
        self._waiting: queue.Queue[Logged | None] = queue.Queue(RECORDS_MAX)
        self._dropped = 0
        self._thread = threading.Thread(target=self._send_all, name="jetfast-member-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record, unless too many wait."""
        if hasattr(record, _PASSED_ON):  # of another member, where coordinator and members are one process
            return
        try:
            self._take(record.name, record.levelno, self.format(record))
        except queue.Full:
            self._dropped += 1
        except Exception:
            self.handleError(record)

    def end(self) -> None:
        """Send what waits, if it does not take long."""
        with contextlib.suppress(queue.Full):
            if self._dropped:
                self._take(__name__, logging.WARNING, f"{self._dropped} records were not sent: too many at once")
            self._waiting.put_nowait(None)
        self._thread.join(END_WAIT_S)

    def _take(self, name: str, level: int, text: str) -> None:
        said = Logged(execution_id=NO_EXECUTION, member=self._member, logger=name, level=level, text=text[:TEXT_MAX])
        self._waiting.put_nowait(said)

    def _send_all(self) -> None:
        with contextlib.suppress(TransportError):  # whoever read them has gone
            while (record := self._waiting.get()) is not None:
                self._send(record)


@contextlib.contextmanager
def sending_logs(member: int, level: int, send: Callable[[Logged], None]) -> Iterator[None]:
    """Send what this process logs meanwhile, warnings of the module `warnings` included.

    `level` is that of jetfast's own loggers; others keep theirs.
    """
    sender = LogSender(member, send)
    root, own = logging.getLogger(), logging.getLogger("jetfast")
    level_before = own.level
    own.setLevel(level)
    root.addHandler(sender)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(sender)
        own.setLevel(level_before)
        sender.end()


def log_as_own(said: Logged) -> None:
    """Log here what a member has sent."""
    logger = logging.getLogger(said.logger)
    logger.log(said.level, "member %d: %s", said.member, said.text, extra={_PASSED_ON: said.member})
