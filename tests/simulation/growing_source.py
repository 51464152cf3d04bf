"""A source whose partitions come while the job runs, in lists that differ by moment and order."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from jetfast.connectors.memory import MemorySource


class GrowingSource(MemorySource):
    """The memory source with these partitions, each of which is there from its time of birth on.

    A list has them in any order, and may lack some that were there before; the last one lacks none.
    """

    def __init__(
        self,
        source: MemorySource,
        births_us: Mapping[str, int],
        now_us: Callable[[], int],
        random: Random,
        interval: Any = "5ms",
    ) -> None:
        super().__init__(
            source.name, source.schema, source.scripts, False, source.batch_rows, source.identity, ends=True
        )
        self.births_us = births_us
        self.now_us = now_us
        self.random = random
        self.discovery_interval = interval
        self.lists = 0

    def partitions_complete(self) -> bool:
        return self.now_us() >= max(self.births_us.values())

    def partitions(self) -> Sequence[str]:
        self.lists += 1
        complete = self.partitions_complete()
        now_us = self.now_us()
        listed = [
            name for name, born_us in self.births_us.items() if born_us <= now_us and (complete or self._is_listed())
        ]
        self.random.shuffle(listed)
        return listed

    def _is_listed(self) -> bool:
        return self.random.random() < 0.7

    def with_columns(self, names: Sequence[str]) -> "GrowingSource":
        whole = MemorySource(
            self.name, self.schema, self.scripts, self.bounded, self.batch_rows, self.identity, self.ends
        )
        return type(self)(whole.with_columns(names), self.births_us, self.now_us, self.random, self.discovery_interval)
