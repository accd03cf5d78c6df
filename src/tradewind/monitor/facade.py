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
    MetricsOptions,
    SubszOptions,
)
from tradewind.monitor.process_usage import ProcessUsage, UsageMeter
from tradewind.monitor.stepping import Stepped
from tradewind.monitor.varz import ListenAddresses, build_varz

if TYPE_CHECKING:
    from tradewind.monitor.prometheus import Family
    from tradewind.monitor.views import BrokerView


class JetStreamPages(Protocol):
    """The additions of JetStream to monitoring while it runs; documents are anything that msgspec
    can encode.
    """

    def varz(self) -> Any:
        """The `jetstream` object of /varz."""

    def statsz(self) -> Any:
        """The `jetstream` object of STATSZ."""

    def stream_metrics(self, options: MetricsOptions) -> Stepped[list[bytes]]:
        """The text of the metrics of streams and consumers."""

    def jsz(self, options: JszOptions) -> Stepped[Any]:
        """The document of /jsz; raises PageError if it cannot be built as requested."""

    def account_jsz(self, name: str, options: JszOptions) -> Stepped[Any]:
        """The part of /jsz about one account; raises PageError if the account has no JetStream."""


class MonitorView:
    """Every page of one server; those that can be long are built in steps.

    `jetstream` is set while JetStream runs.
    """

    def __init__(self, broker: BrokerView, meter: UsageMeter | None = None) -> None:
        self.broker = broker
        self.listening = ListenAddresses()
        self.health = HealthRegistry()
        self.jetstream: JetStreamPages | None = None
        self.request_counts: Counter[str] = Counter()
        self._meter = meter if meter is not None else UsageMeter()
        self._metric_sources: list[Callable[[], Iterable[Family]]] = []

    def add_metrics(self, source: Callable[[], Iterable[Family]]) -> None:
        """Add a source of metrics, which is called at each scrape."""
        self._metric_sources.append(source)

    def usage(self) -> ProcessUsage:
        """The memory and processor usage of this process."""
        return self._meter.read()

    def varz(self) -> Varz:
        """The document of /varz."""
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
        """The document of /connz, in steps."""
        from tradewind.monitor.connz import build_connz

        return build_connz(self.broker, options, self.broker.now_ns())

    def subsz(self, options: SubszOptions) -> Stepped[Subsz]:
        """The document of /subsz, in steps."""
        from tradewind.monitor.subsz import build_subsz

        return build_subsz(self.broker, options, self.broker.now_ns())

    def accountz(self, options: AccountzOptions) -> Accountz:
        """The document of /accountz."""
        return build_accountz(self.broker, options, self.broker.now_ns())

    def accstatz(self, options: AccountStatzOptions) -> Stepped[AccountStatz]:
        """The document of /accstatz, in steps."""
        return build_accstatz(self.broker, options, self.broker.now_ns())

    def routez(self) -> Routez:
        """The document of /routez."""
        broker = self.broker
        return Routez(
            server_id=broker.server_id,
            server_name=broker.server_name,
            now=timestamp(broker.now_ns()),
        )

    def leafz(self, options: LeafzOptions) -> Stepped[Leafz]:
        """The document of /leafz, in steps."""
        from tradewind.monitor.leafz import build_leafz

        return build_leafz(self.broker, options, self.broker.now_ns())

    def gatewayz(self) -> Gatewayz:
        """The document of /gatewayz."""
        return Gatewayz(server_id=self.broker.server_id, now=timestamp(self.broker.now_ns()))

    def jsz(self, options: JszOptions) -> Stepped[Any]:
        """The document of /jsz, in steps."""
        if self.jetstream is not None:
            return (yield from self.jetstream.jsz(options))
        return JszDisabled(server_id=self.broker.server_id, now=timestamp(self.broker.now_ns()))

    def healthz(self, options: HealthzOptions) -> tuple[int, Health]:
        """The HTTP status and the document of /healthz."""
        return self.health.report(options)

    def metrics(self, options: MetricsOptions | None = None) -> Stepped[list[bytes]]:
        """The text of /metrics for Prometheus in pieces, in steps."""
        from tradewind.monitor.prometheus import render, server_families

        options = options or MetricsOptions()
        healthy = self.health.report(HealthzOptions())[0] == 200
        families = list(server_families(self.broker, self.usage(), healthy=healthy))
        for source in self._metric_sources:
            families.extend(source())
        pieces = [render(families)]
        if self.jetstream is not None and options.streams:
            yield
            pieces += yield from self.jetstream.stream_metrics(options)
        return pieces
