"""Service latency: measure how long services of other accounts take to respond.

Owns the selection of requests to measure, and the published documents. `broker.bridges` reports
when a request arrives and completes. Documents are published after the turn, never in the middle of
a delivery. An export without `latency` has no meter.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.broker.request_info import ClientInfo, client_info, told_info
from tradewind.route.sharing import SAMPLING_BY_HEADERS

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.bridging import Bridges
    from tradewind.broker.session import Session
    from tradewind.route.sharing import ServiceLatency

TYPE: Final = "io.nats.server.metric.v1.service_latency"
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DESCRIPTIONS: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    503: "Service Unavailable",
    504: "Service Timeout",
}
_B3_FIELDS: Final = ("X-B3-Sampled", "X-B3-Traceid", "X-B3-Parentspanid", "X-B3-Spanid")

_Fields = dict[str, list[str]]


class Metric(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One measured request; times in nanoseconds."""

    type: str = ""
    id: str = ""
    timestamp: str = ""
    status: int = 0
    description: str = ""
    requestor: ClientInfo | None = None
    responder: ClientInfo | None = None
    header: _Fields = msgspec.field(default_factory=dict)
    start: str = ""
    service: int | None = None
    system: int | None = None
    total: int | None = None


class LatencySample(msgspec.Struct, eq=False):
    """A request that is measured from its arrival on."""

    arrived_ns: int  # monotonic
    wall_ns: int
    requestor: ClientInfo | None
    header: _Fields


class LatencyMeter:
    """Measures the requests to one export, over one bridge."""

    def __init__(
        self, bridges: Bridges, exporter: Account, importer: Account, latency: ServiceLatency
    ) -> None:
        self._bridges = bridges
        self._account = exporter
        self._importer = importer
        self._latency = latency
        # The header that shows the responder that the request is measured.
        self.suffix = f".{server_hash(bridges.server_name)}.T".encode()

    def sample(
        self, header: bytes, session: Session | None, *, is_chained: bool, is_shared: bool
    ) -> LatencySample | None:
        """Called when a request has arrived: a sample if the request is to be measured, else
        None.
        """
        fields: _Fields | None = {}
        sampling = self._latency.sampling
        if sampling == SAMPLING_BY_HEADERS or self._bridges.chance.randrange(100) > sampling:
            fields = traced_fields(header) if header else None
        if fields is None or not self._account.has_interest(self._latency.subject):
            return None
        requestor = None
        if is_chained:
            requestor = told_info(header)
        elif session is not None:
            requestor = (
                client_info(session, self._bridges.server_name)
                if is_shared
                else ClientInfo(acc=self._importer.name, rtt=max(session.rtt_ns, 0))
            )
        clock = self._bridges.clock
        return LatencySample(clock.monotonic_ns(), clock.wall_ns(), requestor, fields)

    def answered(self, sample: LatencySample, arrived_ns: int, responder: Session | None) -> None:
        """Called when the response has arrived and was passed on."""
        taken_ns = max(arrived_ns - sample.arrived_ns, 0)
        info = client_info(responder, self._bridges.server_name) if responder is not None else None
        asked_rtt = sample.requestor.rtt if sample.requestor is not None else 0
        answered_rtt = max(responder.rtt_ns, 0) if responder is not None else 0
        system_ns = 0
        if answered_rtt:
            system_ns = max(self._bridges.clock.monotonic_ns() - arrived_ns, 0)
        metric = self._metric(sample, 200)
        metric.responder = info
        metric.service = max(taken_ns - answered_rtt, 0)
        metric.system = system_ns
        metric.total = asked_rtt + taken_ns + system_ns
        self._bridges.report(self._account, self._latency.subject, metric)

    def failed(self, sample: LatencySample, status: int) -> None:
        """Called when there will be no response."""
        metric = self._metric(sample, status)
        metric.description = _DESCRIPTIONS[status]
        metric.service = metric.system = metric.total = 0
        self._bridges.report(self._account, self._latency.subject, metric)

    def _metric(self, sample: LatencySample, status: int) -> Metric:
        from tradewind.api.times import format_time  # a server without metrics starts without it

        asked_rtt = sample.requestor.rtt if sample.requestor is not None else 0
        return Metric(
            type=TYPE,
            id=self._identifier(),
            timestamp=format_time(self._bridges.clock.wall_ns()),
            status=status,
            requestor=sample.requestor,
            header=sample.header,
            start=format_time(sample.wall_ns - asked_rtt),
        )

    def _identifier(self) -> str:
        return "".join(self._bridges.chance.choices(_ALPHABET, k=22))


def server_hash(name: str) -> str:
    """The form of a server's name in reply subjects."""
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:8])


def traced_fields(header: bytes) -> _Fields | None:
    """The header fields by which a tracing tool has chosen this request; None if none has."""
    fields: dict[str, list[str]] = {}
    for line in header.split(b"\r\n")[1:]:
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        if colon:
            fields.setdefault(_canonical(name), []).append(value.strip())
    jaeger = fields.get("Uber-Trace-Id", [""])[0]
    if jaeger:
        parts = jaeger.split(":")
        if len(parts) != 4 or not _is_odd(parts[3]):
            return None
        return {
            name: values
            for name, values in fields.items()
            if name == "Uber-Trace-Id" or name.startswith("Uberctx-")
        }
    sampled = fields.get("X-B3-Sampled", [""])[0]
    if sampled == "0":
        return None
    if sampled == "1" or (not sampled and fields.get("X-B3-Traceid", [""])[0]):
        return {name: fields[name] for name in _B3_FIELDS if name in fields}
    single = fields.get("B3", [""])[0]
    if single:
        parts = single.split("-")
        is_off = single == "0" or (len(parts) > 2 and parts[2] == "0")
        return None if is_off else {"B3": fields["B3"]}
    parent = fields.get("Traceparent", [""])[0].split("-")
    if len(parent) != 4 or len(parent[3]) != 2 or not _is_odd(parent[3]) or parent[3][0] > "7":
        return None
    return {name: fields[name] for name in ("Traceparent", "Tracestate") if name in fields}


def _is_odd(digits: str) -> bool:
    """Whether the last bit of a hexadecimal number is set."""
    return digits[-1:] in "13579bBdDfF" and all(one in "0123456789abcdefABCDEF" for one in digits)


def _canonical(name: str) -> str:
    """A name of a header field as Go writes it."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.strip().split("-"))
