"""Tradewind: a NATS-compatible server in Python, and a client for it and any other.

`connect` connects to a server; `tradewind.sync.connect` does so without an event loop. `Server` and
`serve` run a NATS-compatible server inside a program; `tradewind-server` runs it as a process.

    connect, Connection, Subscription, Msg, Headers       messages
    JetStream, StreamConfig, Consumer, ConsumerConfig     streams
    KeyValue, Entry, ObjectStore, ObjectInfo              buckets
    Worker, Retry, Skip, RetryLater, GiveUp               handlers
    Service, Request                                      services
    Event, Connected, Disconnected, SlowConsumer          what happens to a connection
    tradewind.errors                                      every error that a program can catch

Names are imported on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from tradewind._version import __version__
from tradewind.lazy_names import lazy_names

TYPE_CHECKING = False  # as in typing, which takes longer to import than everything here
if TYPE_CHECKING:
    from tradewind import errors, sync
    from tradewind.api.consumer_types import (
        AckPolicy,
        ConsumerConfig,
        ConsumerInfo,
        DeliverPolicy,
        PriorityPolicy,
        ReplayPolicy,
    )
    from tradewind.api.responses import AccountInfo, PubAck
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
        StreamConfig,
        StreamInfo,
        StreamSource,
        StreamState,
        SubjectTransform,
    )
    from tradewind.client.connection import Connection, connect
    from tradewind.client.core.headers import Headers
    from tradewind.client.core.message import Metadata, Msg
    from tradewind.client.core.subscription import Subscription
    from tradewind.client.events import (
        Closed,
        Connected,
        Disconnected,
        ErrorEvent,
        Event,
        LameDuck,
        Reconnected,
        ReconnectFailed,
        ServersDiscovered,
        SlowConsumer,
    )
    from tradewind.client.jetstream import JetStream
    from tradewind.client.kv.codecs import Base64Keys, Base64Values, PathKeys
    from tradewind.client.kv.entries import Entry
    from tradewind.client.kv.kv import KeyValue
    from tradewind.client.kv.kv_types import Operation
    from tradewind.client.objects.object_types import ObjectInfo
    from tradewind.client.objects.objects import ObjectStore
    from tradewind.client.running.retries import GiveUp, Retry, RetryLater, Skip
    from tradewind.client.services.services import Request, Service
    from tradewind.client.streams.consumers import Consumer
    from tradewind.client.streams.manager import JetStreamManager, StoredMsg
    from tradewind.client.streams.setting_types import ConsumerSettings, StreamSettings
    from tradewind.server.embedded import Server, ServerThread, serve
    from tradewind.worker.worker_app import Worker

_LAZY = {
    "AccountInfo": "tradewind.api.responses",
    "AckPolicy": "tradewind.api.consumer_types",
    "Base64Keys": "tradewind.client.kv.codecs",
    "Base64Values": "tradewind.client.kv.codecs",
    "Closed": "tradewind.client.events",
    "Compression": "tradewind.api.stream_types",
    "Connected": "tradewind.client.events",
    "Connection": "tradewind.client.connection",
    "Consumer": "tradewind.client.streams.consumers",
    "ConsumerConfig": "tradewind.api.consumer_types",
    "ConsumerInfo": "tradewind.api.consumer_types",
    "ConsumerLimits": "tradewind.api.stream_types",
    "ConsumerSettings": "tradewind.client.streams.setting_types",
    "DeliverPolicy": "tradewind.api.consumer_types",
    "DiscardPolicy": "tradewind.api.stream_types",
    "Disconnected": "tradewind.client.events",
    "Entry": "tradewind.client.kv.entries",
    "ErrorEvent": "tradewind.client.events",
    "Event": "tradewind.client.events",
    "ExternalStream": "tradewind.api.stream_types",
    "GiveUp": "tradewind.client.running.retries",
    "Headers": "tradewind.client.core.headers",
    "JetStream": "tradewind.client.jetstream",
    "JetStreamManager": "tradewind.client.streams.manager",
    "KeyValue": "tradewind.client.kv.kv",
    "LameDuck": "tradewind.client.events",
    "Metadata": "tradewind.client.core.message",
    "Msg": "tradewind.client.core.message",
    "ObjectInfo": "tradewind.client.objects.object_types",
    "ObjectStore": "tradewind.client.objects.objects",
    "Operation": "tradewind.client.kv.kv_types",
    "PathKeys": "tradewind.client.kv.codecs",
    "PersistMode": "tradewind.api.stream_types",
    "Placement": "tradewind.api.stream_types",
    "PriorityPolicy": "tradewind.api.consumer_types",
    "PubAck": "tradewind.api.responses",
    "RePublish": "tradewind.api.stream_types",
    "ReconnectFailed": "tradewind.client.events",
    "Reconnected": "tradewind.client.events",
    "ReplayPolicy": "tradewind.api.consumer_types",
    "Request": "tradewind.client.services.services",
    "RetentionPolicy": "tradewind.api.stream_types",
    "Retry": "tradewind.client.running.retries",
    "RetryLater": "tradewind.client.running.retries",
    "Server": "tradewind.server.embedded",
    "ServerThread": "tradewind.server.embedded",
    "ServersDiscovered": "tradewind.client.events",
    "Service": "tradewind.client.services.services",
    "Skip": "tradewind.client.running.retries",
    "SlowConsumer": "tradewind.client.events",
    "StorageType": "tradewind.api.stream_types",
    "StoredMsg": "tradewind.client.streams.manager",
    "StreamConfig": "tradewind.api.stream_types",
    "StreamInfo": "tradewind.api.stream_types",
    "StreamSettings": "tradewind.client.streams.setting_types",
    "StreamSource": "tradewind.api.stream_types",
    "StreamState": "tradewind.api.stream_types",
    "SubjectTransform": "tradewind.api.stream_types",
    "Subscription": "tradewind.client.core.subscription",
    "Worker": "tradewind.worker.worker_app",
    "connect": "tradewind.client.connection",
    "errors": "tradewind",
    "serve": "tradewind.server.embedded",
    "sync": "tradewind",
}

__all__ = [
    "AccountInfo",
    "AckPolicy",
    "Base64Keys",
    "Base64Values",
    "Closed",
    "Compression",
    "Connected",
    "Connection",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInfo",
    "ConsumerLimits",
    "ConsumerSettings",
    "DeliverPolicy",
    "DiscardPolicy",
    "Disconnected",
    "Entry",
    "ErrorEvent",
    "Event",
    "ExternalStream",
    "GiveUp",
    "Headers",
    "JetStream",
    "JetStreamManager",
    "KeyValue",
    "LameDuck",
    "Metadata",
    "Msg",
    "ObjectInfo",
    "ObjectStore",
    "Operation",
    "PathKeys",
    "PersistMode",
    "Placement",
    "PriorityPolicy",
    "PubAck",
    "RePublish",
    "ReconnectFailed",
    "Reconnected",
    "ReplayPolicy",
    "Request",
    "RetentionPolicy",
    "Retry",
    "RetryLater",
    "Server",
    "ServerThread",
    "ServersDiscovered",
    "Service",
    "Skip",
    "SlowConsumer",
    "StorageType",
    "StoredMsg",
    "StreamConfig",
    "StreamInfo",
    "StreamSettings",
    "StreamSource",
    "StreamState",
    "SubjectTransform",
    "Subscription",
    "Worker",
    "__version__",
    "connect",
    "errors",
    "serve",
    "sync",
]

if not TYPE_CHECKING:  # a name that does not exist is an error to type checkers
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
