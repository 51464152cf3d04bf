"""Functions that Arrow lacks, registered with Arrow under names that hold their types, once per process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ArrayFunction = Callable[..., pa.Array]
"""Takes arrays of equal length and returns one of that length. Raises pyarrow.ArrowInvalid if a row fails."""


def registered(name: str, function: ArrayFunction, inputs: Sequence[pa.DataType], output: pa.DataType) -> str:
    """Register a function for these types, unless it is registered already, and return the name that Arrow calls."""
    full_name = f"jetfast_{name}({', '.join(map(str, inputs))}) -> {output}"
    try:
        pc.get_function(full_name)
        return full_name
    except KeyError:
        pass

    def call(context: Any, *arguments: Any) -> Any:
        # Arrow evaluates calls over nothing but literals once, as scalars.
        if not any(isinstance(argument, pa.Array) for argument in arguments):
            return function(*(pa.repeat(argument, 1) for argument in arguments))[0]
        return function(
            *(
                argument if isinstance(argument, pa.Array) else pa.repeat(argument, context.batch_length)
                for argument in arguments
            )
        )

    document = {"summary": name, "description": f"{name} as jetfast's expressions define it"}
    types = {f"argument{index}": data_type for index, data_type in enumerate(inputs)}
    with contextlib.suppress(KeyError):  # another thread was faster
        pc.register_scalar_function(call, full_name, document, types, output)
    return full_name


def float_remainder(dividends: pa.Array, divisors: pa.Array) -> pa.Array:
    """Return C's fmod, which is exact and has the sign of the dividend; a divisor of 0 is an error."""
    import numpy as np

    valid = valid_rows(dividends) & valid_rows(divisors)
    divisor_values = divisors.to_numpy(zero_copy_only=False)
    if np.any(valid & (divisor_values == 0)):
        raise pa.ArrowInvalid("divide by zero")
    with np.errstate(invalid="ignore"):
        results = np.fmod(dividends.to_numpy(zero_copy_only=False), divisor_values)
    return pa.array(results, pa.float64(), mask=~valid)


def valid_rows(array: pa.Array) -> Any:
    """Return which rows are not null, bool, shape (rows,)."""
    import numpy as np

    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    return array.is_valid().to_numpy(zero_copy_only=False)


def null_where_it_fails(function: ArrayFunction, output: pa.DataType) -> ArrayFunction:
    """Return a function that gives null in the rows in which `function` fails: it finds them by halving."""

    def evaluate(*arguments: pa.Array) -> pa.Array:
        try:
            return function(*arguments)
        except (pa.ArrowException, OverflowError):
            row_count = len(arguments[0])
            if row_count == 1:
                return pa.nulls(1, output)
        middle = row_count // 2
        halves = ((0, middle), (middle, row_count - middle))
        return pa.concat_arrays([evaluate(*(a.slice(start, count) for a in arguments)) for start, count in halves])

    return evaluate
