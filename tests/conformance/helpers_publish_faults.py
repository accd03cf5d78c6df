"""Publishes with several header fields at once, most of them faults, and scenes for them."""

from __future__ import annotations

from typing import Any

from helpers_faults import Change, Scene
from helpers_stream_faults import PLAIN, one_of

SECOND = 1_000_000_000
PUBLISH_CHANGES: list[Change] = [
    *one_of("Nats-Expected-Stream", "Z", "OTHER", ""),
    *one_of(
        "Nats-Expected-Last-Sequence", "0", "1", "2", "3", "9", "x", "-1", "18446744073709551616"
    ),
    *one_of("Nats-Expected-Last-Subject-Sequence", "0", "1", "2", "9", "x"),
    *one_of("Nats-Expected-Last-Subject-Sequence-Subject", "z.a", "z.b", "z.*", "z..a", "none"),
    *one_of("Nats-Expected-Last-Msg-Id", "one", "two", "zzz"),
    *one_of("Nats-Msg-Id", "one", "two", "new"),
    *one_of("Nats-Rollup", "sub", "all", "ALL", "bad", ""),
    *one_of("Nats-TTL", "1", "1s", "never", "0", "bad", "100ms", "-1"),
    *one_of("Nats-Incr", "1", "-2", "bad", "+1", "1.5", ""),
    *one_of("Nats-Counter-Sources", "{}"),
    *one_of("Nats-Batch-Id", "b", "x" * 65, ""),
    *one_of("Nats-Batch-Sequence", "0", "1", "2", "bad"),
    *one_of("Nats-Batch-Commit", "1", "0", "eob", "bad"),
    *one_of("Nats-Schedule", "@at 2090-01-01T00:00:00Z", "@every 1h", "bad", "@every 1ms"),
    *one_of("Nats-Schedule-Target", "z.target", "z.*", "other", "z.a", ""),
    *one_of("Nats-Schedule-Source", "z.b", "z.*", "z.a", "other"),
    *one_of("Nats-Schedule-TTL", "1s", "bad", "never"),
    *one_of("Nats-Schedule-Rollup", "sub", "all", "bad"),
    *one_of("Nats-Schedule-Time-Zone", "Europe/Berlin", "Nowhere/Land"),
    *one_of("Nats-Schedule-Next", "purge", "2090-01-01T00:00:00Z", "bad"),
    *one_of("Nats-Scheduler", "z.a", "z.b", "bad.x"),
    *one_of("Nats-Stream-Source", "O 1", "bad"),
    *one_of("Nats-Required-Api-Level", "1", "99", "bad"),
    *one_of("Nats-Marker-Reason", "MaxAge"),
    *one_of("X-Long", "x" * 66_000),
    *one_of("payload", "x", "x" * 60, "x" * 5000),
    *one_of("subject", "z.b", "z.new", "z.a"),
    *one_of(
        "reply",
        "ID.5.ok.1.9.$FI",
        "ID.5.ok.2.2.$FI",
        "ID.5.OK.1.2.$FI",
        f"{'x' * 65}.5.fail.1.2.$FI",
    ),
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"},
    {"Nats-Schedule": "@at 2090-01-01T00:00:00Z", "Nats-Schedule-Target": "z.target"},
    {"Nats-Scheduler": "z.b", "Nats-Schedule-Next": "purge"},
]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "file": {"storage": "file"},
    "ttl": {"allow_msg_ttl": True, "allow_rollup_hdrs": True},
    "markers": {"subject_delete_marker_ttl": 5 * SECOND, "max_age": 3600 * SECOND},
    "rollup denied": {"deny_purge": True},
    "counter": {"allow_msg_counter": True, "allow_direct": True},
    "atomic": {"allow_atomic": True, "allow_rollup_hdrs": True, "allow_msg_ttl": True},
    "schedules": {"allow_msg_schedules": True, "allow_msg_ttl": True},
    "all": {"allow_msg_schedules": True, "allow_msg_ttl": True, "allow_atomic": True},
    "small": {"max_msg_size": 50, "allow_msg_ttl": True},
    "full": {"discard": "new", "max_msgs": 2, "allow_rollup_hdrs": True},
    "full subject": {
        "discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True, "allow_msg_ttl": True,
    },
    "full bytes": {"discard": "new", "max_bytes": 200, "allow_msg_ttl": True},
    "interest": {"retention": "interest", "allow_msg_ttl": True},
    "sealed": {"allow_msg_ttl": True},
    "transform": {"subject_transform": {"src": "z.*", "dest": "z.t.$1"}, "allow_msg_ttl": True},
    "fast": {"allow_batched": True, "allow_atomic": True},
}  # fmt: skip


BATCH = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
SCHEDULE = {"Nats-Schedule": "@at 2090-01-01T00:00:00Z", "Nats-Schedule-Target": "z.target"}
# A fast batch of one message that commits it.
FAST = {"reply": "ID.5.fail.1.2.$FI"}
# What a publish has before it is changed, besides nothing.
BASES: dict[str, list[dict[str, Any]]] = {
    "atomic": [BATCH],
    "schedules": [SCHEDULE],
    "all": [BATCH, SCHEDULE, {**BATCH, **SCHEDULE}],
    "counter": [{"Nats-Incr": "1"}],
    "fast": [BATCH, FAST],
    "small": [BATCH],
    "ttl": [{"Nats-TTL": "1h", "Nats-Rollup": "sub"}],
}


def publish_scenes() -> list[Scene]:
    """A publish to each kind of stream; two messages with ids are there."""
    found = []
    for name, config in KINDS.items():
        stream = {**PLAIN, **config}
        before: list[tuple[str, dict[str, Any]]] = [("STREAM.CREATE.Z", stream)]
        if name == "counter":
            before += [("z.a", {"Nats-Incr": "1"}), ("z.b", {"Nats-Incr": "2"})]
        else:
            before += [("z.a", {"Nats-Msg-Id": "one"}), ("z.b", {"Nats-Msg-Id": "two"})]
        if name == "sealed":
            before.append(("STREAM.UPDATE.Z", {**stream, "sealed": True}))
        for number, base in enumerate([{}, *BASES.get(name, ())]):
            label = f"publish {name} {number}"
            # Where a fast batch has only a duplicate, nats-server sometimes sends two answers.
            changes = [
                change
                for change in PUBLISH_CHANGES
                if base is not FAST or change.get("Nats-Msg-Id") in (None, "new")
            ]
            found.append(Scene(label, "z.a", base, changes, before))
    stream = {**PLAIN, "max_bytes": 500, "allow_msg_ttl": True, "allow_rollup_hdrs": True}
    before = [("STREAM.CREATE.Z", stream), ("z.a", {"Nats-Msg-Id": "one"})]
    found.append(Scene("publish bounded", "z.a", {}, PUBLISH_CHANGES, before, user="bounded"))
    return found
