"""An account with JetStream: its streams, its usage and its limits.

Owns the table of streams by name, the counters of API requests, and the arithmetic of limits and
reservations. A stream with `max_bytes` reserves them, whether it uses them or not. Streams receive
their remaining storage as credit, so storing a message never needs to ask the account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api import errors
from tradewind.api.responses import AccountInfo, ApiStats, JetStreamAccountLimits, Tier
from tradewind.api.stream_types import StorageType, StreamConfig
from tradewind.api.subject_tree import SubjectTree
from tradewind.broker.accounts import Account
from tradewind.jetstream.usage import Usage

if TYPE_CHECKING:
    from tradewind.jetstream.companions import StreamFollower
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.lanes import Lane
    from tradewind.jetstream.schema_keeper import AccountSchemas
    from tradewind.jetstream.transactions.account_transactions import Transactions

UNLIMITED: Final = -1
# The tier of every stream: there is one replica of each.
TIER: Final = "R1"
# The values that the official server shows beside tiers.
NO_LIMITS: Final = JetStreamAccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)


def account_limits(configured: dict[str, int]) -> JetStreamAccountLimits:
    """The limits that a configuration names (see `AccountOptions.jetstream_limits`)."""

    def limit(name: str) -> int:
        return configured.get(name, UNLIMITED)

    return JetStreamAccountLimits(
        max_memory=limit("max_memory"),
        max_storage=limit("max_file"),
        max_streams=limit("max_streams"),
        max_consumers=limit("max_consumers"),
        max_ack_pending=limit("max_ack_pending"),
        memory_max_stream_bytes=limit("memory_max_stream_bytes"),
        storage_max_stream_bytes=limit("store_max_stream_bytes"),
        max_bytes_required=bool(configured.get("max_bytes_required")),
    )


class ApiCounts(msgspec.Struct):
    """Counts of API requests since the start."""

    total: int = 0
    errors: int = 0


class JetStreamAccount(msgspec.Struct, eq=False, weakref=True):
    """`account` is the subject space, `lane` the queue of its requests, `problems` the streams and
    consumers that could not be opened.
    """

    account: Account
    limits: JetStreamAccountLimits
    lane: Lane
    streams: dict[str, HostedStream] = msgspec.field(default_factory=dict)
    usage: Usage = msgspec.field(default_factory=Usage)  # of all its streams
    consumer_count: int = 0  # of all its streams
    api: ApiCounts = msgspec.field(default_factory=ApiCounts)
    problems: dict[str, str] = msgspec.field(default_factory=dict)  # stream or folder -> reason
    # The configurations of its streams, and of those that are being created.
    configs: dict[str, StreamConfig] = msgspec.field(default_factory=dict)
    # The streams whose configurations are being replaced; false for a change that others have to
    # see before they are checked.
    changing: dict[str, bool] = msgspec.field(default_factory=dict)
    owners: SubjectTree[str] = msgspec.field(default_factory=SubjectTree)
    # The followers of streams by name, whether these exist or not.
    followers: dict[str, dict[StreamFollower, None]] = msgspec.field(default_factory=dict)
    # Changes of several streams and consumers together; None: there was none so far.
    transactions: Transactions | None = None
    # The schemas of payloads; None: no stream has asked for them so far.
    schemas: AccountSchemas | None = None
    # The limits are those of a tier, and shown as such.
    is_tiered: bool = False
    # How many streams all templates together may make; negative: no limit.
    template_streams_max: int = UNLIMITED

    # The encoded answer with the first names of streams; None: to be encoded again.
    names_page: bytes | None = None

    @property
    def name(self) -> str:
        """The name of the account."""
        return self.account.name

    def stream(self, name: str) -> HostedStream:
        """The stream of this name; ApiError if there is none, or if it could not be opened."""
        hosted = self.streams.get(name)
        if hosted is not None:
            return hosted
        if name in self.problems:
            raise errors.STREAM_OFFLINE_REASON(err=self.problems[name])
        raise errors.STREAM_NOT_FOUND()

    def room_bytes(self, storage: StorageType) -> int | None:
        """How many bytes the account's streams may still store; None: only the server limits
        them.
        """
        is_memory = storage is StorageType.MEMORY
        limit = self.limits.max_memory if is_memory else self.limits.max_storage
        if limit < 0:
            return None
        return max(limit - (self.usage.memory if is_memory else self.usage.storage), 0)

    def stream_configured(self, name: str, config: StreamConfig | None) -> None:
        """Set the configuration of a stream; None: the stream is deleted."""
        old = self.configs.pop(name, None)
        if old is not None:
            self.owners.remove(name, old.subjects)
        if config is not None:
            self.configs[name] = config
            self.owners.add(name, config.subjects)

    def is_being_created(self, name: str) -> bool:
        """Whether a stream of this name is still being written to disk."""
        return name in self.configs and name not in self.streams

    def info(self, domain: str, level: int) -> AccountInfo:
        """The answer to INFO."""
        usage = {
            "memory": self.usage.memory,
            "storage": self.usage.storage,
            "reserved_memory": self.usage.reserved_memory,
            "reserved_storage": self.usage.reserved_storage,
            "streams": len(self.streams),
            "consumers": self.consumer_count,
        }
        return AccountInfo(
            **usage,
            limits=NO_LIMITS if self.is_tiered else self.limits,
            domain=domain,
            api=ApiStats(level=level, total=self.api.total, errors=self.api.errors),
            tiers={TIER: Tier(**usage, limits=self.limits)} if self.is_tiered else {},
        )


def stream_usage(config: StreamConfig, bytes_used: int) -> Usage:
    """The bytes that one stream uses and reserves."""
    reserved = max(config.max_bytes, 0)
    if config.storage is StorageType.MEMORY:
        return Usage(memory=bytes_used, reserved_memory=reserved)
    return Usage(storage=bytes_used, reserved_storage=reserved)
