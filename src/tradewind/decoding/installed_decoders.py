"""Decoders that installed packages offer, by their names.

Owns the group of entry points. It imports no decoder and no library of columns.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

GROUP: Final = "tradewind.decoders"


def installed_decoders() -> dict[str, str]:
    """The decoders that installed packages offer: `module:function` of each name."""
    return {point.name: point.value for point in entry_points(group=GROUP)}
