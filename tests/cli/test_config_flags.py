"""Each field of a configuration has a flag and a line in the output, or is named here."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo
from tradewind.api.stream_types import StreamConfig
from tradewind.cli.consumers import consumer_details, consumer_flags
from tradewind.cli.consumers.consumer_flags import ConsumerFlags
from tradewind.cli.frame.config_files import changed_members
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.output import Columns
from tradewind.cli.streams import stream_details, stream_flags
from tradewind.cli.streams.stream_flags import StreamFlags

HOUR_NS: Final = 3_600_000_000_000
# A field, the flags that set it, and what they make of it.
STREAM_CASES: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "description": ({"description": "text"}, "text"),
    "subjects": ({"subjects": ["a,b", "c"]}, ["a", "b", "c"]),
    "retention": ({"retention": "workqueue"}, "workqueue"),
    "max_consumers": ({"max_consumers": 3}, 3),
    "max_msgs": ({"max_msgs": 3}, 3),
    "max_bytes": ({"max_bytes": "1KiB"}, 1024),
    "max_age": ({"max_age": "1h"}, HOUR_NS),
    "max_msgs_per_subject": ({"max_msgs_per_subject": 3}, 3),
    "max_msg_size": ({"max_msg_size": "1KiB"}, 1024),
    "discard": ({"discard": "new"}, "new"),
    "storage": ({"storage": "memory"}, "memory"),
    "num_replicas": ({"num_replicas": 3}, 3),
    "no_ack": ({"ack": False}, True),
    "duplicate_window": ({"duplicate_window": "1h"}, HOUR_NS),
    "placement": ({"cluster": "c", "tags": ["t"]}, {"cluster": "c", "tags": ["t"]}),
    "mirror": ({"mirror": "M"}, {"name": "M"}),
    "sources": ({"sources": ["A"]}, [{"name": "A"}]),
    "compression": ({"compression": "s2"}, "s2"),
    "first_seq": ({"first_seq": 3}, 3),
    "subject_transform": (
        {"transform_source": "a", "transform_destination": "b"},
        {"src": "a", "dest": "b"},
    ),
    "republish": (
        {"republish_source": "a", "republish_destination": "b", "republish_headers": True},
        {"src": "a", "dest": "b", "headers_only": True},
    ),
    "allow_direct": ({"allow_direct": True}, True),
    "mirror_direct": ({"mirror_direct": True}, True),
    "discard_new_per_subject": ({"discard_new_per_subject": True}, True),
    "deny_delete": ({"deny_delete": True}, True),
    "deny_purge": ({"deny_purge": True}, True),
    "allow_rollup_hdrs": ({"allow_rollup_hdrs": True}, True),
    "consumer_limits": (
        {"limit_inactive": "1h", "limit_pending": 3},
        {"inactive_threshold": HOUR_NS, "max_ack_pending": 3},
    ),
    "allow_msg_ttl": ({"allow_msg_ttl": True}, True),
    "subject_delete_marker_ttl": ({"subject_delete_marker_ttl": "1h"}, HOUR_NS),
    "allow_msg_counter": ({"allow_msg_counter": True}, True),
    "allow_atomic": ({"allow_atomic": True}, True),
    "allow_msg_schedules": ({"allow_msg_schedules": True}, True),
    "persist_mode": ({"persist_mode": "async"}, "async"),
    "allow_batched": ({"allow_batched": True}, True),
    "metadata": ({"metadata": ["a=1"]}, {"a": "1"}),
}
# The name is an argument; `tradewind stream seal` seals.
STREAM_WITHOUT_FLAG: Final = {"name", "sealed"}
CONSUMER_CASES: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "description": ({"description": "text"}, "text"),
    "deliver_policy": ({"deliver": "new"}, "new"),
    "opt_start_seq": ({"deliver": "3"}, 3),
    "opt_start_time": ({"deliver": "2026-01-02T03:04:05Z"}, "2026-01-02T03:04:05Z"),
    "ack_policy": ({"ack_policy": "explicit"}, "explicit"),
    "ack_wait": ({"ack_wait": "1h"}, HOUR_NS),
    "max_deliver": ({"max_deliver": 3}, 3),
    "backoff": (
        {"backoff": "linear", "backoff_steps": 2, "backoff_min": "1h", "backoff_max": "2h"},
        [HOUR_NS, 2 * HOUR_NS],
    ),
    "filter_subject": ({"filter_subjects": ["a"]}, "a"),
    "filter_subjects": ({"filter_subjects": ["a,b"]}, ["a", "b"]),
    "replay_policy": ({"replay_policy": "original"}, "original"),
    "rate_limit_bps": ({"rate_limit_bps": 3}, 3),
    "sample_freq": ({"sample": 3}, "3%"),
    "max_waiting": ({"max_waiting": 3}, 3),
    "max_ack_pending": ({"max_ack_pending": 3}, 3),
    "flow_control": ({"flow_control": True}, True),
    "headers_only": ({"headers_only": True}, True),
    "max_batch": ({"max_batch": 3}, 3),
    "max_expires": ({"max_expires": "1h"}, HOUR_NS),
    "max_bytes": ({"max_bytes": "1KiB"}, 1024),
    "deliver_subject": ({"deliver_subject": "d"}, "d"),
    "deliver_group": ({"deliver_group": "g"}, "g"),
    "idle_heartbeat": ({"idle_heartbeat": "1h"}, HOUR_NS),
    "inactive_threshold": ({"inactive_threshold": "1h"}, HOUR_NS),
    "num_replicas": ({"num_replicas": 3}, 3),
    "mem_storage": ({"mem_storage": True}, True),
    "metadata": ({"metadata": ["a=1"]}, {"a": "1"}),
    "pause_until": ({"pause_until": "2026-01-02T03:04:05Z"}, "2026-01-02T03:04:05Z"),
    "priority_groups": ({"overflow_groups": ["a,b"]}, ["a", "b"]),
    "priority_policy": ({"prioritized_groups": ["a"]}, "prioritized"),
    "priority_timeout": ({"pinned_ttl": "1h"}, HOUR_NS),
}
# Names are arguments; `direct` and `sourcing` are set by clients and servers.
CONSUMER_WITHOUT_FLAG: Final = {"name", "durable_name", "direct", "sourcing"}
# The name is in the title, as with nats.
STREAM_NOT_SHOWN: Final = {"name"}
# As with nats, the name stands for both; `direct` and `sourcing` are set by clients and servers.
# A pause is shown while it lasts, a start beside the policy that asks for it.
CONSUMER_NOT_SHOWN: Final = {
    *("name", "durable_name", "direct", "sourcing", "pause_until"),
    *("opt_start_seq", "opt_start_time"),
}
DURATIONS: Final = {
    StreamConfig: {"max_age", "duplicate_window", "subject_delete_marker_ttl"},
    ConsumerConfig: {
        *("ack_wait", "max_expires", "idle_heartbeat", "inactive_threshold", "priority_timeout"),
    },
}


def test_every_field_has_a_flag_or_a_reason() -> None:
    assert set(STREAM_CASES) | STREAM_WITHOUT_FLAG == set(StreamConfig.__struct_fields__)
    assert set(CONSUMER_CASES) | CONSUMER_WITHOUT_FLAG == set(ConsumerConfig.__struct_fields__)


def test_a_flag_of_a_stream_sets_its_field() -> None:
    for name, (flags, value) in STREAM_CASES.items():
        config = stream_flags.apply_flags(StreamConfig(), StreamFlags(**flags))
        assert msgspec.to_builtins(config)[name] == value, name


def test_a_flag_of_a_consumer_sets_its_field() -> None:
    for name, (flags, value) in CONSUMER_CASES.items():
        config = consumer_flags.apply_flags(ConsumerConfig(), ConsumerFlags(**flags))
        assert msgspec.to_builtins(config)[name] == value, name


def test_flags_that_are_not_given_change_nothing() -> None:
    stream = stream_flags.apply_flags(StreamConfig(), StreamFlags())
    for flags, _ in STREAM_CASES.values():
        stream = stream_flags.apply_flags(stream, StreamFlags(**flags))
    assert stream_flags.apply_flags(stream, StreamFlags()) == stream
    consumer = ConsumerConfig()
    for flags, _ in CONSUMER_CASES.values():
        consumer = consumer_flags.apply_flags(consumer, ConsumerFlags(**flags))
    assert consumer_flags.apply_flags(consumer, ConsumerFlags()) == consumer


def applied(flags: StreamFlags | ConsumerFlags) -> StreamConfig | ConsumerConfig:
    if isinstance(flags, StreamFlags):
        return stream_flags.apply_flags(StreamConfig(), flags)
    return consumer_flags.apply_flags(ConsumerConfig(), flags)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (StreamFlags(max_age="soon"), "--max-age must be a duration such as"),
        (StreamFlags(duplicate_window="soon"), "--dupe-window must be a duration such as"),
        (
            StreamFlags(subject_delete_marker_ttl="soon"),
            "--subject-del-markers-ttl must be a duration such as",
        ),
        (StreamFlags(max_bytes="much"), "--max-bytes must be a size such as"),
        (StreamFlags(max_msg_size="much"), "--max-msg-size must be a size such as"),
        (ConsumerFlags(ack_wait="soon"), "--wait must be a duration such as"),
        (ConsumerFlags(idle_heartbeat="soon"), "--heartbeat must be a duration such as"),
        (ConsumerFlags(max_expires="soon"), "--max-pull-expire must be a duration such as"),
        (
            ConsumerFlags(inactive_threshold="soon"),
            "--inactive-threshold must be a duration such as",
        ),
        (ConsumerFlags(max_bytes="much"), "--max-pull-bytes must be a size such as"),
    ],
)
def test_an_error_names_the_flag(flags: StreamFlags | ConsumerFlags, error: str) -> None:
    with pytest.raises(CommandError) as caught:
        applied(flags)
    assert str(caught.value).startswith(error)


def stream_lines(config: StreamConfig) -> list[str]:
    columns = Columns()
    stream_details.add_config(columns, config)
    return columns.lines()


def consumer_lines(config: ConsumerConfig) -> list[str]:
    columns = Columns()
    consumer_details.add_config(columns, ConsumerInfo(config=config))
    for key, value in config.metadata.items():
        columns.row(key, value)
    return columns.lines()


def test_every_field_of_a_stream_is_shown() -> None:
    plain = stream_lines(StreamConfig())
    for name, (flags, _) in STREAM_CASES.items():
        config = stream_flags.apply_flags(StreamConfig(), StreamFlags(**flags))
        only = StreamConfig(**{name: getattr(config, name)})
        assert stream_lines(only) != plain, name
    assert stream_lines(StreamConfig(sealed=True)) != plain
    assert set(STREAM_CASES) | STREAM_NOT_SHOWN | {"sealed"} == set(StreamConfig.__struct_fields__)


def test_every_field_of_a_consumer_is_shown() -> None:
    for name, (flags, _) in CONSUMER_CASES.items():
        if name in CONSUMER_NOT_SHOWN:
            continue
        # Some are shown only where they mean something.
        base = ConsumerConfig(
            ack_policy="all",
            deliver_subject="d" if name == "deliver_group" else "",
            priority_groups=["a"] if name == "priority_policy" else [],
        )
        config = consumer_flags.apply_flags(base, ConsumerFlags(**flags))
        only = msgspec.structs.replace(base, **{name: getattr(config, name)})
        assert consumer_lines(only) != consumer_lines(base), name


@pytest.mark.parametrize("kind", [StreamConfig, ConsumerConfig])
def test_a_difference_shows_durations_as_such(kind: type[Any]) -> None:
    shown = set()
    for name in kind.__struct_fields__:
        if type(getattr(kind(), name)) is not int:
            continue
        config = msgspec.structs.replace(kind(), **{name: HOUR_NS})
        if f'{name}: is "0s", not "1h0m0s"' in changed_members(kind(), config):
            shown.add(name)
    assert shown == DURATIONS[kind]
    if kind is ConsumerConfig:
        config = ConsumerConfig(backoff=[HOUR_NS, 2 * HOUR_NS])
        assert changed_members(kind(), config) == ["backoff: is [], not [1h0m0s, 2h0m0s]"]
