"""One object that answers every monitoring request, from HTTP, metrics and the system account.

Owns what the pages share (processor meter, request counts, health checks, hooks of later parts). It
never changes the broker and never opens anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from tradewind.monitor.accountz import build_accountz, build_accstatz
from tradewind.monitor.formats import timestamp
from tradewind.monitor.health import HealthRegistry
from tradewind.monitor.monitor_documents import (
    AccountStatz,
    Accountz,
    Connz,
    Gatewayz,
    Health,
    JszDisabled,
    Leafz,
    Routez,
    Subsz,
    Varz,
)
from tradewind.monitor.page_options import (
    AccountStatzOptions,
    AccountzOptions,
    ConnzOptions,
    HealthzOptions,
    JszOptions,
    LeafzOptions,
    SubszOptions,
)
from tradewind.monitor.process_usage import ProcessUsage, UsageMeter
from tradewind.monitor.stepping import Stepped
from tradewind.monitor.varz import Listening, build_varz

if TYPE_CHECKING:
    from tradewind.monitor.prometheus import Family
    from tradewind.monitor.views import BrokerView


class JetStreamPages(Protocol):
    """What JetStream adds to monitoring once it runs; documents are anything that msgspec can
    encode.
    """

    def varz(self) -> Any:
        """The `jetstream` object of /varz."""

    def statsz(self) -> Any:
        """The `jetstream` object of STATSZ."""

    def jsz(self, options: JszOptions) -> Stepped[Any]:
        """The document of /jsz; raises PageError when it cannot be built as asked."""

    def account_jsz(self, name: str, options: JszOptions) -> Stepped[Any]:
        """What it says about one account; raises PageError if that has no JetStream."""


class MonitorView:
    """Every page of one server; those that can be long are built in steps.

    `jetstream` is set by that part when it runs.
    """

    def __init__(self, broker: BrokerView, meter: UsageMeter | None = None) -> None:
        self.broker = broker
        self.listening = Listening()
        self.health = HealthRegistry()
        self.jetstream: JetStreamPages | None = None
        self.request_counts: Counter[str] = Counter()
        self._meter = meter if meter is not None else UsageMeter()
        self._metric_sources: list[Callable[[], Iterable[Family]]] = []

    def add_metrics(self, source: Callable[[], Iterable[Family]]) -> None:
        """Have `source` asked for its metrics at each scrape."""
        self._metric_sources.append(source)

    def usage(self) -> ProcessUsage:
        """Memory and processor use of this process."""
        return self._meter.read()

    def varz(self) -> Varz:
        """/varz."""
        jetstream = self.jetstream.varz() if self.jetstream is not None else {}
        return build_varz(
            self.broker,
            self.listening,
            self.usage(),
            self.request_counts,
            jetstream,
            self.broker.now_ns(),
        )

    def connz(self, options: ConnzOptions) -> Stepped[Connz]:
        """/connz."""
        from tradewind.monitor.connz import build_connz

        return build_connz(self.broker, options, self.broker.now_ns())

    def subsz(self, options: SubszOptions) -> Stepped[Subsz]:
        """/subsz."""
        from tradewind.monitor.subsz import build_subsz

        return build_subsz(self.broker, options, self.broker.now_ns())

    def accountz(self, options: AccountzOptions) -> Accountz:
        """/accountz."""
        return build_accountz(self.broker, options, self.broker.now_ns())

    def accstatz(self, options: AccountStatzOptions) -> Stepped[AccountStatz]:
        """/accstatz."""
        return build_accstatz(self.broker, options, self.broker.now_ns())

    def routez(self) -> Routez:
        """/routez."""
        broker = self.broker
        return Routez(
            server_id=broker.server_id,
            server_name=broker.server_name,
            now=timestamp(broker.now_ns()),
        )

    def leafz(self, options: LeafzOptions) -> Stepped[Leafz]:
        """/leafz."""
        from tradewind.monitor.leafz import build_leafz

        return build_leafz(self.broker, options, self.broker.now_ns())

    def gatewayz(self) -> Gatewayz:
        """/gatewayz."""
        return Gatewayz(server_id=self.broker.server_id, now=timestamp(self.broker.now_ns()))

    def jsz(self, options: JszOptions) -> Stepped[Any]:
        """/jsz."""
        if self.jetstream is not None:
            return (yield from self.jetstream.jsz(options))
        return JszDisabled(server_id=self.broker.server_id, now=timestamp(self.broker.now_ns()))

    def healthz(self, options: HealthzOptions) -> tuple[int, Health]:
        """/healthz: the HTTP status and the document."""
        return self.health.report(options)

    def metrics(self) -> bytes:
        """/metrics, for Prometheus."""
        from tradewind.monitor.prometheus import render, server_families

        healthy = self.health.report(HealthzOptions())[0] == 200
        families = list(server_families(self.broker, self.usage(), healthy=healthy))
        for source in self._metric_sources:
            families.extend(source())
        return render(families)
