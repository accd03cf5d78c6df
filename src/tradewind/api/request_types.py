"""The requests of the API.

Owns their fields. `requests` decodes them, with the errors of nats-server.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import field

from tradewind.api.base import ApiStruct, Duration, Int, Int64, Time, Uint64, always
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.stream_types import Placement, StreamConfig, StreamState
from tradewind.api.times import ZERO_TIME


class ConsumerAction(StrEnum):
    """The allowed actions of a consumer create request. The default creates or updates."""

    CREATE_OR_UPDATE = ""
    CREATE = "create"
    UPDATE = "update"


class StreamConfigRequest(StreamConfig, frozen=True, kw_only=True):
    """STREAM.CREATE and STREAM.UPDATE."""

    pedantic: bool = False


class StreamNamesRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.NAMES: list the streams whose subjects overlap `subject`."""

    offset: Int = always(0)
    subject: str = ""


class StreamListRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.LIST; see StreamNamesRequest."""

    offset: Int = always(0)
    subject: str = ""


class StreamInfoRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.INFO."""

    offset: Int = always(0)
    deleted_details: bool = False
    subjects_filter: str = ""


class StreamPurgeRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.PURGE: remove messages below `seq`, or all but the newest `keep`."""

    seq: Uint64 = 0
    filter: str = ""
    keep: Uint64 = 0


class MsgGetRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.MSG.GET and DIRECT.GET."""

    seq: Uint64 = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: Int = 0
    max_bytes: Int = 0
    start_time: Time | None = None
    multi_last: list[str] = field(default_factory=list)
    up_to_seq: Uint64 = 0
    up_to_time: Time | None = None
    no_hdr: bool = False


class MsgDeleteRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.MSG.DELETE; the data is overwritten unless `no_erase`."""

    seq: Uint64 = always(0)
    no_erase: bool = False


class StreamSnapshotRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.SNAPSHOT."""

    deliver_subject: str = always("")
    no_consumers: bool = False
    chunk_size: Int = 0
    window_size: Int = 0
    jsck: bool = False


class StreamRestoreRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.RESTORE."""

    config: StreamConfig = field(default_factory=StreamConfig)
    state: StreamState = field(default_factory=StreamState)


class ConsumerCreateRequest(ApiStruct, frozen=True, kw_only=True):
    """CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""

    stream_name: str = always("")
    config: ConsumerConfig = field(default_factory=ConsumerConfig)
    action: ConsumerAction = always(ConsumerAction.CREATE_OR_UPDATE)
    pedantic: bool = False


class ConsumersRequest(ApiStruct, frozen=True, kw_only=True):
    """CONSUMER.NAMES and CONSUMER.LIST."""

    offset: Int = always(0)


class ConsumerPauseRequest(ApiStruct, frozen=True, kw_only=True):
    """CONSUMER.PAUSE; without a time it resumes."""

    pause_until: Time = ZERO_TIME


class ConsumerUnpinRequest(ApiStruct, frozen=True, kw_only=True):
    """CONSUMER.UNPIN."""

    group: str = always("")


class ConsumerResetRequest(ApiStruct, frozen=True, kw_only=True):
    """CONSUMER.RESET."""

    seq: Uint64 = 0


class PeerRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.PEER.REMOVE and STREAM.PEER.EVACUATE."""

    peer: str = always("")


class StepdownRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.LEADER.STEPDOWN and CONSUMER.LEADER.STEPDOWN."""

    placement: Placement | None = None


class NextRequest(ApiStruct, frozen=True, kw_only=True):
    """CONSUMER.MSG.NEXT: a pull request."""

    expires: Duration = 0
    batch: Int = 0
    max_bytes: Int = 0
    no_wait: bool = False
    idle_heartbeat: Duration = 0
    group: str = ""
    min_pending: Int64 = 0
    min_ack_pending: Int64 = 0
    id: str = ""
    priority: Int = 0


class KnownPart(ApiStruct, frozen=True, kw_only=True):
    """The part of a stream that a client has: up to `last_seq`; `messages` are from `first_seq`
    on.
    """

    created: Time = always(ZERO_TIME)
    first_seq: Uint64 = 0
    last_seq: Uint64 = 0
    messages: Uint64 = 0


class BackupCutRequest(ApiStruct, frozen=True, kw_only=True):
    """BACKUP.CUT: all streams of the account in one moment, with what follows on `known`.

    A cut is complete if the messages after what is known are few. With `final` it has consumers and
    removed sequences in any case. With `named_only`, streams that are not in `known` come without
    messages and removed sequences: the client expects that they have not changed.
    """

    deliver_subject: str = always("")
    known: dict[str, KnownPart] = field(default_factory=dict)
    named_only: bool = False
    final: bool = False
    chunk_size: Int = 0
    window_size: Int = 0


class BackupReadRequest(ApiStruct, frozen=True, kw_only=True):
    """BACKUP.READ: a snapshot without consumers, from a sequence on."""

    deliver_subject: str = always("")
    first_seq: Uint64 = 0
    chunk_size: Int = 0
    window_size: Int = 0
