"""Metrics for Prometheus, in its text format 0.0.4.

Owns the names and the format. The number of series is bounded: accounts are labelled one by one up
to a limit and added up beyond it, and nothing is labelled by connection, subject or user. The
series of streams and consumers are in `stream_metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from tradewind._version import __version__
from tradewind.monitor.process_usage import ProcessUsage
from tradewind.monitor.varz import subscription_total
from tradewind.monitor.views import AccountView, BrokerView, TurnWatchView
from tradewind.wire.ops import NATS_VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ACCOUNTS_LABELLED_MAX = 100
OTHER_ACCOUNTS = "(other)"

Kind = Literal["counter", "gauge"]


class Sample(msgspec.Struct, frozen=True):
    """One value with its labels."""

    value: float
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Family(msgspec.Struct, frozen=True):
    """One metric: its name contains the quantity and the unit; a counter's name ends in
    `_total`.
    """

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def escape_label(text: str) -> str:
    """The value of a label as it stands between quotes."""
    return _escape_help(text).replace('"', '\\"')


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{key}="{escape_label(value)}"' for key, value in sample.labels.items())
    value = int(sample.value) if sample.value == int(sample.value) else sample.value
    return f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"


def heading(name: str, kind: Kind, help_text: str) -> list[str]:
    """The lines before the samples of a family."""
    return [f"# HELP {name} {_escape_help(help_text)}", f"# TYPE {name} {kind}"]


def render(families: Iterable[Family]) -> bytes:
    """The text of all families."""
    lines: list[str] = []
    for family in families:
        lines.extend(heading(family.name, family.kind, family.help))
        lines.extend(_line(family.name, sample) for sample in family.samples)
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _gauge(name: str, help_text: str, value: float) -> Family:
    return Family(f"tradewind_{name}", "gauge", help_text, (Sample(value),))


def _counter(name: str, help_text: str, value: float) -> Family:
    return Family(f"tradewind_{name}_total", "counter", help_text, (Sample(value),))


def server_families(broker: BrokerView, usage: ProcessUsage, *, healthy: bool) -> Iterator[Family]:
    """The families of the server as a whole, then those of its accounts."""
    totals, options = broker.totals, broker.options
    identity = {
        "version": __version__,
        "nats_version": NATS_VERSION,
        "server_id": broker.server_id,
        "server_name": broker.server_name,
    }
    yield Family("tradewind_info", "gauge", "Versions and names; always 1.", (Sample(1, identity),))
    yield _gauge("healthy", "1 when all health checks pass.", int(healthy))
    yield _gauge("lame_duck", "1 when the server is in lame duck mode.", int(broker.lame_duck))
    yield _gauge(
        "start_time_seconds", "Unix time at which the server started.", broker.start_ns / 1e9
    )
    yield _gauge(
        "config_load_time_seconds",
        "Unix time of the last good (re)load.",
        broker.config_load_ns / 1e9,
    )
    yield _gauge("memory_bytes", "Resident memory of the process.", usage.memory_bytes)
    yield _gauge("cpu_percent", "Processor use of the process, 100 is one core.", usage.cpu_percent)
    yield _gauge("connections", "Open client connections.", len(broker.sessions))
    yield _gauge(
        "connections_limit",
        "Most client connections allowed (max_connections).",
        options.max_connections,
    )
    yield _gauge(
        "payload_limit_bytes", "Largest message allowed (max_payload).", options.max_payload_bytes
    )
    yield _gauge("subscriptions", "Subscriptions of clients.", subscription_total(broker))
    yield _counter(
        "connections_accepted",
        "Client connections accepted since the start.",
        totals.total_connections,
    )
    yield _counter("in_messages", "Messages received from clients.", totals.in_msgs)
    yield _counter("in_bytes", "Payload bytes received from clients.", totals.in_bytes)
    yield _counter("out_messages", "Messages sent to clients.", totals.out_msgs)
    yield _counter("out_bytes", "Payload bytes sent to clients.", totals.out_bytes)
    yield _counter(
        "slow_consumers", "Clients closed because they did not keep up.", totals.slow_consumers
    )
    yield _counter(
        "stale_connections",
        "Clients closed because they stopped answering.",
        totals.stale_connections,
    )
    yield _counter(
        "stalled_clients", "Times a fast producer was slowed down.", totals.stalled_clients
    )
    yield _counter("auth_failures", "Logins refused.", totals.auth_failures)
    yield _counter(
        "internal_errors",
        "Faults of the server that ended one piece of work each; the log says which.",
        broker.faults.total,
    )
    yield from _turn_families(broker.watch)
    yield from _account_families(list(broker.accounts.values()))


def _turn_families(watch: TurnWatchView) -> Iterator[Family]:
    """The families about turns of the event loop; the kinds of work are a fixed set."""
    kinds = sorted(watch.kinds.items())
    yield _gauge(
        "turn_budget_seconds",
        "Processor time that a turn should take at most.",
        watch.budget_ns / 1e9,
    )
    yield _gauge(
        "turn_longest_seconds", "The longest turn since the start.", watch.longest_ns / 1e9
    )
    yield Family(
        "tradewind_turns_over_budget_total",
        "counter",
        "Turns of the event loop above the budget, by what they mostly were.",
        tuple(Sample(kind.count, {"kind": name}) for name, kind in kinds),
    )
    yield Family(
        "tradewind_turn_over_budget_longest_seconds",
        "gauge",
        "The longest of these.",
        tuple(Sample(kind.longest_ns / 1e9, {"kind": name}) for name, kind in kinds),
    )


_Reading = Callable[[AccountView], int]
_ACCOUNT_METRICS: tuple[tuple[str, Kind, str, _Reading], ...] = (
    ("connections", "gauge", "Open client connections of the account.", lambda a: a.session_count),
    (
        "subscriptions",
        "gauge",
        "Subscriptions of the account's clients.",
        lambda a: a.subscription_count,
    ),
    (
        "in_messages_total",
        "counter",
        "Messages received from the account's clients.",
        lambda a: a.in_msgs,
    ),
    (
        "in_bytes_total",
        "counter",
        "Payload bytes received from the account's clients.",
        lambda a: a.in_bytes,
    ),
    (
        "out_messages_total",
        "counter",
        "Messages sent to the account's clients.",
        lambda a: a.out_msgs,
    ),
    (
        "out_bytes_total",
        "counter",
        "Payload bytes sent to the account's clients.",
        lambda a: a.out_bytes,
    ),
    (
        "slow_consumers_total",
        "counter",
        "Slow consumers of the account.",
        lambda a: a.slow_consumers,
    ),
)


def _account_families(accounts: list[AccountView]) -> Iterator[Family]:
    """The families of accounts. The first accounts as configured have their own series: the choice
    must not change between scrapes.
    """
    labelled, others = accounts[:ACCOUNTS_LABELLED_MAX], accounts[ACCOUNTS_LABELLED_MAX:]
    for name, kind, help_text, reading in _ACCOUNT_METRICS:
        samples = [Sample(reading(account), {"account": account.name}) for account in labelled]
        if others:
            samples.append(Sample(sum(map(reading, others)), {"account": OTHER_ACCOUNTS}))
        yield Family(f"tradewind_account_{name}", kind, help_text, tuple(samples))
