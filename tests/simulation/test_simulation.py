"""Whole jobs under faults, a seed each: nothing lost, nothing doubled, none stuck; broken protocols are caught."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from jetfast.core.crash_points import CRASH_POINTS
from tests.simulation.campaign import run_quietly, summarize
from tests.simulation.mutations import MUTATIONS, STORE_FAILURES
from tests.simulation.operations import OPERATIONS
from tests.simulation.simulated_run import KINDS, simulate

pytestmark = pytest.mark.simulation
SEEDS = 2_000
SEEDS_PER_TEST = 100
SEEDS_PER_MUTATION = 600
SEEDS_OF_OPERATORS = 150
STORE_FAULTS = ("store refuses", "decision unknown")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_no_row_is_lost_or_doubled_whatever_fails(first: int) -> None:
    result = summarize((simulate(seed), 0.0) for seed in range(first, first + SEEDS_PER_TEST))
    assert result["problems"] == []
    assert (result["lost"], result["duplicated"], result["stuck"]) == (0, 0, 0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS_OF_OPERATORS, 50))
def test_random_pipelines_of_all_operators_lose_and_double_no_row_whatever_fails(first: int) -> None:
    result = summarize(run_quietly(seed, "operators") for seed in range(first, first + 50))
    assert result["problems"] == []


@pytest.mark.parametrize("seed", [2481, 2962])
def test_what_a_user_must_expect_is_no_problem(seed: int) -> None:
    """Repeated rows at a sink that repeats rows; a coordinator of the old pipeline that has yet to claim its job."""
    assert run_quietly(seed, "mixed")[0].problems == []


@pytest.mark.timeout(600)
def test_every_kind_of_fault_and_operation_occurs_in_one_seed_of_a_hundred() -> None:
    result = summarize((simulate(seed), 0.0) for seed in range(10_000, 10_600))
    shares = result["share_of_seeds"]
    assert isinstance(shares, dict)
    assert {
        kind: share
        for kind in (*KINDS, *CRASH_POINTS, *STORE_FAULTS, *OPERATIONS)
        if (share := shares.get(kind, 0)) < 0.01
    } == {}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_protocol_is_caught(name: str) -> None:
    with MUTATIONS[name]():
        assert any(not simulate(seed, STORE_FAILURES.get(name)).good for seed in range(SEEDS_PER_MUTATION))


def test_one_seed_is_one_run_to_the_byte_in_any_process() -> None:
    seeds = range(12)
    program = (
        "from tests.simulation.campaign import run_quietly\n"
        f"for seed in {seeds}: print(run_quietly(seed, 'mixed')[0].digest)"
    )
    digests = [run_quietly(seed, "mixed")[0].digest for seed in seeds]
    assert [run_quietly(seed, "mixed")[0].digest for seed in seeds] == digests
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == digests
