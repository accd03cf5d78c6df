"""The output of a benchmark: lines for people, JSON and CSV for programs.

Owns the figures derived from the counts of the clients. It never measures anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tradewind.cli.bench.bench_run import Share
from tradewind.cli.frame.histogram import Histogram
from tradewind.cli.frame.text_formats import short_duration, size_text

CSV_HEADER: Final = "#RunID,ClientID,MsgCount,MsgBytes,MsgsPerSec,BytesPerSec,DurationSecs"


@dataclass(frozen=True, slots=True)
class Rate:
    """How many messages, and bytes in them, were done in some time."""

    messages: int
    bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes of payload per second."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        each_ns = round(1e9 / self.per_second) if self.per_second else 0
        return (
            f"{self.per_second:,.0f} msgs/sec ~ {size_text(round(self.bytes_per_second))}/sec "
            f"~ {short_duration(each_ns)}"
        )


class BenchReport:
    """The result of a run: all clients together, and each of them."""

    def __init__(self, title: str, shares: Sequence[Share]) -> None:
        self.title = title
        self._shares = [share for share in shares if share.started_ns]
        self.clients = [
            Rate(share.done_count, share.done_bytes, share.seconds) for share in self._shares
        ]
        began = min((share.started_ns for share in self._shares), default=0)
        ended = max((share.ended_ns for share in self._shares), default=0)
        messages = sum(share.done_count for share in self._shares)
        size = sum(share.done_bytes for share in self._shares)
        self.total = Rate(messages, size, (ended - began) / 1e9)
        self.latency = Histogram()
        for share in self._shares:
            self.latency.merge(share.latency)

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield f"NATS {self.title} stats: {self.total}"
        if len(self.clients) > 1:
            yield ""
            for number, rate in enumerate(self.clients, 1):
                yield f" [{number}] {rate} ({rate.messages:,} msgs)"
            rates = [rate.per_second for rate in self.clients]
            yield ""
            yield (
                f" message rates min {min(rates):,.0f} | avg {statistics.fmean(rates):,.0f} | "
                f"max {max(rates):,.0f} | stddev {statistics.pstdev(rates):,.0f} msgs"
            )
        if self.latency.count:
            yield ""
            yield from self.latency.lines()

    def as_dict(self) -> dict[str, Any]:
        """The report for machines."""
        document: dict[str, Any] = {"benchmark": self.title, **_figures(self.total)}
        document["clients"] = [_figures(rate) for rate in self.clients]
        if self.latency.count:
            document["latency"] = self.latency.as_dict()
        return document

    def csv(self, run: str) -> str:
        """The report as a table of one line per client."""
        rows = [
            f"{run},{number},{rate.messages},{rate.bytes},"
            f"{rate.per_second:.0f},{rate.bytes_per_second:.0f},{rate.seconds:f}"
            for number, rate in enumerate(self.clients)
        ]
        return "\n".join([CSV_HEADER, *rows, ""])


def _figures(rate: Rate) -> dict[str, Any]:
    return {
        "messages": rate.messages,
        "bytes": rate.bytes,
        "seconds": round(rate.seconds, 6),
        "messages_per_second": round(rate.per_second, 1),
        "bytes_per_second": round(rate.bytes_per_second, 1),
    }
