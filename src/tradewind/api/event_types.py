"""Events about streams and consumers: advisories and metrics.

Owns their fields, with the order and omissions of nats-server. It never decides that something has
happened.
"""

from __future__ import annotations

from tradewind.api.base import ApiStruct, Duration, Int, Int64, Time, Uint64
from tradewind.api.stream_types import StreamState


class EventClient(ApiStruct, frozen=True, kw_only=True):
    """Who sent a request; without any member: no client did."""

    start: Time = ""
    host: str = ""
    id: Uint64 = 0
    acc: str = ""
    svc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: Duration = 0
    server: str = ""
    kind: str = ""
    client_type: str = ""


class ApiEvent(ApiStruct, frozen=True, kw_only=True):
    """What all of them begin with."""

    type: str
    id: str
    timestamp: Time


class StreamAction(ApiEvent, frozen=True, kw_only=True):
    """A stream was created, modified or deleted."""

    stream: str
    action: str
    domain: str = ""


class BatchAbandoned(ApiEvent, frozen=True, kw_only=True):
    """An atomic batch was given up; `reason` is timeout, large, incomplete or unsupported.

    Only the system account is told whose it was.
    """

    account: str = ""
    stream: str
    domain: str = ""
    batch: str
    reason: str


class SnapshotCreate(ApiEvent, frozen=True, kw_only=True):
    """A backup has begun."""

    stream: str
    state: StreamState
    client: EventClient
    domain: str = ""


class SnapshotComplete(ApiEvent, frozen=True, kw_only=True):
    """A backup has ended, well or with an error."""

    stream: str
    start: Time
    end: Time
    client: EventClient
    error: str = ""
    domain: str = ""


class RestoreCreate(ApiEvent, frozen=True, kw_only=True):
    """A backup is being restored."""

    stream: str
    client: EventClient
    domain: str = ""


class RestoreComplete(ApiEvent, frozen=True, kw_only=True):
    """That has ended, well or not."""

    stream: str
    start: Time
    end: Time
    bytes: Int64
    client: EventClient
    domain: str = ""


class ConsumerActionEvent(ApiEvent, frozen=True, kw_only=True):
    """A consumer was created or deleted."""

    stream: str
    consumer: str
    action: str
    domain: str = ""


class ConsumerPause(ApiEvent, frozen=True, kw_only=True):
    """A consumer delivers nothing until then, or delivers again."""

    stream: str
    consumer: str
    paused: bool
    pause_until: Time
    domain: str = ""


class GroupPinned(ApiEvent, frozen=True, kw_only=True):
    """A client is given all messages of a priority group from now on."""

    account: str = ""
    stream: str
    consumer: str
    domain: str = ""
    group: str
    pinned_id: str


class GroupUnpinned(ApiEvent, frozen=True, kw_only=True):
    """It is no longer."""

    account: str = ""
    stream: str
    consumer: str
    domain: str = ""
    group: str
    reason: str


class MaxDeliver(ApiEvent, frozen=True, kw_only=True):
    """A message was sent as often as the consumer may send it."""

    stream: str
    consumer: str
    stream_seq: Uint64
    deliveries: Uint64
    domain: str = ""


class Nak(ApiEvent, frozen=True, kw_only=True):
    """A client does not want a message now. Reason and delay are told where a policy is."""

    stream: str
    consumer: str
    consumer_seq: Uint64
    stream_seq: Uint64
    deliveries: Uint64
    reason: str = ""
    delay: Duration = 0
    domain: str = ""


class Terminated(ApiEvent, frozen=True, kw_only=True):
    """A message is not sent again, although nobody has done what it asks for."""

    stream: str
    consumer: str
    consumer_seq: Uint64
    stream_seq: Uint64
    deliveries: Uint64
    reason: str = ""
    domain: str = ""


class ConsumerAck(ApiEvent, frozen=True, kw_only=True):
    """How long an acknowledgement took: a metric."""

    stream: str
    consumer: str
    consumer_seq: Uint64
    stream_seq: Uint64
    ack_time: Duration
    deliveries: Uint64
    domain: str = ""


class ChainBroken(ApiEvent, frozen=True, kw_only=True):
    """From an entry on the chain of a stream does not fit its messages; nats-server has no such."""

    stream: str
    index: Uint64
    reason: str
    domain: str = ""


class ApiAudit(ApiEvent, frozen=True, kw_only=True):
    """A request of the API was answered."""

    server: str
    client: EventClient
    subject: str
    request: str = ""
    response: str
    domain: str = ""


class ApiLimitReached(ApiEvent, frozen=True, kw_only=True):
    """Too many requests were waiting, and all of them were dropped."""

    server: str
    domain: str = ""
    dropped: Int
