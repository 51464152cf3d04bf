"""What tests of users' own processors, sources and sinks need."""

from jetfast.testing.verify_processor import OnEdge, OnPort, verify_processor

__all__ = ["OnEdge", "OnPort", "verify_processor"]
