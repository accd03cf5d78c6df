"""The keyword settings of streams and consumers, as type checkers and editors see them.

Owns their names and types, which are those of the configuration structs; a test compares them. A
number for a duration means seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, TypedDict

from tradewind.api.consumer_types import AckPolicy, DeliverPolicy, PriorityPolicy, ReplayPolicy
from tradewind.api.stream_types import (
    Compression,
    ConsumerLimits,
    DiscardPolicy,
    ExternalStream,
    PersistMode,
    Placement,
    RePublish,
    RetentionPolicy,
    StorageType,
    StreamConsumerSource,
    StreamSource,
    SubjectTransform,
)
from tradewind.client.core.duration_input import DurationInput

Retention = RetentionPolicy | Literal["limits", "interest", "workqueue"]
Discard = DiscardPolicy | Literal["old", "new"]
Storage = StorageType | Literal["file", "memory"]
CompressionName = Compression | Literal["none", "s2"]
Persistence = PersistMode | Literal["default", "async"]
Delivery = (
    DeliverPolicy
    | Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"]
)
Acknowledgement = AckPolicy | Literal["none", "all", "explicit", "flow_control"]
Replay = ReplayPolicy | Literal["instant", "original"]
Priority = PriorityPolicy | Literal["none", "overflow", "pinned_client", "prioritized"]


class PlacementSettings(TypedDict, total=False):
    """The servers of a cluster that should hold a stream."""

    cluster: str
    tags: Sequence[str]
    preferred: str


class SubjectTransformSettings(TypedDict, total=False):
    """A mapping of subjects: from `src` to `dest`."""

    src: str
    dest: str


class RePublishSettings(TypedDict, total=False):
    """Where stored messages are published again."""

    src: str
    dest: str
    headers_only: bool


class ExternalStreamSettings(TypedDict, total=False):
    """How a stream of another account or domain is reached."""

    api: str
    deliver: str


class StreamConsumerSourceSettings(TypedDict, total=False):
    """The durable consumer through which a stream is sourced."""

    name: str
    deliver_subject: str


class StreamSourceSettings(TypedDict, total=False):
    """A stream that is mirrored or sourced."""

    name: str
    opt_start_seq: int
    opt_start_time: datetime | str | None
    filter_subject: str
    subject_transforms: Sequence[SubjectTransform | SubjectTransformSettings]
    external: ExternalStream | ExternalStreamSettings | None
    consumer: StreamConsumerSource | StreamConsumerSourceSettings | None


class ConsumerLimitsSettings(TypedDict, total=False):
    """Bounds and defaults for the consumers of a stream."""

    inactive_threshold: DurationInput
    max_ack_pending: int


class StreamTemplateSettings(TypedDict, total=False):
    """The settings of streams that a template makes; their names come from the template."""

    description: str
    subjects: Sequence[str]
    retention: Retention
    max_consumers: int
    max_msgs: int
    max_bytes: int
    max_age: DurationInput
    max_msgs_per_subject: int
    max_msg_size: int
    discard: Discard
    storage: Storage
    num_replicas: int
    no_ack: bool
    duplicate_window: DurationInput
    placement: Placement | PlacementSettings | None
    mirror: StreamSource | StreamSourceSettings | None
    sources: Sequence[StreamSource | StreamSourceSettings]
    compression: CompressionName
    first_seq: int
    subject_transform: SubjectTransform | SubjectTransformSettings | None
    republish: RePublish | RePublishSettings | None
    allow_direct: bool
    mirror_direct: bool
    discard_new_per_subject: bool
    sealed: bool
    deny_delete: bool
    deny_purge: bool
    allow_rollup_hdrs: bool
    consumer_limits: ConsumerLimits | ConsumerLimitsSettings
    allow_msg_ttl: bool
    subject_delete_marker_ttl: DurationInput
    allow_msg_counter: bool
    allow_atomic: bool
    allow_msg_schedules: bool
    persist_mode: Persistence
    allow_batched: bool
    metadata: Mapping[str, str]


class StreamSettings(StreamTemplateSettings, total=False):
    """The keyword settings of `streams.add` and `update`: the members of StreamConfig.

    A duration is a number of seconds, a timedelta or a text such as "30s" or "7d"; -1 as a count or
    size means no limit.
    """

    name: str


class ConsumerSettings(TypedDict, total=False):
    """The keyword settings of `consumers.add` and `update`: the members of ConsumerConfig.

    A duration is a number of seconds, a timedelta or a text such as "30s" or "7d"; -1 as a count
    means no limit. `backoff` replaces `ack_wait` for the first redeliveries.
    """

    durable_name: str
    name: str
    description: str
    deliver_policy: Delivery
    opt_start_seq: int
    opt_start_time: datetime | str | None
    ack_policy: Acknowledgement
    ack_wait: DurationInput
    max_deliver: int
    backoff: Sequence[DurationInput]
    filter_subject: str
    filter_subjects: Sequence[str]
    replay_policy: Replay
    rate_limit_bps: int
    sample_freq: str
    max_waiting: int
    max_ack_pending: int
    flow_control: bool
    headers_only: bool
    max_batch: int
    max_expires: DurationInput
    max_bytes: int
    deliver_subject: str
    deliver_group: str
    idle_heartbeat: DurationInput
    inactive_threshold: DurationInput
    num_replicas: int
    mem_storage: bool
    direct: bool
    sourcing: bool
    metadata: Mapping[str, str]
    pause_until: datetime | str | None
    priority_groups: Sequence[str]
    priority_policy: Priority
    priority_timeout: DurationInput
