"""Types of sessions.pyx: session windows by key (SEMANTICS: sessions)."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from jetfast.kernels.windows import ResultTable

class SessionTable(ResultTable):
    """Aggregates per key and session; window_start is the first time, window_end the last one + timeout.

    aggregates: (result name, kind as in AggregateKind.value, input column or None)
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[tuple[str, str, str | None]],
        timeout_us: int,
        partition_count: int = 271,
        partitions: Iterable[int] | None = None,  # owned (None: all): `bounds` has one for each
    ) -> None: ...
    def advance(self, watermark: int) -> bool: ...  # every session with end < watermark becomes due; is there any?
    def memory(self) -> dict[str, int]: ...  # keys, sessions, key_bytes, session_bytes, bytes_per_key, ...
