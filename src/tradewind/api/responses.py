"""The responses of the API, and the limits of an account.

Owns their fields and discriminators. A class is the successful response; `encode_error` encodes an
error, with the additional fields that nats-server writes beside it.
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from tradewind.api.base import (
    ApiStruct,
    Duration,
    Int,
    Int64,
    Time,
    Uint64,
    always,
    always_list,
    encode,
)
from tradewind.api.consumer_types import ConsumerInfo
from tradewind.api.errors import ApiError
from tradewind.api.stream_types import (
    ClusterInfo,
    ErrorDetail,
    SchemaChecks,
    StreamAlternate,
    StreamConfig,
    StreamInfo,
    StreamSourceInfo,
    StreamState,
)
from tradewind.api.times import ZERO_TIME
from tradewind.api.truncation_types import OWN_TYPE_PREFIX

TYPE_PREFIX: Final = "io.nats.jetstream.api.v1."
# The official server's name for the version of the features that it knows.
API_LEVEL: Final = 5


class JetStreamAccountLimits(ApiStruct, frozen=True, kw_only=True):
    """The limits of an account; -1 means no limit."""

    max_memory: Int64 = always(-1)
    max_storage: Int64 = always(-1)
    max_streams: Int = always(-1)
    max_consumers: Int = always(-1)
    max_ack_pending: Int = always(-1)
    memory_max_stream_bytes: Int64 = always(-1)
    storage_max_stream_bytes: Int64 = always(-1)
    max_bytes_required: bool = always(False)


class ApiStats(ApiStruct, frozen=True, kw_only=True):
    """The counts of an account's requests. Servers before 2.11 tell no level, which is 0."""

    level: Int = always(0)
    total: Uint64 = always(0)
    errors: Uint64 = always(0)
    inflight: Uint64 = 0


class Tier(ApiStruct, frozen=True, kw_only=True):
    """The usage of an account, in total or with one number of replicas."""

    memory: Uint64 = always(0)
    storage: Uint64 = always(0)
    reserved_memory: Uint64 = always(0)
    reserved_storage: Uint64 = always(0)
    streams: Int = always(0)
    consumers: Int = always(0)
    limits: JetStreamAccountLimits = field(default_factory=JetStreamAccountLimits)


class AccountInfo(Tier, frozen=True, kw_only=True):
    """The usage of an account and its limits."""

    domain: str = ""
    api: ApiStats = field(default_factory=ApiStats)
    tiers: dict[str, Tier] = field(default_factory=dict)


class AccountInfoResponse(
    AccountInfo,
    tag_field="type",
    tag=TYPE_PREFIX + "account_info_response",
    frozen=True,
    kw_only=True,
):
    """INFO."""


class StreamCreateResponse(
    StreamInfo,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_create_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.CREATE, and the end of a restore."""

    did_create: bool = False


class StreamUpdateResponse(
    StreamInfo,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_update_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.UPDATE."""


class PagedResponse(ApiStruct, frozen=True, kw_only=True):
    """Base of the paged responses."""

    total: Int = always(0)
    offset: Int = always(0)
    limit: Int = always(0)


class StreamInfoResponse(
    PagedResponse,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_info_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.INFO. The page is that of `state.subjects`; the rest is StreamInfo."""

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


class StreamNamesResponse(
    PagedResponse,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_names_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.NAMES; without any, `streams` is null, not an empty list."""

    streams: list[str] | None = always(None)


class StreamListResponse(
    PagedResponse,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_list_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.LIST."""

    streams: list[StreamInfo] = always_list()
    missing: list[str] = field(default_factory=list)
    offline: dict[str, str] = field(default_factory=dict)


class StreamDeleteResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_delete_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.DELETE."""

    success: bool = False


class StreamPurgeResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_purge_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.PURGE."""

    success: bool = False
    purged: Uint64 = always(0)


class StoredMessage(ApiStruct, frozen=True, kw_only=True):
    """A message of a stream; headers and data are base64 in the JSON."""

    subject: str = always("")
    seq: Uint64 = always(0)
    hdrs: bytes = b""
    data: bytes = b""
    time: Time = always(ZERO_TIME)


class MsgGetResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_msg_get_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.MSG.GET."""

    message: StoredMessage | None = None


class MsgDeleteResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_msg_delete_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.MSG.DELETE."""

    success: bool = False


class StreamSnapshotResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_snapshot_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.SNAPSHOT; the chunks follow."""

    config: StreamConfig | None = None
    state: StreamState | None = None


class StreamRestoreResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_restore_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.RESTORE: the subject for the chunks."""

    deliver_subject: str = always("")


class StreamPeerRemoveResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_remove_peer_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.PEER.REMOVE."""

    success: bool = False


class StreamPeerEvacuateResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_evacuate_peer_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.PEER.EVACUATE."""

    success: bool = False


class StreamCancelMoveResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_cancel_move_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.CANCEL_MOVE."""

    success: bool = False


class StreamStepdownResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "stream_leader_stepdown_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.LEADER.STEPDOWN."""

    success: bool = False


class ConsumerCreateResponse(
    ConsumerInfo,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_create_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""


class ConsumerInfoResponse(
    ConsumerInfo,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_info_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.INFO."""


class ConsumerNamesResponse(
    PagedResponse,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_names_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.NAMES."""

    consumers: list[str] = always_list()


class ConsumerListResponse(
    PagedResponse,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_list_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.LIST."""

    consumers: list[ConsumerInfo] = always_list()
    missing: list[str] = field(default_factory=list)
    offline: dict[str, str] = field(default_factory=dict)


class ConsumerDeleteResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_delete_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.DELETE."""

    success: bool = False


class ConsumerPauseResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_pause_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.PAUSE."""

    paused: bool = always(False)
    pause_until: Time = always(ZERO_TIME)
    pause_remaining: Duration = 0


class ConsumerUnpinResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_unpin_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.UNPIN."""


class ConsumerResetResponse(
    ConsumerInfo,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_reset_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.RESET."""

    reset_seq: Uint64 = always(0)


class ConsumerStepdownResponse(
    ApiStruct,
    tag_field="type",
    tag=TYPE_PREFIX + "consumer_leader_stepdown_response",
    frozen=True,
    kw_only=True,
):
    """CONSUMER.LEADER.STEPDOWN."""

    success: bool = False


class PubAck(ApiStruct, frozen=True, kw_only=True):
    """The acknowledgement of a stored message."""

    stream: str = always("")
    seq: Uint64 = always(0)
    domain: str = ""
    duplicate: bool = False
    val: str = ""
    batch: str = ""
    count: Int = 0


# The official server embeds what it would have sent as a pointer, which vanishes on an error, or as
# a value, which stays.
_PAGE: Final = (("total", 0), ("offset", 0), ("limit", 0))
_BESIDE_ERROR: Final[dict[type[ApiStruct], tuple[tuple[str, object], ...]]] = {
    StreamInfoResponse: _PAGE,
    StreamNamesResponse: (*_PAGE, ("streams", None)),
    StreamListResponse: (*_PAGE, ("streams", [])),
    ConsumerNamesResponse: (*_PAGE, ("consumers", [])),
    ConsumerListResponse: (*_PAGE, ("consumers", [])),
    StreamPurgeResponse: (("purged", 0),),
    StreamRestoreResponse: (("deliver_subject", ""),),
    ConsumerPauseResponse: (("paused", False), ("pause_until", ZERO_TIME)),
    ConsumerResetResponse: (("reset_seq", 0),),
}


def type_of(response: type[ApiStruct]) -> str:
    """The discriminator of a response."""
    tag = response.__struct_config__.tag
    assert isinstance(tag, str), f"{response.__name__} is not a response"
    return tag


def encode_error(response: type[ApiStruct], error: ApiError) -> bytes:
    """Encode the refusal of a request that `response` would answer."""
    detail = ErrorDetail(code=error.code, err_code=error.err_code, description=error.description)
    members = [("type", type_of(response)), ("error", detail), *_BESIDE_ERROR.get(response, ())]
    return b"{%b}" % b",".join(
        b'"%b":%b' % (name.encode(), encode(value)) for name, value in members
    )


class BackupCutResponse(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "backup_cut_response",
    frozen=True,
    kw_only=True,
):
    """BACKUP.CUT; the chunks follow."""

    streams: Int = always(0)
    complete: bool = always(False)
    time: Time = always(ZERO_TIME)
