"""What a member logs reaches the submitter under the member's name, and nobody waits for it."""

import logging
import threading
import warnings

import pytest

from jetfast.control.log_sender import RECORDS_MAX, LogSender, log_as_own, sending_logs
from jetfast.control.messages import Logged
from jetfast.errors import TransportError


def test_records_of_this_process_are_sent_and_warnings_too() -> None:
    sent: list[Logged] = []
    level_before = logging.getLogger("jetfast").level
    with sending_logs(3, logging.INFO, sent.append):
        logging.getLogger("jetfast.member").info("began")
        logging.getLogger("jetfast.member").debug("not asked for")
        logging.getLogger("users").warning("saw %d", 5)
        try:
            raise ValueError("boom")
        except ValueError:
            logging.getLogger("users").exception("failed")
        warnings.warn("slow", UserWarning, stacklevel=1)
    logging.getLogger("users").warning("after the end")
    assert [(said.member, said.logger, said.level, said.text.splitlines()[0]) for said in sent[:3]] == [
        (3, "jetfast.member", logging.INFO, "began"),
        (3, "users", logging.WARNING, "saw 5"),
        (3, "users", logging.ERROR, "failed"),
    ]
    assert "ValueError: boom" in sent[2].text
    assert [said.logger for said in sent[3:]] == ["py.warnings"]
    assert logging.getLogger("jetfast").level == level_before


def test_whoever_logs_never_waits_and_is_told_what_was_dropped() -> None:
    sent: list[Logged] = []
    goes_on = threading.Event()

    def slow_send(said: Logged) -> None:
        goes_on.wait(60)
        sent.append(said)

    sender = LogSender(0, slow_send)
    count = RECORDS_MAX + 20
    for number in range(count):
        sender.emit(logging.LogRecord("users", logging.WARNING, "", 0, str(number), None, None))
    goes_on.set()
    while len(sent) < RECORDS_MAX:
        threading.Event().wait(0.001)
    sender.end()
    assert len(sent) in (RECORDS_MAX + 1, RECORDS_MAX + 2)  # one may have been under way
    assert sent[-1].text == f"{count + 1 - len(sent)} records were not sent: too many at once"


def test_a_connection_that_is_gone_harms_nobody() -> None:
    def lost(said: Logged) -> None:
        raise TransportError("gone")

    with sending_logs(0, logging.WARNING, lost):
        for _ in range(3):
            logging.getLogger("users").warning("is there anybody")


def test_records_of_members_are_logged_with_their_names_and_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Logged] = []
    with sending_logs(1, logging.WARNING, sent.append):
        log_as_own(Logged(execution_id=0, member=4, logger="users", level=logging.WARNING, text="100 %d"))
    assert caplog.messages == ["member 4: 100 %d"]
    assert sent == []
