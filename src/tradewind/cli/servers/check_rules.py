"""The rules of checks: connection, stream, consumer, message, account, server, bucket, login.

Owns the rules, each of which adds its findings to a CheckResult. Client errors are not handled
here; the caller treats them as critical.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.cli.frame.settings import connect, current, jetstream, manager
from tradewind.cli.frame.text_formats import size_text
from tradewind.cli.servers.check_result import CheckFigure, CheckResult
from tradewind.cli.servers.system import SystemRequests
from tradewind.client.core.credentials import parse_credentials
from tradewind.durations import SECOND_NS, format_duration

Limits = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Warning and critical seconds."""

    connect: Limits
    rtt: Limits
    request: Limits


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The requirements that a stream must meet; None for those that are not checked."""

    lag: int | None
    seen: float | None
    sources: tuple[int | None, int | None]
    peers: int | None
    peer_lag: int | None
    peer_seen: float | None
    messages: tuple[int | None, int | None]
    subjects: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class ConsumerCheckLimits:
    """The critical values of a consumer; None for those that are not checked."""

    unacknowledged: int | None
    waiting: int | None
    unprocessed: int | None
    redelivered: int | None
    last_delivery: float | None
    last_ack: float | None


@dataclass(frozen=True, slots=True)
class ServerCheckLimits:
    """Warning and critical values of a server, and what it must have."""

    cpu: Limits
    memory: Limits
    connections: Limits
    subscriptions: Limits
    uptime: Limits
    auth: bool
    tls: bool
    jetstream: bool


def check_connection(result: CheckResult, limits: ConnectionLimits) -> None:
    """Connects, pings, and sends a message to itself."""
    import tradewind.sync  # noqa: F401 - its import is not part of the time

    began = time.perf_counter()
    with connect() as connection:
        took = time.perf_counter() - began
        text = f"connected to {connection.url} in {_text(took)}"
        result.measure(_time("connect_time", took, limits.connect), text)
        rtt = connection.rtt()
        result.measure(_time("rtt", rtt, limits.rtt), f"rtt time {_text(rtt)}")
        subscription = connection.subscribe(connection.new_inbox())
        began = time.perf_counter()
        connection.publish(subscription.subject, b"check")
        message = subscription.next(timeout=current().timeout)
        took = time.perf_counter() - began
        if message.data != b"check":
            result.critical("a different message came back")
        figure = _time("request_time", took, limits.request)
        result.measure(figure, f"round trip took {_text(took)}")


def check_stream(result: CheckResult, stream: str, limits: StreamLimits) -> None:
    """Messages, subjects, sources and replicas of a stream."""
    with connect() as connection:
        info = manager(connection).streams.info(stream)
    state = info.state
    warning, critical = limits.messages
    figure = CheckFigure(
        "messages", state.messages, "", warning, critical, "Messages in the stream"
    )
    result.measure(figure, f"{state.messages:,} messages", at_least=True)
    warning, critical = limits.subjects
    figure = CheckFigure("subjects", state.num_subjects, "", warning, critical, "Subjects stored")
    result.measure(figure, f"{state.num_subjects:,} subjects")
    origins = list(info.sources)
    if info.mirror is not None:
        origins.append(info.mirror)
    least, most = limits.sources
    if least is not None and len(origins) < least:
        result.critical(f"{len(origins)} sources, fewer than {least}")
    if most is not None and len(origins) > most:
        result.critical(f"{len(origins)} sources, more than {most}")
    for origin in origins:
        figure = CheckFigure("lag", origin.lag, "", None, limits.lag, "Operations behind")
        result.measure(figure, f"{origin.name}: {origin.lag} behind")
        if limits.seen is not None and not 0 <= origin.active <= limits.seen * SECOND_NS:
            result.critical(f"{origin.name}: not seen for longer than {_text(limits.seen)}")
    peers = list(info.cluster.replicas or ()) if info.cluster else []
    if limits.peers is not None:
        count = len(peers) + 1
        result.expect(
            count == limits.peers, f"{count} replicas", f"{count} replicas, not {limits.peers}"
        )
    for peer in peers:
        if limits.peer_lag is not None and peer.lag > limits.peer_lag:
            result.critical(f"peer {peer.name}: {peer.lag} behind")
        if limits.peer_seen is not None and peer.active > limits.peer_seen * SECOND_NS:
            result.critical(f"peer {peer.name}: not seen for {format_duration(peer.active)}")
        result.expect(not peer.offline, f"peer {peer.name}", f"peer {peer.name} is offline")


def check_consumer(
    result: CheckResult, stream: str, consumer: str, limits: ConsumerCheckLimits
) -> None:
    """Whether a consumer keeps up with its stream."""
    with connect() as connection:
        info = manager(connection).consumers.info(stream, consumer)
    for name, value, limit, text in (
        ("ack_pending", info.num_ack_pending, limits.unacknowledged, "outstanding acks"),
        ("pull_waiting", info.num_waiting, limits.waiting, "waiting pulls"),
        ("pending", info.num_pending, limits.unprocessed, "unprocessed messages"),
        ("redelivered", info.num_redelivered, limits.redelivered, "redelivered messages"),
    ):
        result.measure(CheckFigure(name, value, "", None, limit), f"{value:,} {text}")
    for name, at, limit_seconds, text in (
        ("last_delivery", info.delivered.last_active, limits.last_delivery, "last delivery"),
        ("last_ack", info.ack_floor.last_active, limits.last_ack, "last ack"),
    ):
        if limit_seconds is None:
            continue
        if not at or at == ZERO_TIME:
            result.critical(f"no {text}")
        else:
            ago = max(time.time_ns() - parse_time(at), 0) / SECOND_NS
            result.measure(_time(name, ago, (None, limit_seconds)), f"{text} {_text(ago)} ago")


def check_message(
    result: CheckResult,
    stream: str,
    subject: str,
    age: Limits,
    content: str,
    *,
    body_is_time: bool,
) -> None:
    """Age and content of the last message of a subject."""
    with connect() as connection:
        message = manager(connection).streams.get_message(stream, last_by_subject=subject)
    at_ns = message.time_ns
    if body_is_time:
        text = message.data.decode(errors="replace").strip()
        if not text.isdecimal():
            result.critical(f"the body of message {message.seq} is not a Unix time")
            return
        at_ns = int(text) * SECOND_NS
    ago = max(time.time_ns() - at_ns, 0) / SECOND_NS
    result.measure(_time("age", ago, age), f"message {message.seq} is {_text(ago)} old")
    result.figures.append(CheckFigure("size", len(message.data), "B"))
    if content:
        _match(result, "content", content, message.data)


def check_jetstream(result: CheckResult, limits: Mapping[str, Limits]) -> None:
    """How much of its limits an account uses, in percent."""
    with connect() as connection:
        info = manager(connection).account_info()
    tiers = info.tiers or {"": info}
    for name, tier in tiers.items():
        prefix = f"{name.lower()}_" if name else ""
        for what, used, most in (
            ("memory", tier.memory, tier.limits.max_memory),
            ("storage", tier.storage, tier.limits.max_storage),
            ("streams", tier.streams, tier.limits.max_streams),
            ("consumers", tier.consumers, tier.limits.max_consumers),
        ):
            warning, critical = limits[what]
            unit = "B" if what in ("memory", "storage") else ""
            result.figures.append(CheckFigure(f"{prefix}{what}", used, unit))
            if most <= 0:
                continue
            percent = used * 100 // most
            figure = CheckFigure(f"{prefix}{what}_pct", percent, "%", warning, critical)
            result.measure(figure, f"{percent}% {what}")
    if not result.oks and not result.warnings and not result.criticals:
        result.ok("no limits are set")


def check_server(result: CheckResult, name: str, limits: ServerCheckLimits) -> None:
    """How a server is, by way of the system account."""
    with connect() as connection:
        system = SystemRequests(connection, current().timeout)
        varz = system.ask_one(name, "VARZ")["data"]
    result.expect(
        varz.get("server_name") == name, f"name {name}", f"its name is {varz.get('server_name')}"
    )
    uptime = (parse_time(varz["now"]) - parse_time(varz["start"])) / SECOND_NS
    for figure_name, value, (warning, critical), unit, text in (
        ("cpu", float(varz.get("cpu", 0)), limits.cpu, "%", "cpu"),
        ("mem", int(varz.get("mem", 0)), limits.memory, "B", "memory"),
        ("connections", int(varz.get("connections", 0)), limits.connections, "", "connections"),
        ("subs", int(varz.get("subscriptions", 0)), limits.subscriptions, "", "subscriptions"),
    ):
        figure = CheckFigure(figure_name, value, unit, warning, critical)
        shown = size_text(int(value)) if unit == "B" else f"{value:g}{unit}"
        may_invert = figure_name in ("connections", "subs")
        result.measure(figure, f"{text} {shown}", may_invert=may_invert)
    figure = CheckFigure("uptime", uptime, "s", *limits.uptime)
    result.measure(figure, f"up {_text(uptime)}", at_least=True)
    for wanted, found, text in (
        (limits.auth, varz.get("auth_required"), "authentication required"),
        (limits.tls, varz.get("tls_required"), "TLS required"),
        (limits.jetstream, (varz.get("jetstream") or {}).get("config"), "JetStream enabled"),
    ):
        if wanted:
            result.expect(bool(found), text, f"not {text}")


def check_kv(result: CheckResult, bucket: str, key: str, limits: Limits) -> None:
    """Whether a bucket is there, how much is in it, and whether a key has a value."""
    with connect() as connection:
        store = jetstream(connection).kv.open(bucket)
        status = store.status()
        result.ok(f"bucket {bucket}")
        figure = CheckFigure("values", status.values, "", *limits)
        result.measure(figure, f"{status.values:,} values")
        result.figures.append(CheckFigure("bytes", status.bytes, "B"))
        if key:
            found = store.get(key) is not None
            result.expect(found, f"key {key} found", f"key {key} not found")


def check_request(
    result: CheckResult, subject: str, payload: str, pattern: str, limits: Limits
) -> None:
    """Check that a service replies, how fast, and with what."""
    with connect() as connection:
        began = time.perf_counter()
        answer = connection.request(subject, payload)
        took = time.perf_counter() - began
    result.measure(_time("time", took, limits), f"answer in {_text(took)}")
    if pattern:
        _match(result, "payload", pattern, answer.data)


def check_credential(result: CheckResult, path: str, limits: Limits, *, must_expire: bool) -> None:
    """Check the expiry of a credentials file."""
    token, _ = parse_credentials(Path(path).read_text())
    parts = token.split(".")
    claims = _claims(parts[1]) if len(parts) == 3 else {}
    expires = int(claims.get("exp", 0) or 0)
    if not expires:
        result.expect(not must_expire, "never expires", "never expires")
        return
    left = expires - time.time()
    result.figures.append(CheckFigure("expiry", left, "s", *limits))
    warning, critical = limits
    if left <= 0:
        result.critical(f"expired {_text(-left)} ago")
    elif critical is not None and left <= critical:
        result.critical(f"expires in {_text(left)}")
    elif warning is not None and left <= warning:
        result.warn(f"expires in {_text(left)}")
    else:
        result.ok(f"expires in {_text(left)}")


def _claims(part: str) -> dict[str, Any]:
    import base64
    import binascii

    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        return msgspec.json.decode(data, type=dict[str, Any])
    except (binascii.Error, msgspec.DecodeError):
        return {}


def _match(result: CheckResult, what: str, pattern: str, data: bytes) -> None:
    try:
        found = re.search(pattern, data.decode(errors="replace")) is not None
    except re.error as error:
        result.unknown = f"{pattern!r} is not a regular expression: {error}"
        return
    result.expect(found, f"{what} matches {pattern}", f"{what} does not match {pattern}")


def _time(name: str, seconds: float, limits: Limits) -> CheckFigure:
    return CheckFigure(name, float(seconds), "s", *limits)


def _text(seconds: float) -> str:
    return format_duration(round(seconds * 1e6) * 1000)
