"""The environment that a stream needs from the server.

Owns the one value that a stream is created with, and its defaults. It has no behaviour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tradewind.stream.staging import BatchLimits

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tradewind.api import errors
    from tradewind.broker.accounts import Account
    from tradewind.broker.contracts import BrokerLog
    from tradewind.broker.router import Router

WAITING_MSGS_MAX = 100_000
WAITING_BYTES_MAX = 128 * 1024 * 1024
DIRECT_BYTES_MAX = 64 * 1024 * 1024


def _no_limit(_size_bytes: int) -> errors.ApiError | None:
    return None


def _nobody_told(_stream: str, _batch: str, _reason: str) -> None:
    pass


class StreamContext(msgspec.Struct):
    """The parts of the server that a stream uses.

    `syncs`: acknowledged means synced, for streams in files that do not ask for less.
    `resources(bytes)` returns the error if the account may not store this many more bytes. It is
    called by the slow path; the fast path uses up `Ingest.credit_bytes`, which the engine sets.
    `chance` is the operating system's random source, except in a test. `abandoned(stream, batch,
    reason)` is called for batches that are given up.
    """

    router: Router
    account: Account
    log: BrokerLog
    chance: random.Random
    domain: str = ""
    batches: BatchLimits = msgspec.field(default_factory=BatchLimits)
    abandoned: Callable[[str, str, str], None] = msgspec.field(default=_nobody_told)
    syncs: bool = True
    waiting_msgs_max: int = WAITING_MSGS_MAX
    waiting_bytes_max: int = WAITING_BYTES_MAX
    direct_bytes_max: int = DIRECT_BYTES_MAX
    resources: Callable[[int], errors.ApiError | None] = msgspec.field(default=_no_limit)
