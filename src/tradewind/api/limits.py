"""Limits of a server or an account for streams and consumers, and the check of reservations.

Owns the arithmetic: a stream with `max_bytes` reserves them. It never counts usage, which is up to
the caller.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tradewind.api.errors import (
    MAXIMUM_CONSUMERS_LIMIT,
    MAXIMUM_STREAMS_LIMIT,
    MEMORY_RESOURCES_EXCEEDED,
    STORAGE_RESOURCES_EXCEEDED,
)
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.stream_types import StorageType, StreamConfig


class ServerLimits(msgspec.Struct, frozen=True):
    """The limits of every account; 0 means no limit, for bytes -1 does.

    `default_max_consumers` holds for a stream that has no limit of its own in an account that has
    none either; below 0 it means no limit, too. `domain` is the name by which streams may refer to
    their own server.
    """

    default_max_consumers: int = 0
    duplicate_window_ns: int = 0
    max_ack_pending: int = 0
    max_request_batch: int = 0
    memory_bytes_max: int = -1
    storage_bytes_max: int = -1
    domain: str = ""


class Reservations(msgspec.Struct, frozen=True):
    """The reservations of other streams: those of the account, and those of the whole server."""

    streams: int = 0
    account_memory_bytes: int = 0
    account_storage_bytes: int = 0
    server_memory_bytes: int = 0
    server_storage_bytes: int = 0


NOTHING_RESERVED: Final = Reservations()


def check_resources(
    config: StreamConfig,
    reserved: Reservations,
    account: JetStreamAccountLimits,
    server: ServerLimits,
) -> None:
    """ApiError unless a new stream with this configuration fits."""
    if 0 < account.max_streams <= reserved.streams:
        raise MAXIMUM_STREAMS_LIMIT()
    _check_consumers(config, account)
    # A stream without a limit needs room for something at least.
    _check_bytes(
        config, config.max_bytes if config.max_bytes >= 0 else 1, reserved, account, server
    )


def check_resources_of_update(
    old: StreamConfig,
    new: StreamConfig,
    reserved: Reservations,
    account: JetStreamAccountLimits,
    server: ServerLimits,
) -> None:
    """ApiError unless a stream can grow; `reserved` is without it. Shrinking is always allowed."""
    _check_consumers(new, account)
    if max(new.max_bytes, 0) > max(old.max_bytes, 0):
        _check_bytes(new, new.max_bytes, reserved, account, server)


def _check_consumers(config: StreamConfig, account: JetStreamAccountLimits) -> None:
    if 0 < account.max_consumers < config.max_consumers:
        raise MAXIMUM_CONSUMERS_LIMIT()


def _check_bytes(
    config: StreamConfig,
    bytes_added: int,
    reserved: Reservations,
    account: JetStreamAccountLimits,
    server: ServerLimits,
) -> None:
    """ApiError if there is no room for these bytes; in its account, for each of the replicas."""
    copied = bytes_added * max(config.num_replicas, 1)
    if config.storage is StorageType.MEMORY:
        kind = MEMORY_RESOURCES_EXCEEDED
        bounds = (
            (account.max_memory, reserved.account_memory_bytes + copied),
            (server.memory_bytes_max, reserved.server_memory_bytes + bytes_added),
        )
    else:
        kind = STORAGE_RESOURCES_EXCEEDED
        bounds = (
            (account.max_storage, reserved.account_storage_bytes + copied),
            (server.storage_bytes_max, reserved.server_storage_bytes + bytes_added),
        )
    if any(0 <= limit < needed for limit, needed in bounds):
        raise kind()
