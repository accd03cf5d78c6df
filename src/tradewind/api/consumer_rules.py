"""Validates consumer configurations and fills in defaults.

Owns the rules in the order of nats-server, because the client sees the first one that is violated.
It never creates a consumer: the stream and the other consumers are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tradewind.api import errors
from tradewind.api.consumer_configs import ConsumerConfigs, filters_of
from tradewind.api.consumer_types import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
)
from tradewind.api.endpoint_row import EndpointCall
from tradewind.api.errors import CONSUMER_INVALID_POLICY, PEDANTIC, STREAM_INVALID_CONFIG, ApiError
from tradewind.api.limits import ServerLimits
from tradewind.api.nak_policy import BACKOFF_KEY, NakPolicyError, nak_policy_of
from tradewind.api.names import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    ORDER_PREFIX,
    has_setting,
    is_valid_name,
    metadata_bytes,
)
from tradewind.api.request_types import ConsumerAction, ConsumerCreateRequest
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.sourcing_rules import is_for_server
from tradewind.api.stream_types import RetentionPolicy, StreamConfig
from tradewind.api.subject_tree import numbered
from tradewind.api.times import parse_time
from tradewind.api.versioning import consumer_level, stored_metadata, user_metadata
from tradewind.durations import format_duration
from tradewind.subjects import is_literal, is_subset_of_any, is_valid_subject

ACK_WAIT_NS: Final = 30_000_000_000
MAX_ACK_PENDING: Final = 1000
MAX_WAITING: Final = 512
EPHEMERAL_INACTIVE_NS: Final = 5_000_000_000
PINNED_TTL_NS: Final = 120_000_000_000
HEARTBEAT_NS_MIN: Final = 100_000_000
EXPIRES_NS_MIN: Final = 1_000_000
# The one heartbeat that the ack policy flow_control allows.
SOURCING_HEARTBEAT_NS: Final = 1_000_000_000
_NEVER_NEGATIVE: Final = (
    "max_batch",
    "max_expires",
    "max_bytes",
    "idle_heartbeat",
    "inactive_threshold",
    "priority_timeout",
)
_GROUP: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_EXPLICIT: Final = (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL)


def check_consumer_request(call: EndpointCall, request: ConsumerCreateRequest) -> ConsumerConfig:
    """The configuration under the name that subject and body agree on; ApiError if they do not."""
    config = request.config
    if request.stream_name != call.stream:
        raise errors.STREAM_MISMATCH()
    name = call.consumer or config.name
    if "/" in name or "\\" in name:
        raise errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS()
    if not call.consumer and config.durable_name:
        raise errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME()
    if call.endpoint.name == "consumer_create_durable" and not config.durable_name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_SET()
    if call.consumer and config.durable_name not in ("", call.consumer):
        raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()
    if call.rest:
        if config.filter_subjects:
            raise errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED()
        if config.filter_subject != call.rest:
            raise errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH()
    if len(name.encode()) > NAME_BYTES_MAX:
        raise errors.CONSUMER_NAME_TOO_LONG(max=NAME_BYTES_MAX)
    if config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    return msgspec.structs.replace(config, name=name)


def check_consumer_create(
    config: ConsumerConfig,
    *,
    stream: StreamConfig,
    consumers: ConsumerConfigs,
    action: ConsumerAction = ConsumerAction.CREATE_OR_UPDATE,
    pedantic: bool = False,
    server: ServerLimits,
    account: JetStreamAccountLimits,
    has_interest: Callable[[str], bool],
) -> ConsumerConfig:
    """The configuration for a new or changed consumer; ApiError if it is refused.

    `consumers` are those of the stream that are not hidden, checked before. `has_interest` returns
    whether a deliver subject has a subscriber. An empty name stays empty: the caller generates one.
    """
    old = consumers.get(config.name) if config.name else None
    if config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if old is not None:
        config = _with_kept(config, old)
    level = consumer_level(config)
    config = msgspec.structs.replace(config, metadata=stored_metadata(config.metadata, level))
    config = with_defaults(config, stream, server, account, pedantic=pedantic)
    check_consumer_config(config, stream, server, account)
    if old is not None:
        # Without the threshold that an ephemeral one was given, as in the official server.
        if action is ConsumerAction.CREATE:
            if not is_same_config(old, config):
                raise errors.CONSUMER_ALREADY_EXISTS()
            config = msgspec.structs.replace(config, metadata=old.metadata)
        _check_update(old, config, stream, consumers, has_interest)
    else:
        if action is ConsumerAction.UPDATE:
            raise errors.CONSUMER_DOES_NOT_EXIST()
        _check_new(config, stream, consumers, server, account)
    return _with_inactive_threshold(config, old)


def _with_kept(config: ConsumerConfig, old: ConsumerConfig) -> ConsumerConfig:
    """A new configuration with the settings that such a request cannot change.

    A pause is only changed by a request of its own. A server that reconnects its mirror or source
    does not say where its consumer began.
    """
    config = msgspec.structs.replace(config, pause_until=old.pause_until)
    if not config.sourcing:
        return config
    return msgspec.structs.replace(
        config,
        deliver_policy=old.deliver_policy,
        opt_start_seq=old.opt_start_seq,
        opt_start_time=old.opt_start_time,
    )


def is_same_config(one: ConsumerConfig, other: ConsumerConfig) -> bool:
    """Whether two checked configurations ask for the same, whichever server wrote them."""
    bare = [
        msgspec.structs.replace(config, metadata=user_metadata(config.metadata))
        for config in (one, other)
    ]
    return bare[0] == bare[1]


def check_consumer_config(
    config: ConsumerConfig,
    stream: StreamConfig,
    server: ServerLimits,
    account: JetStreamAccountLimits,
) -> None:
    """The rules that hold for every consumer, after defaults are filled in."""
    _check_names_and_replicas(config, stream)
    if any(wait_ns < 0 for wait_ns in config.backoff):
        raise errors.CONSUMER_BACKOFF_NEGATIVE()
    if config.ack_wait < 0:
        raise errors.CONSUMER_ACK_WAIT_NEGATIVE()
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        _check_ack_flow_control(config)
    if config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF()
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise errors.CONSUMER_DESCRIPTION_TOO_LONG(max=DESCRIPTION_BYTES_MAX)
    if config.deliver_subject:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, server)
    _check_limits(config, stream, server, account)
    if config.direct:
        if not config.deliver_subject:
            raise errors.CONSUMER_DIRECT_REQUIRES_PUSH()
        if config.durable_name:
            raise errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL()
    _check_filters(config)
    _check_start(config)
    _check_sampling(config.sample_freq)
    if config.flow_control and not config.idle_heartbeat:
        raise errors.CONSUMER_FLOW_CONTROL_NEEDS_HEARTBEATS()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH()
    if metadata_bytes(config.metadata) > METADATA_BYTES_MAX:
        raise errors.CONSUMER_METADATA_LENGTH(limit=f"{METADATA_BYTES_MAX // 1024}KB")
    _check_priority(config)
    _check_nak_policy(config)
    _check_order(config)


def _invalid(text: str) -> ApiError:
    return STREAM_INVALID_CONFIG(err=text)


def with_defaults(
    config: ConsumerConfig,
    stream: StreamConfig,
    server: ServerLimits,
    account: JetStreamAccountLimits,
    *,
    pedantic: bool,
) -> ConsumerConfig:
    """A configuration with the server's defaults."""
    config = _with_zeros(config, pedantic=pedantic)
    changes: dict[str, Any] = {}
    is_pull = not config.deliver_subject
    if is_pull and not config.max_waiting:
        changes["max_waiting"] = MAX_WAITING
    ack_wait_ns = config.ack_wait
    if not ack_wait_ns and config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        ack_wait_ns = ACK_WAIT_NS
    if config.backoff:
        if pedantic and ack_wait_ns != config.backoff[0]:
            raise PEDANTIC(err="first backoff value has to equal batch AckWait")
        ack_wait_ns = config.backoff[0]
    changes["ack_wait"] = ack_wait_ns
    for name in ("max_ack_pending", "inactive_threshold"):
        limit = getattr(stream.consumer_limits, name)
        if not getattr(config, name):
            if pedantic and limit > 0:
                raise PEDANTIC(err=f"{name} must be set if it's configured in stream limits")
            changes[name] = limit
    pending_max = changes.get("max_ack_pending", config.max_ack_pending)
    if not pending_max and config.ack_policy is not AckPolicy.NONE:
        limits = (MAX_ACK_PENDING, server.max_ack_pending, account.max_ack_pending)
        changes["max_ack_pending"] = min(limit for limit in limits if limit > 0)
    if is_pull and not config.max_batch and server.max_request_batch > 0:
        if pedantic:
            raise PEDANTIC(err="max_request_batch must be set if it's JetStream limits are set")
        changes["max_batch"] = server.max_request_batch
    if config.priority_policy is PriorityPolicy.PINNED_CLIENT and not config.priority_timeout:
        changes["priority_timeout"] = PINNED_TTL_NS
    if config.ack_policy is AckPolicy.FLOW_CONTROL and not pedantic:
        changes |= {"flow_control": True, "idle_heartbeat": SOURCING_HEARTBEAT_NS}
    return msgspec.structs.replace(config, **changes)


def _with_inactive_threshold(config: ConsumerConfig, old: ConsumerConfig | None) -> ConsumerConfig:
    """Set the default threshold of ephemeral consumers. An update does not make a consumer
    ephemeral.
    """
    if config.inactive_threshold > 0 or (old or config).durable_name:
        return config
    if old is not None and old.inactive_threshold == config.inactive_threshold:
        return config
    return msgspec.structs.replace(config, inactive_threshold=EPHEMERAL_INACTIVE_NS)


def _with_zeros(config: ConsumerConfig, *, pedantic: bool) -> ConsumerConfig:
    """Replace numbers below the one that means no limit."""
    changes: dict[str, int] = {}
    if config.max_deliver < -1 and pedantic:
        raise PEDANTIC(err="max_deliver must be set to -1")
    if config.max_deliver == 0 or config.max_deliver < -1:
        changes["max_deliver"] = -1
    if config.max_waiting < 0:
        if pedantic:
            raise PEDANTIC(err="max_waiting must not be negative")
        changes["max_waiting"] = 0
    if config.max_ack_pending < -1:
        if pedantic:
            raise PEDANTIC(err="max_ack_pending must be set to -1")
        changes["max_ack_pending"] = -1
    for name in _NEVER_NEGATIVE:
        if getattr(config, name) < 0:
            if pedantic:
                raise PEDANTIC(err=f"{name} must not be negative")
            changes[name] = 0
    return msgspec.structs.replace(config, **changes)


def _check_names_and_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    forbidden = "can not contain '.', '*', '>', '\\', '/'"
    if config.name and not is_valid_name(config.name):
        raise _invalid(f"consumer name {forbidden}")
    if config.durable_name and not is_valid_name(config.durable_name):
        raise _invalid(f"consumer durable name {forbidden}")
    if config.num_replicas > stream.num_replicas:
        raise errors.CONSUMER_REPLICAS_EXCEEDS_STREAM()
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    if stream.retention is not RetentionPolicy.LIMITS and config.num_replicas not in (
        0,
        stream.num_replicas,
    ):
        raise errors.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM()


def _check_ack_flow_control(config: ConsumerConfig) -> None:
    if not config.deliver_subject:
        raise errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_PUSH()
    if not config.flow_control:
        raise errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_FLOW_CONTROL()
    if config.idle_heartbeat != SOURCING_HEARTBEAT_NS:
        raise _invalid("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_MAX_ACK_PENDING()
    if config.ack_wait or config.backoff:
        raise errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_NO_ACK_WAIT()
    if config.max_deliver > 0:
        raise errors.CONSUMER_ACK_FLOW_CONTROL_REQUIRES_NO_MAX_DELIVER()


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    if not is_literal(config.deliver_subject):
        raise errors.CONSUMER_DELIVER_TO_WILDCARDS()
    if not is_valid_subject(config.deliver_subject):
        raise errors.CONSUMER_INVALID_DELIVER_SUBJECT()
    if is_subset_of_any(config.deliver_subject, stream.subjects):
        raise errors.CONSUMER_DELIVER_CYCLE()
    if config.max_waiting:
        raise errors.CONSUMER_PUSH_MAX_WAITING()
    if config.max_ack_pending > 0 and config.ack_policy is AckPolicy.NONE:
        raise errors.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED()
    if 0 < config.idle_heartbeat < HEARTBEAT_NS_MIN:
        raise errors.CONSUMER_SMALL_HEARTBEAT()


def _check_pull(config: ConsumerConfig, stream: StreamConfig, server: ServerLimits) -> None:
    if config.ack_policy is AckPolicy.NONE and stream.retention is RetentionPolicy.WORK_QUEUE:
        raise errors.CONSUMER_PULL_REQUIRES_ACK()
    if config.rate_limit_bps > 0:
        raise errors.CONSUMER_PULL_WITH_RATE_LIMIT()
    if config.idle_heartbeat > 0:
        raise errors.CONSUMER_HEARTBEAT_REQUIRES_PUSH()
    if config.flow_control:
        raise errors.CONSUMER_FLOW_CONTROL_REQUIRES_PUSH()
    if 0 < config.max_expires < EXPIRES_NS_MIN:
        raise errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL()
    if 0 < server.max_request_batch < config.max_batch:
        raise errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED(limit=server.max_request_batch)


def _check_limits(
    config: ConsumerConfig,
    stream: StreamConfig,
    server: ServerLimits,
    account: JetStreamAccountLimits,
) -> None:
    for limit in (
        server.max_ack_pending,
        account.max_ack_pending,
        stream.consumer_limits.max_ack_pending,
    ):
        if 0 < limit < config.max_ack_pending:
            raise errors.CONSUMER_MAX_PENDING_ACK_EXCESS(limit=limit)
    threshold_ns = stream.consumer_limits.inactive_threshold
    if 0 < threshold_ns < config.inactive_threshold:
        raise errors.CONSUMER_INACTIVE_THRESHOLD_EXCESS(limit=format_duration(threshold_ns))


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.CONSUMER_DUPLICATE_FILTER_SUBJECTS()
    if config.filter_subject and not is_valid_subject(config.filter_subject):
        raise _invalid("invalid subject")
    if "" in config.filter_subjects:
        raise errors.CONSUMER_EMPTY_FILTER()
    filters = filters_of(config)
    tree = numbered(filters)
    effort = tree.effort(filters)
    for index, subject in enumerate(filters):
        if not is_valid_subject(subject):
            raise _invalid("invalid subject")
        if any(found != index for found in tree.covering(subject, effort)):
            raise errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS()


def _check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy
    text = f"consumer delivery policy is deliver {policy.value.replace('_', ' ')}, but optional"
    wants_sequence = policy is DeliverPolicy.BY_START_SEQUENCE
    wants_time = policy is DeliverPolicy.BY_START_TIME
    if wants_sequence and not config.opt_start_seq:
        raise CONSUMER_INVALID_POLICY(err=f"{text} start sequence is not set")
    if wants_time and config.opt_start_time is None:
        raise CONSUMER_INVALID_POLICY(err=f"{text} start time is not set")
    if config.opt_start_seq and not wants_sequence:
        what = "start start sequence" if wants_time else "start sequence"
        raise CONSUMER_INVALID_POLICY(err=f"{text} {what} is also set")
    if config.opt_start_time is not None and not wants_time:
        raise CONSUMER_INVALID_POLICY(err=f"{text} start time is also set")
    if policy is DeliverPolicy.LAST_PER_SUBJECT and not filters_of(config):
        raise CONSUMER_INVALID_POLICY(err=f"{text} filter subject is not set")


def _check_sampling(text: str) -> None:
    """Check a percentage as Go's Atoi parses it."""
    if not text:
        return
    number = text.removesuffix("%")
    reason = ""
    if not _INTEGER.fullmatch(number):
        reason = f'strconv.Atoi: parsing "{number}": invalid syntax'
    elif len(number) > 20 or not -(2**63) <= int(number) < 2**63:
        reason = f'strconv.Atoi: parsing "{number}": value out of range'
    elif int(number) < 0:
        reason = "<nil>"
    if reason:
        raise errors.CONSUMER_INVALID_SAMPLING(err=reason)


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy is PriorityPolicy.NONE:
        if config.priority_groups:
            raise errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE()
        if config.priority_timeout > 0:
            raise errors.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY()
        return
    if config.deliver_subject:
        raise errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP()
    if not config.priority_groups:
        raise errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP()
    for group in config.priority_groups:
        if not group:
            raise errors.CONSUMER_EMPTY_GROUP_NAME()
        if not _GROUP.fullmatch(group):
            raise errors.CONSUMER_INVALID_GROUP_NAME()


def _check_order(config: ConsumerConfig, old: ConsumerConfig | None = None) -> None:
    present = old.metadata if old is not None else None
    if has_setting(config.metadata, ORDER_PREFIX) or has_setting(present, ORDER_PREFIX):
        # Loaded when it is needed: other servers start sooner without it.
        from tradewind.api.order_rules import check_order

        check_order(config, old)


def _check_nak_policy(config: ConsumerConfig) -> None:
    try:
        policy = nak_policy_of(config.metadata)
    except NakPolicyError as error:
        raise CONSUMER_INVALID_POLICY(err=str(error)) from None
    if policy is None:
        return
    if config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        policies = "the ack policy explicit or all"
        raise CONSUMER_INVALID_POLICY(err=f"tradewind.nak: requires {policies}")
    if policy.uses_backoff and not config.backoff:
        raise CONSUMER_INVALID_POLICY(err=f"{BACKOFF_KEY}: requires a consumer with a backoff")


def _check_new(
    config: ConsumerConfig,
    stream: StreamConfig,
    consumers: ConsumerConfigs,
    server: ServerLimits,
    account: JetStreamAccountLimits,
) -> None:
    if is_for_server(config):
        return
    limits = [limit for limit in (stream.max_consumers, account.max_consumers) if limit > 0]
    count_max = min(limits) if limits else server.default_max_consumers
    if 0 < count_max <= consumers.user_count:
        raise errors.MAXIMUM_CONSUMERS_LIMIT()
    if stream.retention is not RetentionPolicy.WORK_QUEUE:
        return
    if config.ack_policy not in _EXPLICIT:
        raise errors.CONSUMER_WORKQUEUE_REQUIRES_EXPLICIT_ACK()
    if config.deliver_policy is not DeliverPolicy.ALL:
        raise errors.CONSUMER_WORKQUEUE_NOT_DELIVER_ALL()
    if consumers.user_count:
        if not filters_of(config):
            raise errors.CONSUMER_WORKQUEUE_MULTIPLE_UNFILTERED()
        _check_alone(config, consumers)


def _check_alone(config: ConsumerConfig, consumers: ConsumerConfigs) -> None:
    """ApiError if another consumer of a work queue takes one of the subjects."""
    if consumers.others_take(config.name, filters_of(config)):
        raise errors.CONSUMER_WORKQUEUE_NOT_UNIQUE()


def _check_update(
    old: ConsumerConfig,
    new: ConsumerConfig,
    stream: StreamConfig,
    consumers: ConsumerConfigs,
    has_interest: Callable[[str], bool],
) -> None:
    for name, what in (
        ("deliver_policy", "deliver policy"),
        ("mem_storage", "storage type"),
        ("direct", "direct"),
        ("sourcing", "sourcing"),
        ("opt_start_seq", "start sequence"),
        ("opt_start_time", "start time"),
        ("ack_policy", "ack policy"),
        ("replay_policy", "replay policy"),
        ("idle_heartbeat", "heart beats"),
        ("flow_control", "flow control"),
    ):
        before, after = getattr(old, name), getattr(new, name)
        if name == "opt_start_time" and before and after:
            before, after = parse_time(before), parse_time(after)
        if before != after:
            raise errors.CONSUMER_CREATE(err=f"{what} can not be updated")
    _check_order(new, old)
    if old.deliver_subject != new.deliver_subject:
        if not old.deliver_subject:
            raise errors.CONSUMER_CREATE(err="can not update pull consumer to push based")
        if not new.deliver_subject:
            raise errors.CONSUMER_CREATE(err="can not update push consumer to pull based")
        if has_interest(old.deliver_subject):
            raise errors.CONSUMER_NAME_EXISTS()
    if old.max_waiting != new.max_waiting:
        raise errors.CONSUMER_CREATE(err="max waiting can not be updated")
    if is_for_server(new):
        return
    if stream.retention is RetentionPolicy.WORK_QUEUE and filters_of(new):
        _check_alone(new, consumers)
