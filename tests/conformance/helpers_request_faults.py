"""Requests about messages, consumers and backups with fields that contradict each other."""

from __future__ import annotations

from typing import Any

from helpers_faults import Change, Scene, Step
from helpers_stream_faults import PLAIN, one_of, source

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
TIMES = ("2020-01-01T00:00:00Z", "2090-01-01T00:00:00Z")
GET: list[Change] = [
    *one_of("seq", 0, 1, 2, 3, 9),
    *one_of("last_by_subj", "", "z.a", "z.none", "z.*", "z..a", "other", " "),
    *one_of("next_by_subj", "", "z.b", "z.none", "z.>", "z..a"),
    *one_of("batch", -1, 0, 1, 2, 2000),
    *one_of("max_bytes", -1, 1, 1000),
    *one_of("start_time", *TIMES),
    *one_of("multi_last", [], ["z.a"], ["z.a", "z.b"], ["z.>"], ["z..a"], [""], ["none"]),
    *one_of("up_to_seq", 1, 2, 9),
    *one_of("up_to_time", *TIMES),
    *one_of("no_hdr", True),
]
NEXT: list[Change] = [
    *one_of("batch", -1, 0, 1, 5, 6, 501),
    *one_of("expires", -1, 10 * MILLISECOND, 20 * MILLISECOND),
    *one_of("max_bytes", 1, 100, 5000),
    *one_of("idle_heartbeat", -1, 1, 9 * MILLISECOND, SECOND),
    *one_of("group", "", "g", "h"),
    *one_of("min_pending", -1, 1),
    *one_of("min_ack_pending", -1, 1),
    *one_of("id", "", "x"),
    *one_of("priority", -1, 1, 9, 10),
]
PLAIN_REQUESTS: dict[str, tuple[dict[str, Any], list[Change]]] = {
    "STREAM.PURGE.Z": (
        {},
        [
            *one_of("seq", 0, 1, 2, 9),
            *one_of("keep", 0, 1, 9),
            *one_of("filter", "", "z.a", "z.*", "z..a", "other", ">", " "),
        ],
    ),
    "STREAM.MSG.DELETE.Z": (
        {"seq": 1},
        [*one_of("seq", 0, 1, 2, 9), *one_of("no_erase", True, False)],
    ),
    "STREAM.MSG.GET.Z": ({}, GET),
    "DIRECT.GET.Z": ({}, GET),
    "STREAM.INFO.Z": (
        {},
        [
            *one_of("offset", -1, 0, 1, 9),
            *one_of("deleted_details", True),
            *one_of("subjects_filter", "", "z.a", ">", "z..a", "none"),
        ],
    ),
    "STREAM.SNAPSHOT.Z": (
        {"deliver_subject": ""},
        [
            *one_of("deliver_subject", "", "a.*", "a..b", " ", ">"),
            *one_of("chunk_size", -1, 1, 2_000_000),
            *one_of("window_size", -1, 1, 100_000_000),
            *one_of("no_consumers", True),
            *one_of("jsck", True),
        ],
    ),
    "STREAM.NAMES": (
        {},
        [*one_of("offset", -1, 0, 5), *one_of("subject", "", "z.a", "z..a", ">", "none")],
    ),
    "CONSUMER.NAMES.Z": ({}, one_of("offset", -1, 0, 1, 5)),
    "CONSUMER.PAUSE.Z.c": ({}, one_of("pause_until", *TIMES, "")),
    "CONSUMER.RESET.Z.c": ({}, one_of("seq", 0, 1, 2, 9)),
    "CONSUMER.UNPIN.Z.c": ({}, one_of("group", "", "g", "h", "g h", "x" * 17)),
    "CONSUMER.MSG.NEXT.Z.c": ({"no_wait": True}, NEXT),
}
# What the stream of a request is like, and its consumer.
STREAMS: dict[str, dict[str, Any]] = {
    "plain": {"allow_direct": True},
    "no direct": {},
    "denied": {"deny_delete": True, "deny_purge": True, "allow_direct": True},
    "sealed": {"allow_direct": True},
    "file": {"storage": "file", "allow_direct": True},
    "mirror": {"subjects": [], "mirror": source(), "mirror_direct": True, "allow_direct": True},
}
CONSUMERS: dict[str, dict[str, Any]] = {
    "pull": {},
    "pinned": {"priority_groups": ["g"], "priority_policy": "pinned_client"},
    "overflow": {"priority_groups": ["g"], "priority_policy": "overflow"},
    "prioritized": {"priority_groups": ["g"], "priority_policy": "prioritized"},
    "bounded": {
        "max_batch": 5,
        "max_expires": 15 * MILLISECOND,
        "max_bytes": 100,
        "max_waiting": 1,
    },
    "push": {"deliver_subject": "d"},
    "start": {"deliver_policy": "by_start_sequence", "opt_start_seq": 2},
    "new": {"deliver_policy": "new"},
}


def request_scenes() -> list[Scene]:
    """Each request in each kind of stream, and those about consumers for each kind of consumer."""
    found = []
    for subject, (base, changes) in PLAIN_REQUESTS.items():
        if subject.startswith("CONSUMER."):
            for kind, config in CONSUMERS.items():
                # Nobody pulls from a consumer that pushes.
                if kind != "push" or ".NEXT." not in subject:
                    before = (*_stream("plain"), _consumer(config))
                    found.append(Scene(f"{subject} {kind}", subject, base, changes, before))
            continue
        for kind in STREAMS:
            # A stream that answers no direct requests has no responders; a mirror needs time.
            if kind != "mirror" or subject.startswith("STREAM.PURGE"):
                before = _stream(kind)
                found.append(Scene(f"{subject} {kind}", subject, base, changes, before))
    return found


def _consumer(config: dict[str, Any]) -> Step:
    body = {"ack_policy": "explicit", "durable_name": "c", **config}
    return "CONSUMER.CREATE.Z.c", {"stream_name": "Z", "config": body}


def _stream(kind: str) -> tuple[Step, ...]:
    config = {**PLAIN, **STREAMS[kind]}
    steps: list[Step] = [
        ("STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"], "storage": "memory"})
    ]
    steps.append(("STREAM.CREATE.Z", config))
    if kind == "mirror":
        return tuple(steps)
    steps += [("z.a", {}), ("z.b", {"X": "y"}), ("z.a", {})]
    if kind == "sealed":
        steps.append(("STREAM.UPDATE.Z", {**config, "sealed": True}))
    return tuple(steps)
