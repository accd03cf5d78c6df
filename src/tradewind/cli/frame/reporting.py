"""Turns any failure of a program into one line on standard error and an exit code.

Owns the only place that prints errors. A program of this package never shows a traceback, unless
TRADEWIND_DEBUG is set.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_INTERRUPTED, CommandError, explain
from tradewind.cli.frame.output import note, styled
from tradewind.errors import TradewindError
from tradewind.extra_packages import missing_package

DEBUG_VARIABLE: Final = "TRADEWIND_DEBUG"


def report(program: str, error: BaseException) -> int:
    """Prints an error as one line with hints; the exit code."""
    if isinstance(error, BrokenPipeError):
        return _leave_quietly()
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, TradewindError):
        text, hints = explain(error)
        complain(program, text, *hints)
        return error.exit_code if isinstance(error, CommandError) else EXIT_FAILED
    if missing := missing_package(error):
        complain(program, missing)
    elif of_spark := _spark_reason(error):
        complain(program, f"Spark: {of_spark}", f"{DEBUG_VARIABLE}=1 shows where it happened")
    elif isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        complain(program, f"{place}{error.strerror or error}")
    else:
        complain(
            program,
            f"this is a bug in {program}: {type(error).__name__}: {error}",
            f"{DEBUG_VARIABLE}=1 shows where it happened; please report it",
        )
    return EXIT_FAILED


def _spark_reason(error: BaseException) -> str:
    """The cause of an error of Spark or its Java and Python processes; empty for other errors."""
    if "pyspark" not in sys.modules and "py4j" not in sys.modules:
        return ""
    from tradewind.pipelines.sessions.spark_errors import is_of_spark, short_reason

    return short_reason(error) if is_of_spark(error) else ""


def complain(program: str, text: str, *hints: str) -> None:
    """Print an error of a program, and hints such as what to type."""
    sys.stdout.flush()
    # Further lines are indented: none can pass for a message of its own.
    said = text.replace("\n", "\n  ")
    note(f"{program}: {styled('error', 'red', sys.stderr)}: {said}")
    for hint in hints:
        note(f"  {hint}")


def _leave_quietly() -> int:
    """Called when the reader of the output has gone, as `head` does: no error is printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILED
