"""CPU time in kernels and around them."""

import threading

import pytest

from jetfast.core.batch import Batch
from jetfast.kernels.clocks import CpuSampler
from jetfast.kernels.event_times import reached_times
from tests.kernels.test_event_times import batch_of, pa


def busy(batch: Batch) -> None:
    for _ in range(300):
        reached_times([batch], 1, 65_536, 0, 1_000_000, 0)


def test_kernels_are_part_of_the_time_of_their_thread_and_only_while_it_is_sampled() -> None:
    batch = batch_of(list(range(20_000)), pa.timestamp("us"))
    sampler = CpuSampler()
    busy(batch)
    assert (sampler.cpu_ns, sampler.kernel_ns) == (0, 0)
    sampler.begin()
    busy(batch)
    sampler.end()
    first = (sampler.cpu_ns, sampler.kernel_ns)
    assert 0 < first[1] <= first[0]
    busy(batch)
    assert (sampler.cpu_ns, sampler.kernel_ns) == first
    sampler.begin()
    sum(range(50_000))
    sampler.end()
    assert sampler.cpu_ns > first[0]
    assert sampler.kernel_ns == first[1]


def test_other_threads_are_not_counted() -> None:
    batch = batch_of(list(range(20_000)), pa.timestamp("us"))
    sampler = CpuSampler()
    sampler.begin()
    other = threading.Thread(target=busy, args=(batch,))
    other.start()
    other.join()
    sampler.end()
    assert sampler.kernel_ns == 0


def test_a_sample_ends_after_it_began() -> None:
    with pytest.raises(ValueError, match="needs a begin"):
        CpuSampler().end()
