"""The entry point of the command line."""

import sys

from jetfast.cli.exit_status import FAILED, INTERRUPTED
from jetfast.cli.interrupts import interruptible


def main() -> None:
    """Run the command that `sys.argv` names, and exit with its status."""
    with interruptible():
        _main()


def _main() -> None:
    try:
        from jetfast.cli.application import app
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (ImportError, ValueError) as error:  # kernels that were not built, a wrong JETFAST_SIMD
        sys.stderr.write(f"jetfast: it cannot be loaded: {error}; unless that says more, install it again\n")
        sys.exit(FAILED)
    app(prog_name="jetfast")
