"""Two examples of each command, for its help.

Owns the table only; a test reads each of them with the command line's own parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PROGRAM: Final = "tradewind"
# How many a help text shows.
SHOWN_MAX: Final = 2
EXAMPLES: Final = (
    "account info",
    "account backup backup-folder",
    "apply -f streams.yaml --dry-run",
    "apply -f streams.yaml --force",
    "auth operator add shop",
    "auth user add worker --account SHOP",
    "bench pub orders.new --msgs 100000 --clients 2",
    "bench sub orders.new --msgs 100000",
    "cheat",
    "cheat pub",
    "cluster up",
    "cluster status",
    "consumer add ORDERS packer --filter orders.new --max-deliver 5",
    "consumer next ORDERS packer --count 10",
    "consumer why ORDERS packer",
    "context add shop --server nats://127.0.0.1:4222 --select",
    "context ls",
    "counter incr hits.home 1",
    "counter get hits.home",
    "dashboard",
    "dashboard --port 8000",
    "dead-letters ls DEAD",
    "dead-letters redrive DEAD 12",
    "demo",
    "demo --help",
    "dr status ORDERS --origin old --standby new",
    "dr failover ORDERS --origin old --standby new --dry-run",
    "errors ls stream",
    "errors lookup 10058",
    "events",
    "events --js-advisory",
    "export",
    "export ORDERS -o orders.yaml",
    "help stream add",
    "help",
    "job archive ORDERS lake/orders",
    "job archive ORDERS lake/orders --by-subject",
    "kv add PRICES --history 5",
    "kv put PRICES apple 1.20",
    "latency",
    "latency --size 1KB",
    "move start ORDERS --from old --to new",
    "move status ORDERS.move.json",
    "object add FILES",
    "object put FILES report.pdf",
    "pipeline check pipeline.yaml",
    "pipeline run pipeline.yaml",
    "pub orders.new 'order {{Count}}' --count 3",
    "pub orders.new 'order 1' --jetstream",
    "reply greet 'hello {{Request}}'",
    "reply time --command date",
    "request greet Ann",
    "request greet Ann --replies 2",
    "rtt",
    "rtt 20",
    "schema ls",
    "schema info io.nats.jetstream.api.v1.stream_create_request",
    "server run --jetstream",
    "server ls",
    "sql 'select count(*) from ORDERS'",
    "sql",
    "stream add ORDERS --subjects 'orders.>' --max-age 7d",
    "stream ls",
    "stream add --ask",
    "sub 'orders.>' --count 10",
    "sub --stream ORDERS --last",
    "table add ORDERS --to lake/orders",
    "table status",
    "template ls",
    "template try orders.eu.new",
    "top",
    "top --sort subs --conns 10",
    "trace orders.new",
    "trace orders.new 'order 1'",
    "transaction --publish orders.new=1 --publish audit=1",
    "transaction steps.json",
    "version",
    "version --help",
    "view ls",
    "view run",
    "worker shop:packer",
    "worker shop:packer --processes 4",
)


def examples_of(words: Sequence[str]) -> list[str]:
    """The examples of a command, or of all commands of a noun; at most two."""
    start = " ".join(words)
    found = [each for each in EXAMPLES if start and (each == start or each.startswith(f"{start} "))]
    return [f"{PROGRAM} {each}" for each in found[:SHOWN_MAX]]
