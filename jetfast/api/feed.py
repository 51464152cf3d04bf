"""Where the rows of a step come from in the graph that is being planned."""

from typing import NamedTuple

import pyarrow as pa


class Feed(NamedTuple):
    """Where rows come from in the graph: a port of a vertex, and their schema there."""

    vertex: str
    port: int
    schema: pa.Schema
