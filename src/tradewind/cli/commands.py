"""The commands of `tradewind`: name, where it is, aliases, one line of help.

Owns the table only. A module is imported when its command is called, so a new command costs the
others nothing. `frame` describes how to write one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command; `place` is "module:name of its CommandApp"."""

    name: str
    place: str
    help: str
    aliases: tuple[str, ...] = ()


COMMANDS: Final[tuple[CommandEntry, ...]] = (
    CommandEntry("account", "tradewind.cli.servers.account:app", "Account information", ("a",)),
    CommandEntry(
        "apply",
        "tradewind.cli.declared.apply:app",
        "Bring streams, consumers and buckets to what a file declares",
    ),
    CommandEntry("bench", "tradewind.cli.bench.bench:app", "Benchmarks"),
    CommandEntry("cheat", "tradewind.cli.reference.cheat:app", "Examples to copy"),
    CommandEntry(
        "consumer",
        "tradewind.cli.consumers.consumer:app",
        "Consumers",
        ("con", "obs", "c", "consumers"),
    ),
    CommandEntry(
        "context", "tradewind.cli.reference.contexts:app", "Named sets of options", ("ctx",)
    ),
    CommandEntry(
        "counter", "tradewind.cli.streams.counter:app", "Numbers that streams keep", ("ctr",)
    ),
    CommandEntry(
        "demo", "tradewind.cli.spark.demo:app", "A server, live orders and a Spark pipeline"
    ),
    CommandEntry("errors", "tradewind.cli.reference.errors:app", "Error codes", ("err", "error")),
    CommandEntry("events", "tradewind.cli.servers.events:app", "What servers tell", ("event", "e")),
    CommandEntry(
        "export", "tradewind.cli.declared.export:app", "Write such a file of what is there"
    ),
    CommandEntry("job", "tradewind.cli.spark.job:app", "Archive, replay, mirror, audit, compact"),
    CommandEntry("kv", "tradewind.cli.buckets.kv:app", "Key-value buckets"),
    CommandEntry("latency", "tradewind.cli.servers.rtt:latency_app", "Time of messages", ("lat",)),
    CommandEntry("object", "tradewind.cli.buckets.objects:app", "Object stores", ("obj",)),
    CommandEntry(
        "pipeline", "tradewind.cli.spark.pipeline:app", "Data pipelines on Spark", ("pipe",)
    ),
    CommandEntry(
        "pub", "tradewind.cli.messaging.publish:pub_app", "Publish messages", ("publish",)
    ),
    CommandEntry("reply", "tradewind.cli.messaging.reply:app", "Answer requests"),
    CommandEntry(
        "request", "tradewind.cli.messaging.publish:request_app", "Send requests", ("req",)
    ),
    CommandEntry("rtt", "tradewind.cli.servers.rtt:rtt_app", "Time of round trips to servers"),
    CommandEntry("schema", "tradewind.cli.reference.schema:app", "Schemas of the JetStream API"),
    CommandEntry("server", "tradewind.cli.servers.server:app", "Servers", ("srv", "sys", "system")),
    CommandEntry("sql", "tradewind.cli.spark.sql:app", "SQL on streams, buckets and lakes"),
    CommandEntry(
        "stream", "tradewind.cli.streams.stream:app", "Streams", ("str", "st", "ms", "s", "streams")
    ),
    CommandEntry("sub", "tradewind.cli.messaging.subscribe:app", "Show messages", ("subscribe",)),
    CommandEntry("top", "tradewind.cli.servers.top:app", "What a server is doing right now"),
)
