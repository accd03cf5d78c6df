"""The info documents of streams and consumers.

Owns assembling the documents; their parts come from the streams and consumers. Two metadata fields
that identify the responding server are added here and never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo
from tradewind.api.request_types import StreamConfigRequest
from tradewind.api.stream_types import ClusterInfo, StreamConfig, StreamInfo
from tradewind.api.times import format_time
from tradewind.api.versioning import answered_metadata
from tradewind.consumer.consumer_document import consumer_document
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream

_Config = TypeVar("_Config", StreamConfig, ConsumerConfig)


def fields_of(info: ApiStruct) -> dict[str, Any]:
    """The members of a document, for a response that has the same ones."""
    return {name: getattr(info, name) for name in info.__struct_fields__}


def plain_config(content: StreamConfigRequest) -> StreamConfig:
    """The stream configuration of a request."""
    return StreamConfig(**{name: getattr(content, name) for name in StreamConfig.__struct_fields__})


def answered_config(config: _Config) -> _Config:
    """A configuration with the metadata that only answers about one asset show."""
    metadata = answered_metadata(config.metadata, ops.NATS_VERSION)
    return msgspec.structs.replace(config, metadata=metadata)


def stream_info(
    engine: JetStreamEngine,
    hosted: HostedStream,
    *,
    domain: bool = True,
    dynamic: bool = True,
    cluster: bool = False,
) -> StreamInfo:
    """The information about a stream. Its optional members differ between requests."""
    config = hosted.config
    if dynamic:
        config = answered_config(config)
    state = hosted.stream.state(hosted.shown_count)
    return StreamInfo(
        **hosted.companions.describe(),
        config=config,
        created=format_time(hosted.stream.created_ns),
        state=state,
        domain=engine.domain if domain else "",
        cluster=ClusterInfo(leader=engine.broker.server_name) if cluster else None,
        ts=format_time(engine.turn.now_ns),
    )


def consumer_info(
    engine: JetStreamEngine,
    consumer: ServerConsumer,
    *,
    dynamic: bool = True,
    cluster: bool = False,
) -> ConsumerInfo:
    """The information about a consumer."""
    info = consumer_document(consumer)
    config = info.config
    if dynamic:
        config = answered_config(config)
    return msgspec.structs.replace(
        info,
        config=config,
        cluster=ClusterInfo(leader=engine.broker.server_name) if cluster else None,
    )
