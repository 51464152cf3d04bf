"""Keys that have most rows of a batch, or come in runs, go other ways into frames: windows hold what they should."""

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from jetfast.kernels.columns import Batch
from jetfast.kernels.windows import WindowTable
from jetfast.types import MAX_TIME

ROWS = 3000
SLIDE_US = 700
SIZE_US = 3 * SLIDE_US
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("f", pa.float64()), ("i", pa.int64())])
KINDS = ("count_values", "sum", "min", "max", "var_pop")
AGGREGATES: list[tuple[str, str, str | None]] = [("rows", "count", None)]
AGGREGATES += [(f"{column}_{kind}", kind, column) for column in ("f", "i") for kind in KINDS]

Window = tuple[int, int]
"""Key and end."""


def make_keys(pattern: str, random: np.random.Generator) -> npt.NDArray[np.int64]:
    places = np.arange(ROWS, dtype=np.int64)
    match pattern:
        case "one":
            return places * 0
        case "two by turns":
            return places % 2
        case "skewed":
            return np.minimum(random.zipf(1.6, ROWS), 500).astype(np.int64)
        case "in runs":
            return places // 40 * 13 % 60
        case _:
            return random.integers(0, 300, ROWS)


def make_batches(pattern: str, with_nulls: bool) -> list[pa.RecordBatch]:
    """Three batches in disorder; each has keys that those before did not have. Sums are exact in any order."""
    random = np.random.default_rng(7)
    batches = []
    for number in range(3):
        mask = random.random(ROWS) < 0.12 if with_nulls else None
        numbers = random.integers(-500, 500, ROWS)
        columns = [
            pa.array(make_keys(pattern, random) + number * 5),
            pa.array(random.permutation(ROWS) + number * ROWS).cast(pa.timestamp("us")),
            pa.array(numbers / 64, mask=mask),
            pa.array(numbers[::-1].copy()),
        ]
        batches.append(pa.record_batch(columns, schema=SCHEMA))
    return batches


def expected(batches: list[pa.RecordBatch]) -> dict[Window, list[float | None]]:
    rows: dict[Window, list[tuple[float | None, int]]] = defaultdict(list)
    for batch in batches:
        columns = (batch["k"], batch["t"].cast(pa.int64()), batch["f"], batch["i"])
        for key, time, real, integer in zip(*(column.to_pylist() for column in columns), strict=True):
            for end in range(time // SLIDE_US * SLIDE_US + SLIDE_US, time + SIZE_US + 1, SLIDE_US):
                rows[key, end].append((real, integer))
    results: dict[Window, list[float | None]] = {}
    for window, pairs in rows.items():
        row: list[float | None] = [len(pairs)]
        for column in zip(*pairs, strict=True):
            values = np.array([value for value in column if value is not None])
            some = [values.sum(), values.min(), values.max(), values.var()] if len(values) else [None] * 4
            row += [len(values), *some]
        results[window] = row
    return results


def found(batches: list[pa.RecordBatch]) -> dict[Window, list[float | None]]:
    table = WindowTable(SCHEMA, ["k"], "t", AGGREGATES, SIZE_US, SLIDE_US)
    for batch in batches:
        table.accumulate(Batch.from_arrow(batch))
    table.advance(MAX_TIME)
    results: dict[Window, list[float | None]] = {}
    while (result := table.emit()) is not None:
        arrow = result.to_arrow()
        ends = arrow["window_end"].cast(pa.int64()).to_pylist()
        columns = [arrow[name].to_pylist() for name, _, _ in AGGREGATES]
        for key, end, *row in zip(arrow["k"].to_pylist(), ends, *columns, strict=True):
            assert (key, end) not in results
            results[key, end] = row
    return results


@pytest.mark.parametrize("pattern", ["one", "two by turns", "skewed", "in runs", "uniform"])
@pytest.mark.parametrize("with_nulls", [False, True], ids=["values", "nulls"])
def test_rows_of_one_key_close_to_each_other_count_as_others_do(pattern: str, with_nulls: bool) -> None:
    batches = make_batches(pattern, with_nulls)
    results, wanted = found(batches), expected(batches)
    assert set(results) == set(wanted)
    names = [name for name, _, _ in AGGREGATES]
    for window, row in wanted.items():
        for name, value, want in zip(names, results[window], row, strict=True):
            if name.endswith("var_pop") and want is not None:
                assert value == pytest.approx(want, rel=1e-9, abs=1e-9), (window, name)
            else:
                assert value == want, (window, name)
