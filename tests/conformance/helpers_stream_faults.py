"""Changes to configurations of streams and consumers, most of them faults, and scenes for them."""

from __future__ import annotations

from typing import Any

from helpers_faults import Change, Scene

SECOND = 1_000_000_000
TIME = "2020-01-01T00:00:00Z"
LONG = "x" * 4097
ZERO_CONSUMER = {"name": "", "deliver_subject": ""}


def one_of(name: str, *values: Any) -> list[Change]:
    """A change for each value of a field."""
    return [{name: value} for value in values]


def source(name: str = "O", **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def transform(src: str, dest: str) -> dict[str, str]:
    return {"src": src, "dest": dest}


SOURCE_FAULTS: list[dict[str, Any]] = [
    source(),
    source("NONE"),
    source(""),
    source("a.b"),
    source("Z"),
    source("M"),
    source("Y"),
    source(filter_subject="o.a"),
    source(filter_subject="o..a"),
    source(filter_subject="z.a"),
    source(opt_start_seq=2, opt_start_time=TIME),
    source(filter_subject="o.a", subject_transforms=[transform("o.b", "p.b")]),
    source(subject_transforms=[transform("o..b", "p.b")]),
    source(subject_transforms=[transform("o.*", "p.$2")]),
    source(subject_transforms=[transform("o.*", "p.*.*")]),
    source(subject_transforms=[transform("o.*", "p.$1"), transform("o.a", "q")]),
    source(subject_transforms=[transform("", "q")]),
    source(external={"api": "$JS.other.API", "deliver": "other"}),
    source(external={"api": "$JS.other.API", "deliver": "other.*"}),
    source(external={"api": "$JS.API", "deliver": ""}),
    source(external={"api": "$JS.*", "deliver": ""}),
    source("NONE", external={"api": "", "deliver": "x"}),
    source("", external={"api": "$JS.other.API", "deliver": ""}),
    source(consumer={"name": "c", "deliver_subject": "d"}),
    source(consumer={"name": "c.d", "deliver_subject": "d"}),
    source(consumer=ZERO_CONSUMER),
    source(consumer={"name": "c", "deliver_subject": "d.*"}),
    source(consumer={"name": "c", "deliver_subject": "d"}, opt_start_seq=3),
    source(consumer={"name": "c", "deliver_subject": "d"}, filter_subject="o.a"),
]
STREAM_CHANGES: list[Change] = [
    *one_of("name", "", "a.b", "a*", "a>", "a b", "a/b", "a\\b", "OTHER", "x" * 256, "a\tb", "O"),
    *one_of("description", LONG, "d"),
    *one_of("metadata", {"a": "x" * 131072}, {"_nats.req.level": "9"}, {"a": "b"}),
    *one_of(
        "subjects",
        [], [""], ["a..b"], ["z.>", "z.a"], ["z.a", "z.a"], ["o.a"], ["o.>", "q"], [">"], ["*"],
        ["$JS.API.>"], ["$JS.>"], ["$JS.EVENT.x"], ["$SYS.x"], ["$SYS.ACCOUNT.x"], ["$NRG.x"],
        ["a b"], [" "], ["z.>", "a..b"], ["a..b", "z.>", "z.a"], ["$KV.b.>"],
    ),
    *one_of("retention", "workqueue", "interest", "bad", 5),
    *one_of("discard", "new", "bad"),
    *one_of("storage", "file", "memory", "bad"),
    *one_of("num_replicas", -1, 0, 1, 3, 6),
    *one_of("max_msgs", -2, 0, 5),
    *one_of("max_bytes", -2, 400, 501, 1400, 2000, 2_000_000),
    *one_of("max_msgs_per_subject", -2, 1),
    *one_of("max_msg_size", -2, 50, 500),
    *one_of("max_consumers", -2, 1, 5),
    *one_of("max_age", -1, 1, 50_000_000, SECOND),
    *one_of("duplicate_window", -1, 1, 60 * SECOND, 7200 * SECOND),
    *one_of("no_ack", True),
    *one_of("placement", {"cluster": "c"}, {"tags": ["a"]}, {"preferred": "p"}),
    *one_of("mirror", *SOURCE_FAULTS),
    *([{"sources": [each]} for each in SOURCE_FAULTS]),
    *one_of(
        "sources",
        [source(), source()],
        [source("NONE"), source("a.b")],
        [source(consumer={"name": "c", "deliver_subject": "d"}),
         source(consumer={"name": "c", "deliver_subject": "e"},
                subject_transforms=[transform("o.*", "p.$1")])],
    ),
    *one_of("compression", "s2", "bad"),
    *one_of("first_seq", 5),
    *one_of(
        "subject_transform",
        transform("z.*", "y.$1"), transform("z.*", "y.$2"), transform("z..a", "y"),
        transform("", ""), transform("z.>", "y.*"), transform("z.>", "z.>"),
    ),
    *one_of(
        "republish",
        transform("z.*", "y.$1"), transform("z.>", "z.a"), transform("", "r.>"),
        transform("z.*", "y.$2"), transform("z..a", "y"), transform(">", ">"),
        transform("z.*", "y.*.*"),
    ),
    *one_of("allow_direct", True),
    *one_of("mirror_direct", True),
    *one_of("discard_new_per_subject", True),
    *one_of("sealed", True, False),
    *one_of("deny_delete", True),
    *one_of("deny_purge", True),
    *one_of("allow_rollup_hdrs", True),
    *one_of("consumer_limits", {"max_ack_pending": 5}, {"inactive_threshold": SECOND},
            {"max_ack_pending": -1}, {"inactive_threshold": -1}, {"max_ack_pending": 5000}),
    *one_of("allow_msg_ttl", True),
    *one_of("subject_delete_marker_ttl", -1, 1, SECOND, 3 * SECOND),
    *one_of("allow_msg_counter", True),
    *one_of("allow_atomic", True),
    *one_of("allow_batched", True),
    *one_of("allow_msg_schedules", True),
    *one_of("persist_mode", "async", "default", "bad"),
    *one_of("pedantic", True),
]  # fmt: skip
# Several fields that make sense together, and the way key-value buckets are made.
STREAM_CHANGES += [
    {"subjects": [], "mirror": source()},
    {"subjects": [], "mirror": source("M")},
    {"subjects": [], "mirror": source(), "mirror_direct": True},
    {"subjects": [], "mirror": source("NONE"), "mirror_direct": True},
    {"subjects": [], "sources": [source()]},
    {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1},
    {"allow_msg_counter": True, "allow_direct": True},
    {
        "name": "KV_b", "subjects": ["$KV.b.>"], "max_msgs_per_subject": 1, "discard": "new",
        "allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True,
    },
]  # fmt: skip
PLAIN = {"name": "Z", "subjects": ["z.>"], "storage": "memory"}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    (
        "STREAM.CREATE.O",
        {"name": "O", "subjects": ["o.>"], "storage": "memory", "max_msg_size": 100,
         "allow_direct": True, "max_bytes": 100},
    ),
    ("STREAM.CREATE.M", {"name": "M", "mirror": source(), "storage": "memory", "max_bytes": 100}),
    (
        "STREAM.CREATE.Y",
        {"name": "Y", "subjects": ["yy"], "sources": [source("Z")], "storage": "memory",
         "max_bytes": 100},
    ),
]  # fmt: skip
OLD_STREAMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "file": {"storage": "file"},
    "work queue": {"retention": "workqueue"},
    "interest": {"retention": "interest"},
    "sealed later": {"deny_delete": True, "deny_purge": True},
    "counter": {"allow_msg_counter": True, "allow_direct": True},
    "times": {"allow_msg_ttl": True, "subject_delete_marker_ttl": SECOND},
    "schedules": {"allow_msg_schedules": True},
    "mirror": {"subjects": [], "mirror": source(), "mirror_direct": True},
    "sources": {"sources": [source()]},
    "async": {"storage": "file", "persist_mode": "async"},
    "bounded": {"max_bytes": 400, "max_age": 10 * SECOND, "duplicate_window": SECOND},
    "new": {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1},
}


def stream_scenes() -> list[Scene]:
    """STREAM.CREATE, STREAM.UPDATE and STREAM.RESTORE."""
    bounded = {**PLAIN, "max_bytes": 200}
    found = [
        Scene("create", "STREAM.CREATE.Z", PLAIN, STREAM_CHANGES, OTHERS),
        Scene("create bounded", "STREAM.CREATE.Z", bounded, STREAM_CHANGES, OTHERS, user="bounded"),
        Scene(
            "create one too many", "STREAM.CREATE.Z", bounded, STREAM_CHANGES,
            [*OTHERS, ("STREAM.CREATE.X", {"name": "X", "storage": "memory", "max_bytes": 100})],
            user="bounded",
        ),
        Scene(
            "create what is there", "STREAM.CREATE.Z", PLAIN, STREAM_CHANGES,
            [*OTHERS, ("STREAM.CREATE.Z", PLAIN)],
        ),
        Scene(
            "restore", "STREAM.RESTORE.Z", {"config": PLAIN, "state": {}},
            # nats-server refuses replicas after the upload.
            [change for change in STREAM_CHANGES if change != {"num_replicas": 3}],
            OTHERS, config="config",
        ),
        Scene("update nothing", "STREAM.UPDATE.Z", PLAIN, STREAM_CHANGES, OTHERS),
    ]  # fmt: skip
    for name, config in OLD_STREAMS.items():
        old = {**PLAIN, **config}
        before = [*OTHERS, ("STREAM.CREATE.Z", old)]
        if name == "sealed later":
            before.append(("STREAM.UPDATE.Z", {**old, "sealed": True}))
            old = {**old, "sealed": True}
        if name == "plain":
            limits = {"ack_policy": "explicit", "max_ack_pending": 100, "durable_name": "c"}
            before.append(("CONSUMER.CREATE.Z.c", {"stream_name": "Z", "config": limits}))
        found.append(Scene(f"update {name}", "STREAM.UPDATE.Z", old, STREAM_CHANGES, before))
    before = [*OTHERS, ("STREAM.CREATE.Z", bounded)]
    found.append(
        Scene(
            "update in bounds", "STREAM.UPDATE.Z", bounded, STREAM_CHANGES, before, user="bounded"
        )
    )
    return found


CONSUMER_CHANGES: list[Change] = [
    *one_of("durable_name", "", "c", "d", "c.d", "a/b", "x" * 256, "c*", "c d"),
    *one_of("name", "", "c", "d", "c.d", "a/b", "c>"),
    *one_of("description", LONG, "d"),
    *one_of("deliver_policy", "last", "new", "by_start_sequence", "by_start_time",
            "last_per_subject", "bad"),
    *one_of("opt_start_seq", 1, 3),
    *one_of("opt_start_time", TIME),
    *one_of("ack_policy", "none", "all", "explicit", "flow_control", "bad"),
    *one_of("ack_wait", -1, 1, SECOND),
    *one_of("max_deliver", -2, 0, 1, 3),
    *one_of("backoff", [-1], [SECOND], [SECOND, 2 * SECOND], [0], [3, 2, 1]),
    *one_of("filter_subject", "z.a", "z.*", "z..a", "o.a", " ", ">"),
    *one_of("filter_subjects", ["z.a"], ["z.a", "z.b"], ["z.a", "z.*"], [""], ["z.a", ""],
            ["z..a", "z.b"], ["z.a", "z.a"], ["o.a"]),
    *one_of("replay_policy", "original", "bad"),
    *one_of("rate_limit_bps", 1000),
    *one_of("sample_freq", "10", "10%", "x", "-1", "99999999999999999999"),
    *one_of("max_waiting", -1, 1),
    *one_of("max_ack_pending", -2, -1, 5, 11, 1500, 3000),
    *one_of("flow_control", True),
    *one_of("headers_only", True),
    *one_of("max_batch", -1, 5, 1000),
    *one_of("max_expires", -1, 1, SECOND),
    *one_of("max_bytes", -1, 5),
    *one_of("deliver_subject", "d", "d.*", "d..e", "z.a", "z.>", "$JS.ACK.x", "d e"),
    *one_of("deliver_group", "g", "g g"),
    *one_of("idle_heartbeat", -1, 1, SECOND),
    *one_of("inactive_threshold", -1, 1, SECOND, 100 * SECOND),
    *one_of("num_replicas", -1, 1, 2, 6),
    *one_of("mem_storage", True),
    *one_of("direct", True),
    *one_of("sourcing", True),
    *one_of("metadata", {"a": "x" * 131072}, {"_nats.req.level": "9"}, {"a": "b"}),
    *one_of("pause_until", "2090-01-01T00:00:00Z", TIME),
    *one_of("priority_groups", ["g"], [""], ["g h"], ["x" * 17], ["g", "h"]),
    *one_of("priority_policy", "pinned_client", "overflow", "prioritized", "bad"),
    *one_of("priority_timeout", -1, 1, SECOND),
    *one_of("stream_name", "", "OTHER", "NONE"),
    *one_of("action", "create", "update", "bad"),
    *one_of("pedantic", True),
    {"deliver_subject": "d", "flow_control": True, "idle_heartbeat": SECOND},
    {"deliver_subject": "d", "ack_policy": "flow_control"},
    {"priority_groups": ["g"], "priority_policy": "pinned_client"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 2},
    {"deliver_policy": "by_start_time", "opt_start_time": TIME},
]  # fmt: skip
CONSUMER = {"ack_policy": "explicit"}
BESIDE = frozenset(("stream_name", "action", "pedantic"))
PARENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "work queue": {"retention": "workqueue"},
    "interest": {"retention": "interest"},
    "limits": {"consumer_limits": {"max_ack_pending": 10, "inactive_threshold": SECOND}},
    "full": {"max_consumers": 1},
    "mirror": {"subjects": [], "mirror": source()},
}
OLD_CONSUMERS: dict[str, dict[str, Any]] = {
    "pull": CONSUMER,
    "push": {**CONSUMER, "deliver_subject": "d", "idle_heartbeat": SECOND, "flow_control": True},
    "start": {**CONSUMER, "deliver_policy": "by_start_sequence", "opt_start_seq": 2},
    "group": {**CONSUMER, "priority_groups": ["g"], "priority_policy": "pinned_client"},
    "backoff": {**CONSUMER, "backoff": [SECOND, 2 * SECOND], "max_deliver": 3},
    "none": {"ack_policy": "none"},
    "flow": {"ack_policy": "flow_control", "deliver_subject": "d"},
}


def _create(name: str, config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    named = {**config, "durable_name": name}
    return f"CONSUMER.CREATE.Z.{name}", {"stream_name": "Z", "config": named}


def consumer_scenes() -> list[Scene]:
    """All ways to create and to change consumers."""
    ways = (
        ("CONSUMER.CREATE.Z", {}),
        ("CONSUMER.CREATE.Z.c", {"name": "c"}),
        ("CONSUMER.CREATE.Z.c.z.a", {"name": "c", "filter_subject": "z.a"}),
        ("CONSUMER.DURABLE.CREATE.Z.c", {"durable_name": "c"}),
        ("CONSUMER.CREATE.NONE.c", {"name": "c"}),
    )
    found = []
    for parent, config in PARENTS.items():
        stream = {**PLAIN, **config}
        before: list[tuple[str, dict[str, Any]]] = [*OTHERS, ("STREAM.CREATE.Z", stream)]
        if parent in ("work queue", "full"):
            before.append(_create("first", {**CONSUMER, "filter_subject": "z.a"}))
        for way, base in ways:
            found.append(_consumer_scene(f"{way} {parent}", way, base, before))
    for label, old in OLD_CONSUMERS.items():
        for parent in ("plain", "work queue"):
            if parent == "work queue" and label not in ("pull", "push", "group"):
                continue
            before = [*OTHERS, ("STREAM.CREATE.Z", {**PLAIN, **PARENTS[parent]}), _create("c", old)]
            base = {**old, "durable_name": "c"}
            way = "CONSUMER.CREATE.Z.c"
            found.append(_consumer_scene(f"change {label} {parent}", way, base, before))
    before = [*OTHERS, ("STREAM.CREATE.Z", {**PLAIN, "max_bytes": 200})]
    before += [_create(name, CONSUMER) for name in ("i", "j", "k")]
    for way, base in ways:
        found.append(_consumer_scene(f"{way} bounded full", way, base, before, "bounded"))
        found.append(_consumer_scene(f"{way} bounded", way, base, before[:4], "bounded"))
    return found


def _consumer_scene(
    name: str, way: str, base: dict[str, Any], before: Any, user: str = "open"
) -> Scene:
    stream = "NONE" if ".NONE." in way else "Z"
    request = {"stream_name": stream, "config": {**CONSUMER, **base}}
    return Scene(name, way, request, CONSUMER_CHANGES, before, "config", BESIDE, user)
