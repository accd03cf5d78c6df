"""The fields of streams and consumers as forms show them: label, group, hint.

Owns the words. The kind of value comes from `api.field_shapes`, so a field is declared once; the
test `test_config_entries` fails if a field of a configuration has no row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

NO_LIMIT: Final = -1


class ConfigField(msgspec.Struct, frozen=True):
    """A field of a form. `path` is its place in the configuration, joined by dots.

    `empty` is the number that an empty text means. `is_fixed` says that no server changes it later.
    """

    path: str
    label: str
    hint: str = ""
    empty: int = 0
    is_fixed: bool = False
    is_required: bool = False
    options: tuple[tuple[str, str], ...] = ()
    # The value in the form for something new, where that is not the one of the configuration.
    start: str = ""


class FieldGroup(msgspec.Struct, frozen=True):
    """Fields under one heading. `is_open` says that the form shows them at once."""

    title: str
    fields: tuple[ConfigField, ...]
    is_open: bool = False


_KINDS: Final = (("file", "On disk"), ("memory", "In memory"))
_RETENTIONS: Final = (
    ("limits", "a limit removes them"),
    ("interest", "every consumer has acknowledged them"),
    ("workqueue", "one consumer has acknowledged them"),
)
_UNTIL: Final = "For example 24h or 7 days. Empty: no limit"
_BYTES: Final = "For example 512 MiB. Empty: no limit"
_ANY: Final = "Empty: no limit"
_DEFAULT: Final = "Empty: the server's default"
_AS_JSON: Final = "As JSON; empty: none"

STREAM_GROUPS: Final[tuple[FieldGroup, ...]] = (
    FieldGroup(
        "Stream",
        (
            ConfigField(
                "name",
                "Name",
                "No blanks, dots, slashes or wildcards",
                is_fixed=True,
                is_required=True,
            ),
            ConfigField("subjects", "Subjects", "Joined by commas: orders.*, events.>"),
            ConfigField("description", "Description"),
            ConfigField("storage", "Storage", is_fixed=True, options=_KINDS),
            ConfigField("retention", "Keep messages until", options=_RETENTIONS),
            ConfigField("num_replicas", "Replicas", "3 in a cluster. Empty: 1", empty=1),
        ),
        is_open=True,
    ),
    FieldGroup(
        "Limits",
        (
            ConfigField("max_age", "Maximum age", _UNTIL),
            ConfigField("max_bytes", "Maximum size", _BYTES, empty=NO_LIMIT),
            ConfigField("max_msgs", "Maximum messages", _ANY, empty=NO_LIMIT),
            ConfigField(
                "max_msgs_per_subject", "Maximum messages per subject", _ANY, empty=NO_LIMIT
            ),
            ConfigField("max_msg_size", "Maximum size of a message", _BYTES, empty=NO_LIMIT),
            ConfigField("max_consumers", "Maximum consumers", _ANY, empty=NO_LIMIT),
            ConfigField(
                "discard",
                "At a limit",
                options=(
                    ("old", "remove the oldest messages"),
                    ("new", "refuse new messages"),
                ),
            ),
            ConfigField(
                "discard_new_per_subject", "Refuse new messages at the limit per subject, too"
            ),
        ),
        is_open=True,
    ),
    FieldGroup(
        "Publishing",
        (
            ConfigField(
                "duplicate_window", "Window for duplicates", "For example 2m. Empty: the default"
            ),
            ConfigField("no_ack", "Do not acknowledge messages"),
            ConfigField("allow_msg_ttl", "Messages may have their own time to live"),
            ConfigField(
                "subject_delete_marker_ttl",
                "Markers of removed subjects stay for",
                "For example 1h. Empty: no markers",
            ),
            ConfigField("allow_rollup_hdrs", "A message may replace all before it (roll-up)"),
            ConfigField("allow_msg_counter", "Messages are counters", is_fixed=True),
            ConfigField("allow_msg_schedules", "Messages may be scheduled"),
            ConfigField("allow_atomic", "Batches may be published atomically"),
            ConfigField("allow_batched", "Batches may be published without waiting"),
            ConfigField(
                "persist_mode",
                "An acknowledgement",
                is_fixed=True,
                options=(
                    ("default", "waits for the disk"),
                    ("async", "does not wait for the disk"),
                ),
            ),
        ),
    ),
    FieldGroup(
        "Reading and removing",
        (
            ConfigField("allow_direct", "Allow direct reads, also from replicas", start="1"),
            ConfigField("mirror_direct", "Allow direct reads from a mirror"),
            ConfigField("deny_delete", "Messages cannot be deleted (for good)"),
            ConfigField("deny_purge", "The stream cannot be purged (for good)"),
            ConfigField(
                "consumer_limits.inactive_threshold", "Consumers end if unused for", _UNTIL
            ),
            ConfigField(
                "consumer_limits.max_ack_pending", "Unacknowledged messages per consumer", _ANY
            ),
        ),
    ),
    FieldGroup(
        "Subjects and copies",
        (
            ConfigField("subject_transform.src", "Rename subjects from", "For example orders.*"),
            ConfigField("subject_transform.dest", "to", "For example sales.{{wildcard(1)}}"),
            ConfigField("republish.src", "Publish stored messages again from", "Empty: all"),
            ConfigField("republish.dest", "as", "For example copy.>. Empty: they are not"),
            ConfigField("republish.headers_only", "Publish only their headers"),
            ConfigField("mirror.name", "Mirror of the stream"),
            ConfigField("mirror.filter_subject", "Mirror only the subject", "Empty: all"),
            ConfigField("mirror.opt_start_seq", "Mirror from sequence", "Empty: the first"),
            ConfigField("mirror.opt_start_time", "Mirror from time", "2026-01-31 12:00 (UTC)"),
            ConfigField("mirror.external.api", "API prefix of the origin", "$JS.hub.API"),
            ConfigField("mirror.external.deliver", "Delivery prefix of the origin"),
            ConfigField("mirror.consumer.name", "Consumer of the mirror"),
            ConfigField("mirror.consumer.deliver_subject", "Delivery subject of that consumer"),
            ConfigField("mirror.subject_transforms", "Renamed subjects of the mirror", _AS_JSON),
            ConfigField(
                "sources",
                "Sources",
                'As JSON, for example [{"name": "ORDERS_EU"}, {"name": "ORDERS_US"}]',
            ),
        ),
    ),
    FieldGroup(
        "Storage and placement",
        (
            ConfigField(
                "compression",
                "Compression on disk",
                options=(("none", "none"), ("s2", "S2")),
            ),
            ConfigField("first_seq", "First sequence", "Empty: 1", is_fixed=True),
            ConfigField("placement.cluster", "Cluster"),
            ConfigField("placement.tags", "Servers with these tags", "Joined by commas"),
            ConfigField(
                "metadata", "Metadata", "A line per entry: key = value. tradewind.* are settings"
            ),
        ),
    ),
)
# Sealing is for good and has a page of its own; servers refuse a preferred leader here.
STREAM_LEFT_OUT: Final = frozenset(("sealed", "placement.preferred"))

CONSUMER_GROUPS: Final[tuple[FieldGroup, ...]] = (
    FieldGroup(
        "Consumer",
        (
            ConfigField(
                "name",
                "Name",
                "No blanks, dots, slashes or wildcards",
                is_fixed=True,
                is_required=True,
            ),
            ConfigField("description", "Description"),
            ConfigField("filter_subjects", "Only these subjects", "Joined by commas. Empty: all"),
            ConfigField(
                "deliver_policy",
                "Start with",
                is_fixed=True,
                options=(
                    ("all", "the first message"),
                    ("new", "the next message"),
                    ("last", "the last message"),
                    ("last_per_subject", "the last message of each subject"),
                    ("by_start_sequence", "a sequence"),
                    ("by_start_time", "a time"),
                ),
            ),
            ConfigField("opt_start_seq", "Start sequence", "If it starts there", is_fixed=True),
            ConfigField("opt_start_time", "Start time", "2026-01-31 12:00 (UTC)", is_fixed=True),
        ),
        is_open=True,
    ),
    FieldGroup(
        "Acknowledgements",
        (
            ConfigField(
                "ack_policy",
                "Clients acknowledge",
                is_fixed=True,
                options=(
                    ("explicit", "each message"),
                    ("all", "a message and all before it"),
                    ("none", "nothing"),
                    ("flow_control", "by flow control"),
                ),
            ),
            ConfigField("ack_wait", "Redeliver if not acknowledged within", _DEFAULT, start="30s"),
            ConfigField("max_deliver", "Maximum deliveries of a message", _ANY, empty=NO_LIMIT),
            ConfigField(
                "max_ack_pending",
                "Maximum unacknowledged messages",
                "-1: no limit. Empty: the server's default",
                start="1000",
            ),
            ConfigField("backoff", "Waits between deliveries", "For example 1s, 10s, 1m"),
            ConfigField("sample_freq", "Report acknowledgements", "For example 10%. Empty: none"),
        ),
        is_open=True,
    ),
    FieldGroup(
        "Push",
        (
            ConfigField("deliver_subject", "Push to this subject", "Empty: clients pull"),
            ConfigField("deliver_group", "Queue group of the push"),
            ConfigField("flow_control", "Flow control", is_fixed=True),
            ConfigField("idle_heartbeat", "Heartbeat if idle", "For example 5s", is_fixed=True),
            ConfigField("rate_limit_bps", "Maximum bits per second", _ANY),
            ConfigField(
                "replay_policy",
                "Pace",
                is_fixed=True,
                options=(("instant", "as fast as possible"), ("original", "as published")),
            ),
        ),
    ),
    FieldGroup(
        "Pull",
        (
            ConfigField("max_waiting", "Maximum waiting requests", _DEFAULT, is_fixed=True),
            ConfigField("max_batch", "Maximum messages of a request", _ANY),
            ConfigField("max_bytes", "Maximum bytes of a request", _BYTES),
            ConfigField("max_expires", "Longest wait of a request", _UNTIL),
            ConfigField("priority_groups", "Priority groups", "Joined by commas"),
            ConfigField(
                "priority_policy",
                "Requests of a group are served",
                options=(
                    ("none", "without priorities"),
                    ("overflow", "if there is too much for others"),
                    ("pinned_client", "one client at a time"),
                    ("prioritized", "by their priority"),
                ),
            ),
            ConfigField("priority_timeout", "A pinned client is lost after", _DEFAULT),
        ),
    ),
    FieldGroup(
        "Life and storage",
        (
            ConfigField(
                "inactive_threshold", "Remove if unused for", "For example 5m. Empty: never"
            ),
            ConfigField("pause_until", "Paused until", "2026-01-31 12:00 (UTC). Empty: it runs"),
            ConfigField("headers_only", "Deliver only headers"),
            ConfigField("num_replicas", "Replicas", "Empty: as the stream"),
            ConfigField("mem_storage", "Keep its state in memory", is_fixed=True),
            ConfigField(
                "metadata", "Metadata", "A line per entry: key = value. tradewind.* are settings"
            ),
        ),
    ),
)
# The first is another word for `name`, the second is part of `filter_subjects`, and servers set
# the others for their own consumers.
CONSUMER_LEFT_OUT: Final = frozenset(("durable_name", "filter_subject", "direct", "sourcing"))


def fields_of(groups: tuple[FieldGroup, ...]) -> Mapping[str, ConfigField]:
    """The fields of a form by their paths."""
    return {field.path: field for group in groups for field in group.fields}
