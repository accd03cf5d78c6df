"""`tradewind`: the entry point of the executable.

Owns the first step, which lets modules be imported with less work. `main` finds and runs the
command.
"""

from __future__ import annotations

import sys

from tradewind.late_modules import Late, import_decoder
from tradewind.quick_imports import import_quickly


def main() -> int:
    """Run the command line; returns the exit code."""
    import_quickly()
    import_decoder()
    with Late():
        from tradewind.cli.main import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
