"""A chain of stateless steps, fused: each batch runs through all functions in turn."""

from collections.abc import Callable, Sequence

from jetfast.core.batch import Batch
from jetfast.core.items import Output
from jetfast.core.processor import Processor


class Transform(Processor):
    """Applies `functions` to each batch, one after the other.

    Parameters
    ----------
    functions : each takes a batch of 1 row or more and gives one of any number of rows; the chain ends early when
    none is left
    """

    def __init__(self, functions: Sequence[Callable[[Batch], Batch]]) -> None:
        self.functions = tuple(functions)

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        for function in self.functions:
            batch = function(batch)
            if batch.row_count == 0:
                return ()
        return (batch,)
