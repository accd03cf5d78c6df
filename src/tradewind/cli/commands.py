"""The commands of `tradewind`: name, module, aliases, one line of help.

Owns the table only. It never imports a command: a module is imported when its command is called, so
a new command costs the others nothing. `frame` describes how to write one.
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


# The sections of `tradewind --help`.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Messages": (
        "pub",
        "sub",
        "request",
        "reply",
        "trace",
        "transaction",
        "worker",
    ),
    "Streams and consumers": (
        "stream",
        "consumer",
        "counter",
        "dead-letters",
        "template",
        "schedule",
        "apply",
        "export",
        "move",
        "dr",
        "backup",
    ),
    "Buckets": (
        "kv",
        "object",
    ),
    "Servers": (
        "server",
        "account",
        "cluster",
        "dashboard",
        "events",
        "top",
        "rtt",
        "latency",
        "bench",
    ),
    "SQL and Spark": (
        "sql",
        "pipeline",
        "job",
        "table",
        "view",
    ),
    "Settings and help": (
        "auth",
        "cheat",
        "context",
        "demo",
        "errors",
        "help",
        "schema",
        "version",
    ),
}

COMMANDS: Final[tuple[CommandEntry, ...]] = (
    CommandEntry(
        "account", "tradewind.cli.servers.account_commands:app", "Account information", ("a",)
    ),
    CommandEntry(
        "apply",
        "tradewind.cli.declared.apply:app",
        "Apply a declarative configuration file",
    ),
    CommandEntry(
        "auth", "tradewind.cli.auth.auth:app", "Operators, accounts, users and their keys"
    ),
    CommandEntry(
        "backup",
        "tradewind.cli.recovering.backup:app",
        "Back up an account, and restore any point in time",
        ("backups",),
    ),
    CommandEntry("bench", "tradewind.cli.bench.bench:app", "Benchmarks"),
    CommandEntry("cheat", "tradewind.cli.reference.cheat:app", "Cheat sheets"),
    CommandEntry(
        "cluster", "tradewind.cli.cluster.cluster:app", "Run or configure a nats-server cluster"
    ),
    CommandEntry(
        "consumer",
        "tradewind.cli.consumers.consumer_commands:app",
        "Consumers",
        ("con", "obs", "c", "consumers"),
    ),
    CommandEntry(
        "context",
        "tradewind.cli.reference.context_commands:app",
        "Manage connection contexts",
        ("ctx",),
    ),
    CommandEntry("counter", "tradewind.cli.streams.counter:app", "Counters in streams", ("ctr",)),
    CommandEntry(
        "dashboard",
        "tradewind.cli.servers.dashboard:app",
        "View and manage a server in a browser",
        ("dash",),
    ),
    CommandEntry(
        "dead-letters",
        "tradewind.cli.streams.dead_letter_commands:app",
        "Messages that consumers gave up on",
        ("dlq",),
    ),
    CommandEntry(
        "demo",
        "tradewind.cli.spark.demo:app",
        "Run a demo: a server, live orders and a Spark pipeline",
    ),
    CommandEntry(
        "dr",
        "tradewind.cli.recovering.dr:app",
        "Disaster recovery: fail over to a mirror, and back",
    ),
    CommandEntry(
        "errors", "tradewind.cli.reference.errors:app", "Look up error codes", ("err", "error")
    ),
    CommandEntry(
        "events",
        "tradewind.cli.servers.event_commands:app",
        "Show server and JetStream events",
        ("event", "e"),
    ),
    CommandEntry(
        "export",
        "tradewind.cli.declared.export:app",
        "Export the configuration as a file for `apply`",
    ),
    CommandEntry("help", "tradewind.cli.reference.help_command:help_app", "Show help"),
    CommandEntry(
        "job", "tradewind.cli.spark.job:app", "Spark jobs: archive, replay, mirror, audit, compact"
    ),
    CommandEntry("kv", "tradewind.cli.buckets.kv_commands:app", "Key-value buckets"),
    CommandEntry(
        "latency", "tradewind.cli.servers.rtt:latency_app", "Measure message latency", ("lat",)
    ),
    CommandEntry("move", "tradewind.cli.moving.move:app", "Move streams to another server"),
    CommandEntry("object", "tradewind.cli.buckets.object_commands:app", "Object stores", ("obj",)),
    CommandEntry(
        "pipeline", "tradewind.cli.spark.pipeline:app", "Data pipelines on Spark", ("pipe",)
    ),
    CommandEntry(
        "pub", "tradewind.cli.messaging.publish:pub_app", "Publish messages", ("publish",)
    ),
    CommandEntry("reply", "tradewind.cli.messaging.reply:app", "Reply to requests"),
    CommandEntry(
        "request", "tradewind.cli.messaging.publish:request_app", "Send requests", ("req",)
    ),
    CommandEntry("rtt", "tradewind.cli.servers.rtt:rtt_app", "Measure round-trip times to servers"),
    CommandEntry(
        "schedule", "tradewind.cli.messaging.schedule:app", "Scheduled messages", ("sched",)
    ),
    CommandEntry(
        "schema",
        "tradewind.cli.reference.schema:app",
        "Schemas of payloads, and of the JetStream API",
    ),
    CommandEntry(
        "server", "tradewind.cli.servers.server_commands:app", "Servers", ("srv", "sys", "system")
    ),
    CommandEntry(
        "sql", "tradewind.cli.spark.sql_command:app", "Query streams, buckets and lakes with SQL"
    ),
    CommandEntry(
        "stream",
        "tradewind.cli.streams.stream_commands:app",
        "Streams",
        ("str", "st", "ms", "s", "streams"),
    ),
    CommandEntry(
        "sub", "tradewind.cli.messaging.subscribe:app", "Subscribe to subjects", ("subscribe",)
    ),
    CommandEntry(
        "table",
        "tradewind.cli.spark.table_commands:app",
        "Keep streams and buckets as lake tables",
        ("tables",),
    ),
    CommandEntry(
        "template", "tradewind.cli.streams.template:app", "Streams created by their first publish"
    ),
    CommandEntry("top", "tradewind.cli.servers.top:app", "Live view of a server's load"),
    CommandEntry("trace", "tradewind.cli.messaging.trace:app", "Trace the path of a message"),
    CommandEntry(
        "transaction",
        "tradewind.cli.streams.transaction:app",
        "Publish, acknowledge and delete messages in one transaction",
    ),
    CommandEntry("version", "tradewind.cli.reference.help_command:version_app", "Show the version"),
    CommandEntry(
        "view", "tradewind.cli.spark.view_commands:app", "Materialized views of SQL queries"
    ),
    CommandEntry(
        "worker",
        "tradewind.cli.consumers.worker_command:app",
        "Run a handler for the messages of a consumer",
    ),
)
