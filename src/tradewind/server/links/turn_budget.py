"""Environment variables that set the time budget of event loop turns.

Owns two variables, for tests and for finding slow turns: `TRADEWIND_TURN_BUDGET_MS` replaces the
default budget, and with `TRADEWIND_STRICT_TURNS=1` the first turn above the budget ends the
process, so that no test that caused one passes. `broker/turn_watch.pyx` defines what a turn is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from tradewind.durations import MILLISECOND_NS
from tradewind.errors import ConfigError

if TYPE_CHECKING:
    from tradewind.broker.contracts import BrokerLog
    from tradewind.broker.turn_watch import TurnWatch

BUDGET_VARIABLE: Final = "TRADEWIND_TURN_BUDGET_MS"
STRICT_VARIABLE: Final = "TRADEWIND_STRICT_TURNS"
BUDGET_MS_MAX: Final = 3_600_000
# sysexits.h: an internal software error.
EXIT_STRICT: Final = 70


def set_turn_budget(
    watch: TurnWatch,
    log: BrokerLog,
    environ: Mapping[str, str] = os.environ,
    end: Callable[[int], object] = os._exit,
) -> None:
    """Apply the variables; ConfigError if a value is not valid."""
    text = environ.get(BUDGET_VARIABLE, "")
    if text:
        if not (text.isascii() and text.isdigit()) or not 0 < int(text[:9]) <= BUDGET_MS_MAX:
            raise ConfigError(
                f"{BUDGET_VARIABLE} must be a number of milliseconds from 1 to {BUDGET_MS_MAX},"
                f" not {text[:32]!r}"
            )
        watch.budget_ns = int(text) * MILLISECOND_NS
    if environ.get(STRICT_VARIABLE) == "1":
        watch.on_excess = partial(_end, log, end)


def _end(log: BrokerLog, end: Callable[[int], object], text: str) -> None:
    log.error(f"{STRICT_VARIABLE} is set: {text}")
    end(EXIT_STRICT)
