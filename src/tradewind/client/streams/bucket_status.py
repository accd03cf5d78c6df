"""The common part of the status of key-value buckets and object stores.

Owns reading the settings of a bucket from its stream. It never contacts the server.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from tradewind.api.stream_types import Compression, StorageType, StreamInfo
from tradewind.durations import SECOND_NS


class BucketStatus(Struct, frozen=True):
    """A bucket as it is now; `info` is that of its stream. Times are in seconds."""

    stream_prefix: ClassVar[str]
    info: StreamInfo

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self.info.config.name.removeprefix(self.stream_prefix)

    @property
    def description(self) -> str:
        """The description of the bucket."""
        return self.info.config.description

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the bucket, including what the server adds."""
        return self.info.config.metadata

    @property
    def ttl(self) -> float:
        """The maximum age of the content in seconds; 0: no limit."""
        return self.info.config.max_age / SECOND_NS

    @property
    def storage(self) -> StorageType:
        """Where the content is stored: in files or in memory."""
        return self.info.config.storage

    @property
    def replicas(self) -> int:
        """How many servers keep a copy."""
        return self.info.config.num_replicas

    @property
    def is_compressed(self) -> bool:
        """Whether the bucket is compressed on disk."""
        return self.info.config.compression is Compression.S2
