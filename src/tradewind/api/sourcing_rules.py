"""Consumers that servers create on an origin for their mirrors and sources.

Owns how such a request is adapted: on a stream with limits retention it creates a hidden consumer
that ends with its reader; on other streams it creates a durable one that is acknowledged by flow
control and may exist beside the consumers of users.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.api.stream_types import RetentionPolicy, StreamConfig


def sourcing_config(
    config: ConsumerConfig,
    stream: StreamConfig,
    new_suffix: Callable[[], str],
) -> ConsumerConfig:
    """The configuration for a server's request of such a consumer; other requests are unchanged."""
    if not config.direct or not config.sourcing or not config.name:
        return config
    if stream.retention is RetentionPolicy.LIMITS:
        return msgspec.structs.replace(config, name=f"{config.name}-{new_suffix()}")
    return msgspec.structs.replace(
        config,
        durable_name=config.name,
        direct=False,
        ack_policy=AckPolicy.FLOW_CONTROL,
        ack_wait=0,
        max_deliver=-1,
        inactive_threshold=0,
        max_ack_pending=0,
    )


def is_for_server(config: ConsumerConfig) -> bool:
    """Whether a consumer serves a mirror or source: such consumers count against no limit."""
    return config.direct or config.sourcing
