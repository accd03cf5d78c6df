"""The possible faults of a publish, for the tests of Tradewind's rules and for those of both
servers.
"""

from __future__ import annotations

# What is wrong, as a header, and its error code; each is found before those that follow it.
FAULTS = {
    "batch": (b"Nats-Batch-Id: b", 10174),
    "header size": (b"X: " + b"y" * 66000, 10097),
    "increment": (b"Nats-Incr: one", 10171),
    "counter": (b"Nats-Incr: -1", 10168),
    "stream": (b"Nats-Expected-Stream: OTHER", 10060),
    "ttl off": (b"Nats-TTL: 10s", 10166),
    "subject sequence": (b"Nats-Expected-Last-Subject-Sequence: 7", 10071),
    "subject alone": (b"Nats-Expected-Last-Subject-Sequence-Subject: a.1", 10193),
    "sequence": (b"Nats-Expected-Last-Sequence: 99", 10071),
    "schedule": (b"Nats-Schedule: @every 5s", 10188),
    "scheduler": (b"Nats-Scheduler: x", 10212),
    "source": (b"Nats-Stream-Source: A 1 > > a", 10227),
    "duplicate": (b"Nats-Msg-Id: known", 0),
    "last id": (b"Nats-Expected-Last-Msg-Id: zz", 10070),
    "rollup": (b"Nats-Rollup: sub", 10111),
    "ttl": (b"Nats-TTL: 0", 10165),
}
# These cannot be in one message, or have the same code.
EXCLUSIVE = (
    {"increment", "counter"},
    {"ttl off", "ttl"},
    {"subject sequence", "subject alone"},
    {"subject sequence", "sequence"},
)
