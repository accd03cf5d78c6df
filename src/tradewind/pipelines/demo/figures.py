"""The figures of the demo: revenue by region and minute, from the bucket.

Owns watching the bucket, in its own thread, and the sums. The figures have passed through the whole
system: published, stored, processed by Spark, and written to the bucket.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.errors import ClientError

if TYPE_CHECKING:
    from tradewind.sync import Connection

BUCKET: Final = "REVENUE"


class Figure(msgspec.Struct):
    """The value of one key."""

    minute: str
    region: str
    revenue: Decimal
    orders: int


@dataclass(frozen=True)
class DemoTotals:
    """All figures together."""

    revenue: Decimal
    orders: int
    minutes: int


class DemoFigures:
    """The latest figure of each region and minute."""

    def __init__(self, connection: Connection) -> None:
        self._lock = threading.Lock()
        self._figures: dict[tuple[str, str], Figure] = {}
        self._watcher: Any = connection.jetstream().kv.open(BUCKET).watch(ignore_deletes=True)
        self._thread = threading.Thread(target=self._follow, name="figures", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with suppress(ClientError):
            for entry in self._watcher:
                self.take(entry.value)

    def take(self, value: bytes) -> None:
        """A figure as the bucket has it; what is none is passed over."""
        with suppress(msgspec.DecodeError):
            figure = msgspec.json.decode(value, type=Figure, strict=False)
            with self._lock:
                self._figures[figure.region, figure.minute] = figure

    def stop(self) -> None:
        """End the watch."""
        with suppress(ClientError):
            self._watcher.stop()
        self._thread.join()

    def minutes(self) -> list[str]:
        """All minutes that have a figure, in order."""
        with self._lock:
            return sorted({minute for _, minute in self._figures})

    def of_minute(self, minute: str) -> dict[str, Figure]:
        """The figures of one minute by region."""
        with self._lock:
            return {
                region: figure
                for (region, one), figure in sorted(self._figures.items())
                if one == minute
            }

    def curve(self, region: str, minutes: list[str]) -> list[float]:
        """The revenue of a region over some minutes."""
        with self._lock:
            found = [self._figures.get((region, minute)) for minute in minutes]
        return [float(figure.revenue) if figure else 0.0 for figure in found]

    def totals(self) -> DemoTotals:
        """The sums over everything."""
        with self._lock:
            figures = list(self._figures.values())
        return DemoTotals(
            sum((figure.revenue for figure in figures), Decimal(0)),
            sum(figure.orders for figure in figures),
            len({figure.minute for figure in figures}),
        )
