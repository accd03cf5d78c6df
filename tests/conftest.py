"""How many random cases the hypothesis tests run: few and always the same, or many and new ones.

That compiled code looks at its invariants, here and in every server that a test starts. And what is
printed at the end: what kills have done, if TRADEWIND_SINK_KILLS says how many to do.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

import kill_table

# Before anything compiled is loaded: it is looked at once. TRADEWIND_INVARIANTS=0 switches it off.
os.environ.setdefault("TRADEWIND_INVARIANTS", "1")

# The same cases in every run, so that a red build means a change and not bad luck.
settings.register_profile(
    "default", derandomize=True, database=None, deadline=None, max_examples=300
)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=6000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("thorough" if os.environ.get("TRADEWIND_THOROUGH") == "1" else "default")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of `make crash-spark`."""
    if "TRADEWIND_SINK_KILLS" in os.environ:
        for line in kill_table.lines():
            terminalreporter.write_line(line)
