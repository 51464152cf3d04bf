"""CRC-32C: golden values of RFC 3720, and a slow twin of one bit at a time, with the instruction and without."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.checksums import crc32c

GOLDEN = {
    b"": 0,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    bytes([0xFF] * 32): 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(reversed(range(32))): 0x113FDB5C,
}
MANY = np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8).tobytes()


def crc32c_of_bits(data: bytes, crc: int = 0) -> int:
    """Return the CRC-32C, by polynomial division."""
    state = ~crc & 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return ~state & 0xFFFFFFFF


@pytest.mark.parametrize("data", GOLDEN, ids=range(len(GOLDEN)))
def test_checksums_have_golden_values(data: bytes) -> None:
    assert crc32c(data) == crc32c_of_bits(data) == GOLDEN[data]


@settings(deadline=None, max_examples=40)
@given(
    count=st.sampled_from([1, 7, 8, 9, 767, 768, 769, 2000, 24_575, 24_576, 24_577, 60_000]),
    first=st.integers(0, 9),
    crc=st.integers(0, 2**32 - 1),
)
def test_a_checksum_of_parts_is_that_of_the_whole_however_it_is_cut(count: int, first: int, crc: int) -> None:
    data = memoryview(MANY)[first : first + count]
    whole = crc32c(data, crc)
    assert whole == crc32c(data[count // 3 :], crc32c(data[: count // 3], crc))
    by_byte = crc
    for start in range(0, count, 5):  # too short for more than a byte at a time
        by_byte = crc32c(data[start : start + 5], by_byte)
    assert whole == by_byte


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=100), st.integers(0, 2**32 - 1))
def test_checksums_equal_the_slow_twin(data: bytes, crc: int) -> None:
    assert crc32c(data, crc) == crc32c_of_bits(data, crc)


def test_machines_without_the_instruction_find_the_same_checksums() -> None:
    program = (
        "import numpy as np; from jetfast.kernels.checksums import crc32c\n"
        "data = np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8).tobytes()\n"
        "print(crc32c(data), crc32c(data[3:70_001], 5))"
    )
    environment = {**os.environ, "JETFAST_SIMD": "plain"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(crc32c(MANY)), str(crc32c(MANY[3:70_001], 5))]


def test_what_has_no_buffer_or_more_than_one_is_refused() -> None:
    with pytest.raises(TypeError):
        crc32c("text")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        crc32c(memoryview(MANY)[::2])
