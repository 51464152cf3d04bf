"""A worker calls its tasklets in turn, sleeps when none has anything to do, and is woken by its neighbours."""

import threading

from jetfast.engine.worker import Assignment, Parker, Worker


class Scripted:
    """A tasklet that answers `call` from a list, then finishes."""

    cooperative = True
    busy_ns = 0

    def __init__(self, name, answers, log):
        self.name = name
        self.answers = list(answers)
        self.log = log
        self.finished = False

    def open(self):
        self.log.append((self.name, "open"))

    def call(self):
        self.log.append((self.name, "call"))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.finished = not self.answers
        return answer

    def close(self, error):
        if (self.name, "close") not in self.log:
            self.log.append((self.name, "close"))


def worker_of(*assignments, stop_reason=lambda: None):
    errors, ended = [], []
    worker = Worker(
        "jetfast-test", assignments, on_error=errors.append, stop_reason=stop_reason, on_end=lambda: ended.append(True)
    )
    return worker, errors, ended


def test_tasklets_take_turns_and_are_closed_when_they_finish():
    log = []
    worker, errors, ended = worker_of(
        Assignment(Scripted("a", [True, True], log)), Assignment(Scripted("b", [True, True, True], log))
    )
    worker.run()
    calls = [name for name, what in log if what == "call"]
    assert calls == ["a", "b", "a", "b", "b"]
    assert log.index(("a", "close")) < len(log) - 2
    assert (errors, ended) == ([], [True])


def test_neighbours_that_sleep_are_woken_when_something_was_done():
    sleeper = Parker()
    sleeper.parked = True
    worker, _, _ = worker_of(Assignment(Scripted("a", [True], []), [sleeper]))
    worker.run()
    assert not sleeper.parked
    sleeper.park(60)  # returns at once


def test_a_worker_that_is_armed_is_woken_although_it_does_not_sleep_yet():
    parker = Parker()
    parker.parked = True
    parker.unpark()
    parker.unpark()
    parker.park(60)
    woken = threading.Event()
    thread = threading.Thread(target=lambda: (parker.park(60), woken.set()))
    thread.start()
    parker.unpark()
    assert woken.wait(10)
    thread.join()


def test_a_worker_looks_once_more_before_it_sleeps():
    log = []

    class Watched(Parker):
        def park(self, seconds):
            log.append(("parker", f"parked {self.parked}"))
            self.parked = False

    worker, _, _ = worker_of(Assignment(Scripted("a", [False, False, True], log)))
    worker.parker = Watched()
    worker.run()
    assert [what for _, what in log] == ["open", "call", "call", "parked True", "call", "close"]


def test_all_tasklets_are_closed_when_one_fails():
    log, failure = [], ValueError("broken")
    worker, errors, ended = worker_of(Assignment(Scripted("a", [failure], log)), Assignment(Scripted("b", [True], log)))
    worker.run()
    assert errors == [failure]
    assert ("b", "close") in log
    assert ended == [True]


def test_a_worker_that_is_stopped_before_it_begins_opens_nothing_and_closes_all():
    log = []
    worker, _, ended = worker_of(Assignment(Scripted("a", [True], log)), stop_reason=lambda: ValueError("cancelled"))
    worker.run()
    assert log == [("a", "close")]
    assert ended == [True]
