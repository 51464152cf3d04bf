"""jetfast: a stream engine for Python and Spark."""

__version__ = "0.1.0"
