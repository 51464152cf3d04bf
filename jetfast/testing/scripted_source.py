"""Live sources that follow a script: what comes when, what falls silent, where it crashes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jetfast.connectors.memory import MemorySource, memory


def scripted(
    partitions: Mapping[str, Sequence[Any]] | Sequence[Any],
    *,
    schema: pa.Schema | None = None,
    name: str = "scripted",
) -> MemorySource:
    """Return a source whose partitions give what their scripts say, one item after the other, and then end.

    Unlike those of `jf.memory` they are taken to be live: nobody knows that they will end, so they may turn idle.

    Parameters
    ----------
    partitions : script of each source partition by name, or one script. A script is a list of tables (or what
        `jf.memory` takes), `silence("60s")`, EMPTY (one empty answer) and CRASH (a lost connection, once)
    schema : columns and types to convert to; needed if there are no rows at all
    """
    scripts = partitions if isinstance(partitions, Mapping) else {"0": partitions}
    source = memory(partitions=scripts, schema=schema, unbounded=True, name=name)
    source.ends = True
    return source
