"""How much of what is random a run of the tests does: a few of each kind, or all of it.

`make thorough` sets TRADEWIND_THOROUGH=1. Cases that once found a defect belong to both runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

IS_THOROUGH = os.environ.get("TRADEWIND_THOROUGH") == "1"


def some_of(everything: Iterable[T], few: Iterable[T]) -> list[T]:
    """All of them in a thorough run, otherwise these few, which are among them."""
    everything, few = list(everything), list(few)
    assert all(one in everything for one in few), few
    return everything if IS_THOROUGH else few


def some(default: int, thorough: int) -> int:
    """How many of them to do."""
    assert 0 < default <= thorough
    return thorough if IS_THOROUGH else default
