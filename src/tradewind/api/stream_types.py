"""Streams in the API: configuration, state and info.

Owns the fields, their order and which of them are omitted if empty. It never validates a value,
which is up to `stream_rules`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import field

from tradewind.api.base import (
    BYTES,
    ApiStruct,
    Duration,
    Int,
    Int32,
    Int64,
    Time,
    Uint64,
    always,
    requires_level,
)
from tradewind.api.times import ZERO_TIME


class RetentionPolicy(StrEnum):
    """The condition for removing messages."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORK_QUEUE = "workqueue"


class DiscardPolicy(StrEnum):
    """The messages that are discarded when a limit is reached."""

    OLD = "old"
    NEW = "new"


class StorageType(StrEnum):
    """The storage of messages."""

    FILE = "file"
    MEMORY = "memory"


class Compression(StrEnum):
    """The compression of blocks on disk."""

    NONE = "none"
    S2 = "s2"


class PersistMode(StrEnum):
    """Whether an acknowledgement waits for the disk. The empty string means DEFAULT."""

    DEFAULT = "default"
    ASYNC = "async"

    @classmethod
    def _missing_(cls, value: object) -> PersistMode | None:
        return cls.DEFAULT if value == "" else None


class Placement(ApiStruct, frozen=True, kw_only=True):
    """The servers of a cluster that should hold a stream."""

    cluster: str = ""
    tags: list[str] = field(default_factory=list)
    preferred: str = ""


class SubjectTransform(ApiStruct, frozen=True, kw_only=True):
    """A mapping of subjects; see `tradewind.route.mapping`."""

    src: str = always("")
    dest: str = always("")


class RePublish(ApiStruct, frozen=True, kw_only=True):
    """Where stored messages are published again."""

    src: str = ""
    dest: str = always("")
    headers_only: bool = False


class ExternalStream(ApiStruct, frozen=True, kw_only=True):
    """The way to a stream of another account or domain."""

    api: str = always("")
    deliver: str = always("")


class StreamConsumerSource(ApiStruct, frozen=True, kw_only=True):
    """A durable consumer through which a stream is sourced."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(ApiStruct, frozen=True, kw_only=True):
    """A stream that is mirrored or sourced."""

    name: str = always("")
    opt_start_seq: Uint64 = 0
    opt_start_time: Time | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = field(default_factory=list)
    external: ExternalStream | None = None
    consumer: StreamConsumerSource | None = None


class ConsumerLimits(ApiStruct, frozen=True, kw_only=True):
    """Bounds and defaults for the consumers of a stream."""

    inactive_threshold: Duration = 0
    max_ack_pending: Int = 0


class StreamConfig(ApiStruct, frozen=True, kw_only=True):
    """The configuration of a stream. Durations are nanoseconds; -1 means no limit."""

    name: str = always("")
    description: str = ""
    subjects: list[str] = field(default_factory=list)
    retention: RetentionPolicy = always(RetentionPolicy.LIMITS)
    max_consumers: Int = always(0)
    max_msgs: Int64 = always(0)
    max_bytes: Annotated[Int64, BYTES] = always(0)
    max_age: Duration = always(0)
    max_msgs_per_subject: Int64 = always(0)
    max_msg_size: Annotated[Int32, BYTES] = 0
    discard: DiscardPolicy = always(DiscardPolicy.OLD)
    storage: StorageType = always(StorageType.FILE)
    num_replicas: Int = always(0)
    no_ack: bool = False
    duplicate_window: Duration = 0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = field(default_factory=list)
    compression: Compression = always(Compression.NONE)
    first_seq: Uint64 = 0
    subject_transform: SubjectTransform | None = None
    republish: RePublish | None = None
    allow_direct: bool = always(False)
    mirror_direct: bool = always(False)
    discard_new_per_subject: bool = False
    sealed: bool = always(False)
    deny_delete: bool = always(False)
    deny_purge: bool = always(False)
    allow_rollup_hdrs: bool = always(False)
    consumer_limits: ConsumerLimits = field(default_factory=ConsumerLimits)
    allow_msg_ttl: Annotated[bool, requires_level(1)] = always(False)
    subject_delete_marker_ttl: Annotated[Duration, requires_level(1)] = 0
    allow_msg_counter: Annotated[bool, requires_level(2)] = False
    allow_atomic: Annotated[bool, requires_level(2)] = False
    allow_msg_schedules: Annotated[bool, requires_level(2)] = False
    persist_mode: Annotated[PersistMode, requires_level(2)] = PersistMode.DEFAULT
    allow_batched: Annotated[bool, requires_level(4)] = False
    metadata: dict[str, str] = field(default_factory=dict)


class LostStreamData(ApiStruct, frozen=True, kw_only=True):
    """Messages that are known to have been stored and can no longer be read."""

    msgs: list[Uint64] | None = always(None)
    bytes: Uint64 = always(0)


class StreamState(ApiStruct, frozen=True, kw_only=True):
    """The content of a stream."""

    messages: Uint64 = always(0)
    bytes: Uint64 = always(0)
    first_seq: Uint64 = always(0)
    first_ts: Time = always(ZERO_TIME)
    last_seq: Uint64 = always(0)
    last_ts: Time = always(ZERO_TIME)
    num_subjects: Int = 0
    subjects: dict[str, Uint64] = field(default_factory=dict)
    num_deleted: Int = 0
    deleted: list[Uint64] = field(default_factory=list)
    lost: LostStreamData | None = None
    consumer_count: Int = always(0)


class PeerInfo(ApiStruct, frozen=True, kw_only=True):
    """A server that holds a replica."""

    name: str = always("")
    current: bool = always(False)
    offline: bool = False
    active: Duration = always(0)
    lag: Uint64 = 0
    peer: str = always("")
    pending: bool = False


class ClusterInfo(ApiStruct, frozen=True, kw_only=True):
    """The servers of a stream or consumer."""

    name: str = ""
    raft_group: str = ""
    leader: str = ""
    leader_since: Time | None = None
    system_account: bool = False
    traffic_account: str = ""
    replicas: list[PeerInfo] = field(default_factory=list)


class ErrorDetail(ApiStruct, frozen=True, kw_only=True):
    """An error inside a larger answer; `errors.ApiError` is the exception."""

    code: Int = always(0)
    err_code: Int = 0
    description: str = ""


class StreamSourceInfo(ApiStruct, frozen=True, kw_only=True):
    """The progress of a mirror or source."""

    name: str = always("")
    external: ExternalStream | None = None
    lag: Uint64 = always(0)
    seq: Uint64 = 0
    active: Duration = always(0)
    error: ErrorDetail | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = field(default_factory=list)


class StreamAlternate(ApiStruct, frozen=True, kw_only=True):
    """A mirror that can be read instead."""

    name: str = always("")
    domain: str = ""
    cluster: str = always("")


class SchemaChecks(ApiStruct, frozen=True, kw_only=True):
    """The checks of a stream since the server started. `unchecked` messages were stored because
    their schema could not be used.
    """

    action: str
    checked: Uint64 = 0
    wrong: Uint64 = 0
    dead_letters: Uint64 = 0
    unchecked: Uint64 = 0
    last_problem: str = ""


class StreamInfo(ApiStruct, frozen=True, kw_only=True):
    """Configuration and state of a stream."""

    config: StreamConfig = field(default_factory=StreamConfig)
    created: Time = always(ZERO_TIME)
    state: StreamState = field(default_factory=StreamState)
    domain: str = ""
    cluster: ClusterInfo | None = None
    mirror: StreamSourceInfo | None = None
    sources: list[StreamSourceInfo] = field(default_factory=list)
    alternates: list[StreamAlternate] = field(default_factory=list)
    schema_checks: SchemaChecks | None = None
    ts: Time = always(ZERO_TIME)
