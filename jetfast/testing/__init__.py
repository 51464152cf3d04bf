"""What tests of users' own pipelines, processors, sources and sinks need."""

from jetfast.connectors.memory import CRASH, EMPTY, silence
from jetfast.testing.acknowledging_queue import AcknowledgingQueue
from jetfast.testing.golden import check_golden
from jetfast.testing.kill_member import kill_member
from jetfast.testing.outside_system import Faults
from jetfast.testing.scripted_source import scripted
from jetfast.testing.stored_rows import StoredRows
from jetfast.testing.transactional_memory import TransactionalMemory
from jetfast.testing.verify_processor import OnEdge, OnPort, verify_processor
from jetfast.testing.verify_sink import verify_sink
from jetfast.testing.virtual_clock import VirtualClock

__all__ = [
    "CRASH",
    "EMPTY",
    "AcknowledgingQueue",
    "Faults",
    "OnEdge",
    "OnPort",
    "StoredRows",
    "TransactionalMemory",
    "VirtualClock",
    "check_golden",
    "kill_member",
    "scripted",
    "silence",
    "verify_processor",
    "verify_sink",
]
