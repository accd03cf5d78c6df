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
    find: Callable[[str], ConsumerConfig | None],
    new_suffix: Callable[[], str],
) -> ConsumerConfig:
    """The configuration that a request for such a consumer asks for; all others stay as they are.

    `find` returns the consumer of a name: where it begins is kept when its reader comes again.
    """
    if not config.direct or not config.sourcing or not config.name:
        return config
    if stream.retention is RetentionPolicy.LIMITS:
        return msgspec.structs.replace(config, name=f"{config.name}-{new_suffix()}")
    config = msgspec.structs.replace(
        config,
        durable_name=config.name,
        direct=False,
        ack_policy=AckPolicy.FLOW_CONTROL,
        ack_wait=0,
        max_deliver=-1,
        inactive_threshold=0,
        max_ack_pending=0,
    )
    old = find(config.name)
    if old is None or not old.sourcing:
        return config
    return msgspec.structs.replace(
        config,
        deliver_policy=old.deliver_policy,
        opt_start_seq=old.opt_start_seq,
        opt_start_time=old.opt_start_time,
    )


def is_for_server(config: ConsumerConfig) -> bool:
    """Whether it serves a mirror or source: such a one counts against no limit."""
    return config.direct or config.sourcing
