"""The price of one handover, one watermark, one barrier."""

import pytest

from jetfast.kernels.barriers import BarrierAligner
from jetfast.kernels.queues import SpscQueue
from jetfast.kernels.watermarks import WatermarkCoalescer


def test_offer_and_poll(benchmark):
    queue = SpscQueue(16)

    def hand_over() -> object:
        queue.offer("item", 100)
        return queue.poll()

    assert benchmark(hand_over) == "item"


@pytest.mark.parametrize("inputs", [1, 16, 1024])
def test_a_watermark_on_every_input(benchmark, inputs):
    coalescer = WatermarkCoalescer(inputs)
    time = iter(range(1 << 62))

    def observe() -> None:
        now = next(time)
        for index in range(inputs):
            coalescer.observe_watermark(index, now)

    benchmark(observe)
    assert coalescer.watermark >= 0


def test_a_barrier_on_16_queues(benchmark):
    aligner = BarrierAligner(16, True)
    snapshots = iter(range(1 << 62))

    def align() -> bool:
        snapshot = next(snapshots)
        aligned = [aligner.observe_barrier(queue, snapshot) for queue in range(16)]
        aligner.release()
        return aligned[-1]

    assert benchmark(align)
