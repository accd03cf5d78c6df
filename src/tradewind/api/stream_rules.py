"""Validates stream configurations and fills in defaults.

Owns the rules in the order of nats-server, because the client sees the first one that is violated.
It never creates a stream: the configurations of the others are an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tradewind.api import errors
from tradewind.api.chain import CHAIN_KEY
from tradewind.api.chain_rules import chain_rule_of
from tradewind.api.errors import PEDANTIC, STREAM_INVALID_CONFIG, ApiError
from tradewind.api.limits import NOTHING_RESERVED, Reservations, ServerLimits, check_resources
from tradewind.api.names import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    SCHEMA_KEY,
    has_setting,
    is_valid_name,
    metadata_bytes,
)
from tradewind.api.own_errors import CHAIN_INVALID
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.source_rules import (
    check_mirror_and_sources,
    check_source_filters,
)
from tradewind.api.stream_types import (
    DiscardPolicy,
    PersistMode,
    Placement,
    RePublish,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from tradewind.api.subject_tree import Effort, SubjectTree, numbered
from tradewind.api.versioning import stored_metadata, stream_level, user_metadata
from tradewind.durations import format_duration
from tradewind.route.mapping import MappingError, check_compiled, check_mapping, compile_mapping
from tradewind.subjects import collide, collides_with_any, is_subset, is_valid_subject

REPLICAS_MAX: Final = 5
# Bit 62 of a sequence is a flag in the files of a stream.
SEQUENCE_MAX: Final = (1 << 62) - 1
DUPLICATE_WINDOW_NS: Final = 120_000_000_000
SHORTEST_NS: Final = 100_000_000
MARKER_TTL_NS_MIN: Final = 1_000_000_000
_UNLIMITED_FIELDS: Final = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)
_API_SPACES: Final = ("$JS.>", "$JSC.>", "$NRG.>")


def check_stream_create(
    config: StreamConfig,
    *,
    streams: Mapping[str, StreamConfig],
    reserved: Reservations = NOTHING_RESERVED,
    pedantic: bool = False,
    server: ServerLimits,
    account: JetStreamAccountLimits,
) -> StreamConfig:
    """The configuration to create a stream with; ApiError if it is refused.

    `streams` are those of the account, and `reserved` are the reservations of those with other
    names: whether the stream fits is checked before its configuration, and by the caller again when
    defaults are filled in. An existing stream with this configuration is no error: its
    configuration is returned. Overlapping subjects are left to `check_overlap`.
    """
    if "/" in config.name or "\\" in config.name:
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS()
    if config.sealed:
        raise _invalid("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise _invalid("stream has no mirror but does have mirror direct")
    check_resources(config, reserved, account, server)
    checked = check_stream_config(
        config, streams=streams, pedantic=pedantic, server=server, account=account
    )
    if checked.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    existing = streams.get(checked.name)
    if existing is not None and not is_same_config(existing, checked):
        raise errors.STREAM_NAME_EXISTS()
    check_source_filters(checked)
    return checked if existing is None else existing


def check_stream_update(
    old: StreamConfig,
    config: StreamConfig,
    *,
    streams: Mapping[str, StreamConfig],
    pedantic: bool = False,
    server: ServerLimits,
    account: JetStreamAccountLimits,
) -> StreamConfig:
    """The configuration to change a stream to; see check_stream_create.

    `config` has passed `check_stream_config` once. It is checked again with its defaults, which may
    contradict each other: a counter with delete markers has become one whose messages expire.
    """
    new = check_stream_config(
        config, streams=streams, pedantic=pedantic, server=server, account=account
    )
    if new.name != old.name:
        raise _invalid("stream configuration name must match original")
    if new.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    _check_unchangeable(old, new)
    if old.mirror is not None and new.mirror is None:
        new = msgspec.structs.replace(new, mirror_direct=False)
    if new.sealed:
        new = msgspec.structs.replace(
            new,
            max_age=0,
            discard=DiscardPolicy.NEW,
            deny_delete=True,
            deny_purge=True,
            allow_rollup_hdrs=False,
        )
    return new


def check_overlap(
    config: StreamConfig, owners: SubjectTree[str], effort: Effort | None = None
) -> None:
    """ApiError if another stream takes some of its subjects. `effort`: less than it may take."""
    effort = effort or owners.effort(config.subjects)
    if any(owners.others(config.name, subject, effort) for subject in config.subjects):
        raise errors.STREAM_SUBJECT_OVERLAP()


def check_consumer_limits(config: StreamConfig, consumers: Mapping[str, tuple[int, int]]) -> None:
    """ApiError if consumers exceed the limits that an update sets for them.

    `consumers` has the max_ack_pending and inactive_threshold of each.
    """
    pending_max = config.consumer_limits.max_ack_pending
    threshold_max = config.consumer_limits.inactive_threshold
    violating = [
        name
        for name, (pending, threshold) in consumers.items()
        if (pending_max > 0 and pending > pending_max)
        or (threshold_max > 0 and threshold > threshold_max)
    ]
    if violating:
        names = ", ".join(sorted(violating))
        raise errors.STREAM_UPDATE(err=f"change to limits violates consumers: {names}")


def is_same_config(one: StreamConfig, other: StreamConfig) -> bool:
    """Whether two checked configurations ask for the same, whichever server wrote them."""
    bare = [
        msgspec.structs.replace(config, metadata=user_metadata(config.metadata))
        for config in (one, other)
    ]
    return bare[0] == bare[1]


def check_stream_config(
    config: StreamConfig,
    *,
    streams: Mapping[str, StreamConfig],
    pedantic: bool,
    server: ServerLimits,
    account: JetStreamAccountLimits,
) -> StreamConfig:
    """Check the rules for new and changed streams alike; returns the configuration with defaults.

    STREAM.UPDATE checks them before anything else, even for a missing stream. STREAM.CREATE
    compares the name with that of its subject first.
    """
    config = _replace(config, metadata=stored_metadata(config.metadata, stream_level(config)))
    _check_texts(config)
    _check_first_sequence(config)
    config = _with_limits(config, pedantic=pedantic)
    config = _with_duplicate_window(config, server, pedantic=pedantic)
    _check_counters_and_discard(config)
    config = _with_markers_and_schedules(config, pedantic=pedantic)
    _check_persist_mode(config)
    config = check_mirror_and_sources(config, streams, pedantic=pedantic, domain=server.domain)
    config = _with_subjects(config)
    _check_max_bytes(config, account)
    _check_chain(config)
    if has_setting(config.metadata, SCHEMA_KEY):
        # Loaded when it is needed: other servers start sooner without it.
        from tradewind.api.schema_rules import check_schema_rule

        check_schema_rule(config)
    _check_transform(config)
    config = _with_republish(config, pedantic=pedantic)
    return _with_placement(config)


def _check_first_sequence(config: StreamConfig) -> None:
    """ApiError for a first sequence that nats-server accepts, but loses its messages at the next
    start.
    """
    if config.first_seq > SEQUENCE_MAX:
        raise _invalid(
            f"first_seq: {config.first_seq} is too high, the last sequence is {SEQUENCE_MAX}"
        )


def _invalid(text: str) -> ApiError:
    return STREAM_INVALID_CONFIG(err=text)


def _replace(config: StreamConfig, **changes: Any) -> StreamConfig:
    return msgspec.structs.replace(config, **changes)


def _check_texts(config: StreamConfig) -> None:
    if not is_valid_name(config.name):
        raise _invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode()) > NAME_BYTES_MAX:
        raise _invalid(f"stream name is too long, maximum allowed is {NAME_BYTES_MAX}")
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise _invalid(
            f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}"
        )
    if metadata_bytes(config.metadata) > METADATA_BYTES_MAX:
        raise _invalid(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")


def _with_limits(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    changes: dict[str, Any] = {}
    if config.num_replicas == 0:
        changes["num_replicas"] = 1
    if config.num_replicas > REPLICAS_MAX:
        raise _invalid(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    for name in _UNLIMITED_FIELDS:
        value = getattr(config, name)
        if value < -1 and pedantic:
            raise PEDANTIC(err=f"{name} must be set to -1")
        if value == 0 or value < -1:
            changes[name] = -1
    if config.max_age < 0:
        raise _invalid("max age can not be negative")
    if 0 < config.max_age < SHORTEST_NS:
        raise _invalid("max age needs to be >= 100ms")
    return _replace(config, **changes)


def _with_duplicate_window(
    config: StreamConfig, server: ServerLimits, *, pedantic: bool
) -> StreamConfig:
    window_ns = config.duplicate_window
    limit_ns = server.duplicate_window_ns
    if window_ns == 0 and config.mirror is None and not config.sources:
        window_ns = DUPLICATE_WINDOW_NS
        if 0 < limit_ns < window_ns:
            if pedantic:
                raise PEDANTIC(err="duplicate window limits are higher than current limits")
            window_ns = limit_ns
        if 0 < config.max_age < window_ns:
            if pedantic:
                raise PEDANTIC(err="duplicate window cannot be bigger than max age")
            window_ns = config.max_age
    if window_ns < 0:
        raise _invalid("duplicates window can not be negative")
    if 0 < config.max_age < window_ns:
        raise _invalid("duplicates window can not be larger then max age")
    if 0 < limit_ns < window_ns:
        raise _invalid(
            f"duplicates window can not be larger then server limit of {format_duration(limit_ns)}"
        )
    if 0 < window_ns < SHORTEST_NS:
        raise _invalid("duplicates window needs to be >= 100ms")
    return _replace(config, duplicate_window=window_ns)


def _check_counters_and_discard(config: StreamConfig) -> None:
    if config.deny_purge and config.allow_rollup_hdrs:
        raise _invalid("roll-ups require the purge permission")
    if config.allow_msg_counter:
        if config.discard is DiscardPolicy.NEW:
            raise _invalid("counter stream cannot use discard new")
        if config.allow_msg_ttl:
            raise _invalid("counter stream cannot use message TTLs")
        if config.allow_msg_schedules:
            raise _invalid("counter stream cannot use message schedules")
        if config.retention is not RetentionPolicy.LIMITS:
            raise _invalid("counter stream can only use limits retention")
    if config.discard_new_per_subject:
        if config.discard is not DiscardPolicy.NEW:
            raise _invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            raise _invalid("discard new per subject requires max msgs per subject > 0")


def _with_markers_and_schedules(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    if config.subject_delete_marker_ttl < 0:
        raise _invalid("subject delete marker TTL must not be negative")
    if config.subject_delete_marker_ttl > 0:
        if config.subject_delete_marker_ttl < MARKER_TTL_NS_MIN:
            raise _invalid("subject delete marker TTL must be at least 1 second")
        if not config.allow_msg_ttl and pedantic:
            raise _invalid("subject delete marker cannot be set if message TTLs are disabled")
        config = _replace(config, allow_msg_ttl=True)
        config = _with_rollup(config, "subject delete marker", pedantic=pedantic)
    if config.allow_msg_schedules:
        if config.discard is DiscardPolicy.NEW:
            raise _invalid("message scheduling cannot use discard new")
        config = _with_rollup(config, "message scheduling", pedantic=pedantic)
    return config


def _with_rollup(config: StreamConfig, what: str, *, pedantic: bool) -> StreamConfig:
    if config.allow_rollup_hdrs:
        return config
    if pedantic:
        raise _invalid(f"{what} cannot be set if roll-ups are disabled")
    return _replace(config, allow_rollup_hdrs=True, deny_purge=False)


def _check_persist_mode(config: StreamConfig) -> None:
    if config.persist_mode is not PersistMode.ASYNC:
        return
    if config.storage is not StorageType.FILE:
        raise _invalid("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        raise _invalid("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        raise _invalid("async persist mode is not supported with atomic batch publish")


def _with_subjects(config: StreamConfig) -> StreamConfig:
    if not config.subjects:
        if config.mirror is None and not config.sources:
            config = _replace(config, subjects=[config.name])
        return config
    # Most streams have one subject, which collides with no other one.
    tree = numbered(config.subjects) if len(config.subjects) > 1 else None
    effort = tree.effort(config.subjects) if tree is not None else None
    for index, subject in enumerate(config.subjects):
        if not is_valid_subject(subject):
            raise _invalid("invalid subject")
        if subject == ">":
            if not config.no_ack:
                raise _invalid("capturing all subjects requires no-ack to be true")
            if config.num_replicas != 1:
                raise _invalid("capturing all subjects requires replicas of 1")
        if not config.no_ack:
            _check_reserved(subject)
        if tree is None or effort is None:
            return config
        colliding = tree.colliding(subject, effort)
        other = min((found for found in colliding if found > index), default=0)
        if other:
            raise _invalid(f'subject "{subject}" overlaps with "{config.subjects[other]}"')
    return config


def _check_reserved(subject: str) -> None:
    if subject[0] not in "$*>":
        return  # the spaces of the server begin with a dollar
    in_api = any(collide(subject, space) for space in _API_SPACES)
    if in_api and not is_subset(subject, "$JS.EVENT.>"):
        raise _invalid("subjects that overlap with jetstream api require no-ack to be true")
    if collide(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
        raise _invalid("subjects that overlap with system api require no-ack to be true")


def _check_max_bytes(config: StreamConfig, account: JetStreamAccountLimits) -> None:
    limit = (
        account.memory_max_stream_bytes
        if config.storage is StorageType.MEMORY
        else account.storage_max_stream_bytes
    )
    if account.max_bytes_required and config.max_bytes <= 0:
        raise errors.STREAM_MAX_BYTES_REQUIRED()
    if 0 < limit < config.max_bytes:
        raise errors.STREAM_MAX_STREAM_BYTES_EXCEEDED()


def _check_chain(config: StreamConfig) -> None:
    is_memory = config.storage is StorageType.MEMORY
    if chain_rule_of(config.metadata) is not None and is_memory:
        raise CHAIN_INVALID(key=CHAIN_KEY, err="only for streams with file storage")


def _check_transform(config: StreamConfig) -> None:
    transform = config.subject_transform
    if transform is None:
        return
    if transform.src and not is_valid_subject(transform.src):
        raise errors.STREAM_TRANSFORM_INVALID_SOURCE(err=f"invalid subject {transform.src}")
    try:
        check_mapping(transform.src, transform.dest)
    except MappingError as error:
        raise errors.STREAM_TRANSFORM_INVALID_DESTINATION(err=str(error)) from None


def _with_republish(config: StreamConfig, *, pedantic: bool) -> StreamConfig:
    if config.republish is None:
        return config
    source, destination = config.republish.src, config.republish.dest
    if not source:
        if pedantic:
            raise PEDANTIC(err="republish source can not be empty")
        source = ">"
    transform = config.subject_transform
    if source == destination == ">" and transform and [transform.src] == config.subjects:
        # The subject follows the transform, so there is no cycle.
        if pedantic:
            raise PEDANTIC(err="implicit republish based on subject transform")
        source = destination = transform.dest
    if collides_with_any(destination, config.subjects):
        raise _invalid("stream configuration for republish destination forms a cycle")
    try:
        # An empty destination is accepted and republishes nothing, as in the official server.
        check_compiled(compile_mapping(source, destination, random_below=lambda _below: 0))
    except MappingError:
        raise _invalid(
            "stream configuration for republish with transform "
            f"from '{source}' to '{destination}' not valid"
        ) from None
    headers_only = config.republish.headers_only
    return _replace(
        config, republish=RePublish(src=source, dest=destination, headers_only=headers_only)
    )


def _with_placement(config: StreamConfig) -> StreamConfig:
    if config.placement == Placement():
        return _replace(config, placement=None)
    if config.placement is not None and config.placement.preferred:
        raise _invalid("preferred server not permitted in placement")
    return config


def _check_unchangeable(old: StreamConfig, new: StreamConfig) -> None:
    prefix = "stream configuration update can not"
    if new.storage is not old.storage:
        raise _invalid(f"{prefix} change storage type")
    retentions = {old.retention, new.retention}
    if len(retentions) > 1 and RetentionPolicy.WORK_QUEUE in retentions:
        raise _invalid(f"{prefix} change retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise _invalid(f"{prefix} unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise _invalid(f"{prefix} cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise _invalid(f"{prefix} cancel deny purge")
    if new.mirror is not None and new.mirror != old.mirror:
        raise errors.STREAM_MIRROR_NOT_UPDATABLE()
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise _invalid("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        raise _invalid(f"{prefix} change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise _invalid("message schedules can not be disabled")
    if old.persist_mode is not new.persist_mode:
        raise _invalid(f"{prefix} change persist mode")
