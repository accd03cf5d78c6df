"""Creating, finding and deleting buckets: `js.kv` and `js.objects`.

Owns the life cycle of buckets. It never handles their contents, which are in `kv.py` and
`objects.py`; the meaning of their settings is in `bucket_settings.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from tradewind.api.names import KV_STREAM, OBJECT_STREAM
from tradewind.api.stream_types import StreamConfig, StreamInfo
from tradewind.client.api_errors import StreamNameExistsError, StreamNotFoundError
from tradewind.client.errors import BucketNotFoundError, OptionsError
from tradewind.client.kv.kv import KeyValue
from tradewind.client.kv.kv_types import KvStatus
from tradewind.client.objects.object_types import ObjectStoreStatus
from tradewind.client.objects.objects import ObjectStore
from tradewind.client.streams.bucket_settings import (
    BucketSettings,
    KvSettings,
    changed_members,
    check_bucket,
    check_same,
    kv_config,
    object_config,
)

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream

# Since this level of the API the server knows values with a time to live.
TTL_API_LEVEL = 1


class KvBuckets:
    """The key-value buckets of an account.

    >>> bucket = await js.kv.create("prices", history=5)
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js

    async def create(self, bucket: str, **settings: Unpack[KvSettings]) -> KeyValue:
        """Create a bucket, or open the existing one if it has these settings.

        `history`: values stored per key, 1 to 64. `ttl`: seconds until values expire. `allow_ttl`:
        values may have a `ttl` of their own. `marker_ttl`: watchers are notified of expired keys.
        BucketExistsError if it exists with other settings; see KvSettings for all of them.
        """
        config = kv_config(bucket, settings)
        if config.allow_msg_ttl:
            account = await self._js.manager.account_info()
            if account.api.level < TTL_API_LEVEL:
                raise OptionsError("allow_ttl: the server is too old, it needs 2.11 or later")
        return KeyValue(self._js, await _create(self._js, bucket, config, settings))

    async def open(self, bucket: str) -> KeyValue:
        """Open an existing bucket; BucketNotFoundError if there is none."""
        return KeyValue(self._js, await _info(self._js, KV_STREAM, bucket))

    async def update(self, bucket: str, **settings: Unpack[KvSettings]) -> KeyValue:
        """Change the given settings of a bucket; all others stay as they are."""
        config = kv_config(bucket, settings)
        return KeyValue(self._js, await _update(self._js, KV_STREAM, bucket, config, settings))

    async def delete(self, bucket: str) -> None:
        """Delete a bucket with all its values; BucketNotFoundError if there is none."""
        await _delete(self._js, KV_STREAM, bucket)

    async def names(self) -> AsyncIterator[str]:
        """Iterate over the names of all buckets."""
        async for name in self._js.manager.streams.names():
            if name.startswith(KV_STREAM):
                yield name.removeprefix(KV_STREAM)

    async def list(self) -> AsyncIterator[KvStatus]:
        """All buckets with size and settings."""
        async for info in self._js.manager.streams.list():
            if info.config.name.startswith(KV_STREAM):
                yield KvStatus(info)


class ObjectStores:
    """The object stores of an account.

    >>> store = await js.objects.create("films", storage="file")
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js

    async def create(self, bucket: str, **settings: Unpack[BucketSettings]) -> ObjectStore:
        """Create a store, or open the existing one if it has these settings.

        `ttl`: seconds until objects expire. BucketExistsError if it exists with other settings;
        see BucketSettings for all of them.
        """
        config = object_config(bucket, settings)
        return ObjectStore(self._js, await _create(self._js, bucket, config, settings))

    async def open(self, bucket: str) -> ObjectStore:
        """Open an existing store; BucketNotFoundError if there is none."""
        return ObjectStore(self._js, await _info(self._js, OBJECT_STREAM, bucket))

    async def update(self, bucket: str, **settings: Unpack[BucketSettings]) -> ObjectStore:
        """Change the given settings of a store; all others stay as they are."""
        config = object_config(bucket, settings)
        return ObjectStore(
            self._js, await _update(self._js, OBJECT_STREAM, bucket, config, settings)
        )

    async def delete(self, bucket: str) -> None:
        """Delete a store with all its objects; BucketNotFoundError if there is none."""
        await _delete(self._js, OBJECT_STREAM, bucket)

    async def names(self) -> AsyncIterator[str]:
        """Iterate over the names of all stores."""
        async for name in self._js.manager.streams.names():
            if name.startswith(OBJECT_STREAM):
                yield name.removeprefix(OBJECT_STREAM)

    async def list(self) -> AsyncIterator[ObjectStoreStatus]:
        """All stores with size and settings."""
        async for info in self._js.manager.streams.list():
            if info.config.name.startswith(OBJECT_STREAM):
                yield ObjectStoreStatus(info)


async def _create(
    js: JetStream, bucket: str, config: StreamConfig, settings: Mapping[str, Any]
) -> StreamInfo:
    streams = js.manager.streams
    try:
        return await streams.add(config)
    except StreamNameExistsError:
        found = await streams.info(config.name)
        check_same(bucket, config, found.config, settings)
        return found


async def _update(
    js: JetStream, prefix: str, bucket: str, config: StreamConfig, settings: Mapping[str, Any]
) -> StreamInfo:
    found = (await _info(js, prefix, bucket)).config
    changed = msgspec.structs.replace(found, **changed_members(config, settings))
    return await js.manager.streams.update(changed)


async def _info(js: JetStream, prefix: str, bucket: str) -> StreamInfo:
    check_bucket(bucket)
    try:
        return await js.manager.streams.info(prefix + bucket)
    except StreamNotFoundError:
        raise _missing(bucket) from None


async def _delete(js: JetStream, prefix: str, bucket: str) -> None:
    check_bucket(bucket)
    try:
        await js.manager.streams.delete(prefix + bucket)
    except StreamNotFoundError:
        raise _missing(bucket) from None


def _missing(bucket: str) -> BucketNotFoundError:
    return BucketNotFoundError(f"bucket {bucket!r} does not exist: create it first")
