"""Aligning snapshot barriers."""

from jetfast.kernels.barriers import BarrierAligner


class Align:
    """1000 snapshots over all queues, from Python."""

    params = [1, 16, 256]
    param_names = ["queues"]

    def setup(self, queues: int) -> None:
        self.snapshot = 0
        self.aligner = BarrierAligner(queues, True)

    def time_align(self, queues: int) -> None:
        aligner = self.aligner
        for _ in range(1000):
            for queue in range(queues):
                aligner.observe_barrier(queue, self.snapshot)
            aligner.release()
            self.snapshot += 1
