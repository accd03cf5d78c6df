"""`tradewind-server`: the entry point of the process.

Owns the first step, installing signal handlers. Everything else is imported afterwards, so that a
start can be interrupted at any moment without a traceback. `command` runs the command line.
"""

from __future__ import annotations

# Not `signal`, which takes milliseconds to import: until it is imported, Ctrl-C must end the
# process as it ends any other, and not with Python's traceback.
import _signal  # type: ignore[import-not-found]
import gc
import sys

_signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> int:
    """Run the program; returns its exit code."""
    # A start creates objects and drops few; `garbage` continues from there.
    gc.disable()
    from tradewind.quick_imports import import_quickly

    import_quickly()
    from tradewind.server.lifecycle.process_signals import ProcessSignals

    signals = ProcessSignals()
    signals.catch()
    from tradewind.late_modules import import_decoder

    import_decoder()
    from tradewind.server.lifecycle.command import run_command

    return run_command(sys.argv[1:], signals)


if __name__ == "__main__":
    sys.exit(main())
