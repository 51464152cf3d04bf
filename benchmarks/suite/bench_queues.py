"""Handing items from one tasklet to the next."""

from jetfast.kernels.queues import MemoryBudget, SpscQueue


class HandOver:
    """100,000 items offered and polled on one thread, from Python, in runs of 8."""

    params = [False, True]
    param_names = ["memory limit"]

    def setup(self, limited: bool) -> None:
        self.queue = SpscQueue(16, MemoryBudget(1 << 30) if limited else None)

    def time_offer_and_poll(self, limited: bool) -> None:
        offer, poll = self.queue.offer, self.queue.poll
        for _ in range(12_500):
            for _ in range(8):
                offer("item", 200_000)
            for _ in range(8):
                poll()
