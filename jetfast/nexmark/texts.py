"""Texts that rows are filled with: pools that are made once of a seed, out of which each row takes one."""

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
    return pa.array(_words(_random(seed, column), POOL_TEXTS, shortest, longest, len(_LETTERS)))


@lru_cache(maxsize=8)
def make_emails(seed: int, column: int) -> pa.Array:
    """Return a pool of addresses."""
    random = _random(seed, column)
    names, hosts = (_words(random, POOL_TEXTS, 3, longest) for longest in (7, 5))
    return pa.array([f"{name}@{host}.com" for name, host in zip(names, hosts, strict=True)])


@lru_cache(maxsize=8)
def make_credit_cards(seed: int, column: int) -> pa.Array:
    """Return a pool of four times four digits."""
    parts = _random(seed, column).integers(0, 10_000, (POOL_TEXTS, 4)).tolist()
    return pa.array([" ".join(f"{part:04d}" for part in card) for card in parts])


@lru_cache(maxsize=1)
def make_channels() -> pa.Array:
    """Return the four hot channels, and after them the others."""
    return pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(OTHER_CHANNELS))])


@lru_cache(maxsize=8)
def make_urls(seed: int, column: int) -> pa.Array:
    """Return the address that belongs to each of `make_channels`; those of hot channels do not name their channel."""
    random = _random(seed, column)
    folders = zip(*(_words(random, len(HOT_CHANNELS) + OTHER_CHANNELS, 3, 5) for _ in range(3)), strict=True)
    urls = []
    for number, path in enumerate(folders, start=-len(HOT_CHANNELS)):
        channel = "" if number < 0 else f"&channel_id={number * 2_654_435_761 % (1 << 31)}"
        urls.append(f"https://www.nexmark.com/{'/'.join(path)}/item.htm?query=1{channel}")
    return pa.array(urls)


def _random(seed: int, column: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, column])))


def _words(random: np.random.Generator, count: int, shortest: int, longest: int, letters: int = 26) -> list[str]:
    """Return `count` texts of the first `letters` of the letters."""
    ends = np.cumsum(random.integers(shortest, longest + 1, count)).tolist()
    text = _LETTERS[random.integers(0, letters, ends[-1])].tobytes().decode()
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
