"""Texts that rows are filled with: pools that are made once of a seed, out of which each row takes one."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

POOL_TEXTS = 1024
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS = 10_000

_FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz ", np.uint8)

NAMES = pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
CITIES = pa.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
)
STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])


@lru_cache(maxsize=64)
def make_words(seed: int, column: int, shortest: int, longest: int) -> pa.Array:
    """Return a pool of texts of letters and spaces, of `shortest` to `longest` characters."""
    random = _random(seed, column)
    return pa.array([_word(random, shortest, longest) for _ in range(POOL_TEXTS)])


@lru_cache(maxsize=8)
def make_emails(seed: int, column: int) -> pa.Array:
    """Return a pool of addresses."""
    random = _random(seed, column)
    return _pool(lambda: f"{_word(random, 3, 7, 26)}@{_word(random, 3, 5, 26)}.com")


@lru_cache(maxsize=8)
def make_credit_cards(seed: int, column: int) -> pa.Array:
    """Return a pool of four times four digits."""
    random = _random(seed, column)
    return _pool(lambda: " ".join(f"{part:04d}" for part in random.integers(0, 10_000, 4)))


@lru_cache(maxsize=1)
def make_channels() -> pa.Array:
    """Return the four hot channels, and after them the others."""
    return pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(OTHER_CHANNELS))])


@lru_cache(maxsize=8)
def make_urls(seed: int, column: int) -> pa.Array:
    """Return the address that belongs to each of `make_channels`; those of hot channels do not name their channel."""
    random = _random(seed, column)
    urls = []
    for number in range(-len(HOT_CHANNELS), OTHER_CHANNELS):
        folders = "/".join(_word(random, 3, 5, 26) for _ in range(3))
        channel = "" if number < 0 else f"&channel_id={number * 2_654_435_761 % (1 << 31)}"
        urls.append(f"https://www.nexmark.com/{folders}/item.htm?query=1{channel}")
    return pa.array(urls)


def _pool(make: Callable[[], str]) -> pa.Array:
    texts: Sequence[str] = [make() for _ in range(POOL_TEXTS)]
    return pa.array(texts)


def _random(seed: int, column: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, column])))


def _word(random: np.random.Generator, shortest: int, longest: int, letters: int = len(_LETTERS)) -> str:
    return _LETTERS[random.integers(0, letters, random.integers(shortest, longest + 1))].tobytes().decode()
