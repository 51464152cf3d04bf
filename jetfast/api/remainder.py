"""The exact remainder of floats as a function of Arrow, which has none."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

REMAINDER_FUNCTION = "jetfast_remainder"


def register_remainder() -> None:
    """Make the exact remainder of floats known to Arrow, which has none; once per process."""
    if REMAINDER_FUNCTION in pc.list_functions():
        return
    import numpy as np

    def remainder(context: object, dividend: Any, divisor: Any) -> Any:
        dividends = np.asarray(
            dividend.to_numpy(zero_copy_only=False) if isinstance(dividend, pa.Array) else dividend.as_py(), float
        )
        divisors = np.asarray(
            divisor.to_numpy(zero_copy_only=False) if isinstance(divisor, pa.Array) else divisor.as_py(), float
        )
        valid = np.broadcast_to(
            validity(dividend) & validity(divisor), np.broadcast_shapes(dividends.shape, divisors.shape)
        )
        if np.any(valid & (divisors == 0)):
            raise pa.ArrowInvalid("divide by zero")
        with np.errstate(invalid="ignore"):
            results = np.fmod(dividends, divisors)
        if results.ndim == 0:
            return pa.scalar(float(results) if valid else None, pa.float64())
        return pa.array(results, pa.float64(), mask=~valid)

    def validity(value: Any) -> Any:
        return (
            value.is_valid().to_numpy(zero_copy_only=False)
            if isinstance(value, pa.Array)
            else np.asarray(value.is_valid)
        )

    document = {
        "summary": "remainder with the sign of the dividend",
        "description": "C's fmod; a divisor of 0 is an error",
    }
    types = {"dividend": pa.float64(), "divisor": pa.float64()}
    try:
        pc.register_scalar_function(remainder, REMAINDER_FUNCTION, document, types, pa.float64())
    except KeyError:
        return  # another thread was faster
