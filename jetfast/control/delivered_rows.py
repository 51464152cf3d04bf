"""Rows that members have handed over to the coordinator, for those who `collect` them."""

import threading

import pyarrow as pa

from jetfast.control.messages import Delivered


class DeliveredRows:
    """What has been delivered so far, of all executions. Any thread."""

    def __init__(self) -> None:
        self._by_vertex: dict[str, list[pa.RecordBatch]] = {}
        self._publications: set[str] = set()
        self._lock = threading.Lock()

    def add(self, message: Delivered) -> None:
        """Take in rows; those of a publication that came before are dropped."""
        with self._lock:
            if message.publication:
                if message.publication in self._publications:
                    return
                self._publications.add(message.publication)
            self._by_vertex.setdefault(message.vertex, []).append(message.rows)

    def of(self, vertex: str) -> list[pa.RecordBatch]:
        """Return the rows of a vertex, in the order in which they came."""
        with self._lock:
            return list(self._by_vertex.get(vertex, ()))
