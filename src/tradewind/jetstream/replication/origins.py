"""Requests of a mirror or source to the server of its origin.

Owns the requests and the parsing of their responses. The responses come from servers of any
version: an unexpected response is a reported error, never an internal fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tradewind.api.base import encode
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, DeliverPolicy
from tradewind.api.errors import CLUSTER_NOT_AVAILABLE, ApiError
from tradewind.api.request_types import ConsumerCreateRequest
from tradewind.api.stream_types import StreamSource
from tradewind.api.times import parse_time
from tradewind.errors import JSON_ERRORS
from tradewind.store.format.layout import short_hash

HEARTBEAT_NS: Final = 1_000_000_000
INACTIVE_NS: Final = 10_000_000_000
ACK_WAIT_NS: Final = 79_200_000_000_000
IDENTITY_FIELD: Final = "Nats-Stream-Identity"
SEQUENCE_MAX: Final = 2**62


class OriginView(msgspec.Struct, frozen=True):
    """The known state of an origin; `mirrored_ns` is the time of the message that its mirror has
    last, 0 if it is no longer there. If not `is_known`, the origin cannot be queried: it is assumed
    to be the one with this identity, which is empty if none was copied before.
    """

    identity: str
    created_ns: int
    last_seq: int
    mirrored_ns: int = 0
    is_known: bool = True


class OriginPosition(msgspec.Struct, frozen=True):
    """The position in a response about a consumer, and how many messages precede it."""

    name: str
    stream_seq: int
    consumer_seq: int
    pending: int
    is_flow_acked: bool
    deliver_subject: str


def unavailable(text: str) -> ApiError:
    """The error for an origin that cannot be reached, or answers with something unexpected."""
    return ApiError(CLUSTER_NOT_AVAILABLE.code, CLUSTER_NOT_AVAILABLE.err_code, text)


def document_of(body: bytes) -> dict[str, Any]:
    """Decode a response of the API; ApiError if it is a refusal or not a response."""
    try:
        document = msgspec.json.decode(body)
    except JSON_ERRORS:
        document = None
    if not isinstance(document, dict):
        raise unavailable(f"the response is not JSON: {body[:64]!r}")
    error = document.get("error")
    if isinstance(error, dict):
        try:
            raise ApiError.from_dict(error)
        except (TypeError, ValueError):
            raise unavailable("the response is a refusal that cannot be read") from None
    return document


def view_of(document: Mapping[str, Any]) -> OriginView:
    """Parse the response to STREAM.INFO."""
    created = document.get("created")
    state = document.get("state")
    if not isinstance(created, str) or not isinstance(state, dict):
        raise unavailable("the response to STREAM.INFO has no `created` or no `state`")
    return OriginView(short_hash(created), _time(created), _number(state, "last_seq"))


def time_of(document: Mapping[str, Any]) -> int:
    """The time of the message in a response to STREAM.MSG.GET."""
    message = document.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("time"), str):
        raise unavailable("the response to STREAM.MSG.GET has no `message.time`")
    return _time(message["time"])


def begun_of(document: Mapping[str, Any]) -> OriginPosition:
    """Parse a response about a consumer."""
    config, delivered = document.get("config"), document.get("delivered")
    if not isinstance(config, dict) or not isinstance(delivered, dict):
        raise unavailable("the response about the consumer has no `config` or no `delivered`")
    return OriginPosition(
        str(document.get("name", "")),
        _number(delivered, "stream_seq"),
        _number(delivered, "consumer_seq"),
        _number(document, "num_pending"),
        config.get("ack_policy") == AckPolicy.FLOW_CONTROL.value,
        str(config.get("deliver_subject", "")),
    )


def _number(document: Mapping[str, Any], member: str) -> int:
    value = document.get(member, 0)
    if type(value) is not int or not 0 <= value < SEQUENCE_MAX:
        raise unavailable(f"the response has no number as `{member}`")
    return value


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise unavailable(f"the response has a wrong time: {error}") from None


def fields_of_block(block: bytes) -> dict[str, str]:
    """The fields of a header block; the first of several with one name counts."""
    fields: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name, value.strip())
    return fields


def filters_of(source: StreamSource) -> list[str]:
    """The subjects that a consumer for a source is limited to."""
    if source.filter_subject:
        return [source.filter_subject]
    return [each.src or ">" for each in source.subject_transforms]


def create_request(
    source: StreamSource,
    name: str,
    deliver_subject: str,
    next_seq: int,
    metadata: dict[str, str],
    *,
    is_plain: bool,
) -> tuple[str, bytes]:
    """The subject and body of the request for a consumer that delivers from `next_seq` on, or from
    where the configuration of the source says. `is_plain`: for servers that do not support
    sourcing.
    """
    policy, start_time = DeliverPolicy.ALL, None
    start_seq = next_seq or source.opt_start_seq
    if start_seq:
        policy = DeliverPolicy.BY_START_SEQUENCE
    elif source.opt_start_time:
        policy, start_time = DeliverPolicy.BY_START_TIME, source.opt_start_time
    filters = filters_of(source)
    config = ConsumerConfig(
        name=name,
        deliver_policy=policy,
        opt_start_seq=start_seq,
        opt_start_time=start_time,
        ack_policy=AckPolicy.NONE,
        ack_wait=ACK_WAIT_NS,
        max_deliver=1,
        filter_subject=filters[0] if len(filters) == 1 else "",
        filter_subjects=filters if len(filters) > 1 else [],
        flow_control=True,
        deliver_subject=deliver_subject,
        idle_heartbeat=HEARTBEAT_NS,
        inactive_threshold=INACTIVE_NS,
        direct=True,
        sourcing=not is_plain,
        metadata=metadata,
    )
    subject = f"CONSUMER.CREATE.{source.name}"
    if len(filters) == 1:
        subject += f".{name}.{filters[0]}"
    return subject, encode(ConsumerCreateRequest(stream_name=source.name, config=config))
