"""Consumers in the API: configuration and info.

Owns the fields, their order and which of them are omitted if empty. It never validates a value,
which is up to `consumer_rules`.
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
    Time,
    Uint64,
    always,
    requires_level,
)
from tradewind.api.stream_types import ClusterInfo
from tradewind.api.times import ZERO_TIME


class DeliverPolicy(StrEnum):
    """The start position of a consumer. "undefined" means ALL."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"

    @classmethod
    def _missing_(cls, value: object) -> DeliverPolicy | None:
        return cls.ALL if value == "undefined" else None


class AckPolicy(StrEnum):
    """The meaning of an acknowledgement."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(StrEnum):
    """The pace at which stored messages are delivered."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(StrEnum):
    """The rule for serving the requests of a priority group."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


class ConsumerConfig(ApiStruct, frozen=True, kw_only=True):
    """The configuration of a consumer. Durations are nanoseconds; -1 means no limit."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = always(DeliverPolicy.ALL)
    opt_start_seq: Uint64 = 0
    opt_start_time: Time | None = None
    ack_policy: Annotated[AckPolicy, requires_level(4, AckPolicy.FLOW_CONTROL)] = always(
        AckPolicy.NONE
    )
    ack_wait: Duration = 0
    max_deliver: Int = 0
    backoff: list[Duration] = field(default_factory=list)
    filter_subject: str = ""
    filter_subjects: list[str] = field(default_factory=list)
    replay_policy: ReplayPolicy = always(ReplayPolicy.INSTANT)
    rate_limit_bps: Uint64 = 0
    sample_freq: str = ""
    max_waiting: Int = 0
    max_ack_pending: Int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: Int = 0
    max_expires: Duration = 0
    max_bytes: Annotated[Int, BYTES] = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: Duration = 0
    inactive_threshold: Duration = 0
    num_replicas: Int = always(0)
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    pause_until: Annotated[Time | None, requires_level(1)] = None
    priority_groups: Annotated[list[str], requires_level(1)] = field(default_factory=list)
    priority_policy: Annotated[PriorityPolicy, requires_level(1)] = PriorityPolicy.NONE
    priority_timeout: Annotated[Duration, requires_level(1)] = 0


class SequenceInfo(ApiStruct, frozen=True, kw_only=True):
    """A position of a consumer."""

    consumer_seq: Uint64 = always(0)
    stream_seq: Uint64 = always(0)
    last_active: Time | None = None


class PriorityGroupState(ApiStruct, frozen=True, kw_only=True):
    """The pinned client of a priority group."""

    group: str = always("")
    pinned_client_id: str = ""
    pinned_ts: Time | None = None


class ConsumerInfo(ApiStruct, frozen=True, kw_only=True):
    """Configuration and state of a consumer."""

    stream_name: str = always("")
    name: str = always("")
    created: Time = always(ZERO_TIME)
    config: ConsumerConfig = field(default_factory=ConsumerConfig)
    delivered: SequenceInfo = field(default_factory=SequenceInfo)
    ack_floor: SequenceInfo = field(default_factory=SequenceInfo)
    num_ack_pending: Int = always(0)
    num_redelivered: Int = always(0)
    num_waiting: Int = always(0)
    num_pending: Uint64 = always(0)
    cluster: ClusterInfo | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: Duration = 0
    ts: Time = always(ZERO_TIME)
    priority_groups: list[PriorityGroupState] = field(default_factory=list)
