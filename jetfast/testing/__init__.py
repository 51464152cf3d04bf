"""What tests of users' own processors, sources and sinks need."""

from jetfast.connectors.memory import CRASH, EMPTY
from jetfast.testing.verify_processor import OnEdge, OnPort, verify_processor

__all__ = ["CRASH", "EMPTY", "OnEdge", "OnPort", "verify_processor"]
