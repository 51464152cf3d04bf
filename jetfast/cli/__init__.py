"""The command line: `jetfast`, and `python -m jetfast`."""

from jetfast.cli.main import main

__all__ = ["main"]
