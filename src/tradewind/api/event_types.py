"""Events about streams and consumers: advisories and metrics.

Owns their fields, with the order and omissions of nats-server. It never decides that something has
happened.
"""

from __future__ import annotations

from tradewind.api.base import ApiStruct, Duration, Int, Int64, Time, Uint64
from tradewind.api.stream_types import StreamState


class EventClient(ApiStruct, frozen=True, kw_only=True):
    """The sender of a request; without members if it was not a client."""

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
    """The common members of all events."""

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

    Only the system account learns which account it was in.
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
    """A backup has ended, successfully or with an error."""

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
    """A restore has ended, successfully or not."""

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
    """A consumer is paused until a time, or resumed."""

    stream: str
    consumer: str
    paused: bool
    pause_until: Time
    domain: str = ""


class GroupPinned(ApiEvent, frozen=True, kw_only=True):
    """A client gets all messages of a priority group from now on."""

    account: str = ""
    stream: str
    consumer: str
    domain: str = ""
    group: str
    pinned_id: str


class GroupUnpinned(ApiEvent, frozen=True, kw_only=True):
    """A client is no longer pinned."""

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
    """A client has refused a message for now. Reason and delay are set if there is a policy."""

    stream: str
    consumer: str
    consumer_seq: Uint64
    stream_seq: Uint64
    deliveries: Uint64
    reason: str = ""
    delay: Duration = 0
    domain: str = ""


class Terminated(ApiEvent, frozen=True, kw_only=True):
    """A message is not delivered again, although it was not processed."""

    stream: str
    consumer: str
    consumer_seq: Uint64
    stream_seq: Uint64
    deliveries: Uint64
    reason: str = ""
    domain: str = ""


class ConsumerAck(ApiEvent, frozen=True, kw_only=True):
    """A metric: how long an acknowledgement took."""

    stream: str
    consumer: str
    consumer_seq: Uint64
    stream_seq: Uint64
    ack_time: Duration
    deliveries: Uint64
    domain: str = ""


class ChainBroken(ApiEvent, frozen=True, kw_only=True):
    """The chain of a stream does not fit its messages from an entry on; nats-server has no such
    event.
    """

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
    """So many requests were waiting that all of them were dropped."""

    server: str
    domain: str = ""
    dropped: Int
