"""Slow twins of the watermark coalescer and the barrier aligner: SEMANTICS 1.5 and 3, word for word."""

from jetfast.types import MIN_TIME, Signal


class SlowCoalescer:
    """SEMANTICS 1.5, word for word."""

    def __init__(self, input_count):
        self.watermarks = [MIN_TIME] * input_count
        self.idle_inputs = set()
        self.done_inputs = set()
        self.last = self.top = MIN_TIME
        self.left = []

    def observe_watermark(self, index, value):
        self.check_live(index)
        if value <= self.watermarks[index]:
            raise ValueError(f"input {index}")
        self.watermarks[index] = value
        self.top = max(self.top, value)
        return self.awake(index)

    def observe_rows(self, index):
        self.check_live(index)
        return self.awake(index)

    observe_active = observe_rows

    def observe_idle(self, index):
        self.check_live(index)
        self.idle_inputs.add(index)
        return self.forward([])

    def observe_done(self, index):
        self.check_live(index)
        self.idle_inputs.discard(index)
        self.done_inputs.add(index)
        return self.forward([])

    def check_live(self, index):
        if index in self.done_inputs:
            raise ValueError(f"input {index}")

    def awake(self, index):
        self.idle_inputs.discard(index)
        return self.forward([Signal.ACTIVE] if self.left[-1:] == [Signal.IDLE] else [])

    def forward(self, forwarded):
        live = [index for index in range(len(self.watermarks)) if index not in self.idle_inputs | self.done_inputs]
        candidate = min((self.watermarks[index] for index in live), default=self.top)
        if candidate > self.last:
            self.last = candidate
            forwarded.append(candidate)
        self.left += forwarded
        if not live and self.idle_inputs and self.left[-1:] != [Signal.IDLE]:
            forwarded.append(Signal.IDLE)
            self.left.append(Signal.IDLE)
        return tuple(forwarded)


class SlowAligner:
    """SEMANTICS 3: who has given the barrier, who is done, who waits."""

    def __init__(self, queue_count, exactly_once):
        self.queues = range(queue_count)
        self.exactly_once = exactly_once
        self.arrived = set()
        self.done = set()
        self.last_id = None
        self.aligning = None
        self.aligned = self.terminal = self.ended = False

    def observe_barrier(self, queue, snapshot_id, terminal=False):
        wrong = (
            queue in self.done
            or queue in self.arrived
            or self.aligned
            or self.ended
            or (self.aligning is not None and (snapshot_id != self.aligning or terminal != self.terminal))
            or (self.aligning is None and self.last_id is not None and snapshot_id != self.last_id + 1)
        )
        if wrong:
            raise ValueError(f"queue {queue}")
        self.aligning = self.last_id = snapshot_id
        self.terminal = terminal
        self.arrived.add(queue)
        return self.settle()

    def observe_done(self, queue):
        if queue in self.done:
            raise ValueError(f"queue {queue}")
        self.done.add(queue)
        return self.settle()

    def settle(self):
        if self.aligning is None or self.aligned or not set(self.queues) <= self.arrived | self.done:
            return False
        self.aligned = True
        return True

    def is_blocked(self, queue):
        if self.ended:
            return True
        return queue in self.arrived - self.done and (self.exactly_once or self.terminal)

    def release(self):
        if not self.aligned:
            raise ValueError("nothing aligned")
        self.aligned = False
        self.aligning = None
        self.arrived = set()
        self.ended = self.terminal
