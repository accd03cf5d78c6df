"""A bucket whose keys and values are encoded: `bucket.with_codecs(...)`.

Owns where codecs are applied: keys and values on the way to the server, entries on the way back.
The operations are those of `kv.py`, which see only encoded keys below their lowest methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.client.core.payloads import payload_bytes
from tradewind.client.errors import CodecError, OptionsError, WrongRevisionError
from tradewind.client.kv.codecs import FilterCodec, KeyCodec, ValueCodec
from tradewind.client.kv.entries import Entry
from tradewind.client.kv.kv import KeyValue

if TYPE_CHECKING:
    from tradewind.client.api_errors import JetStreamApiError
    from tradewind.client.connection import Payload
    from tradewind.client.core.duration_input import DurationInput
    from tradewind.client.core.message import Msg
    from tradewind.client.jetstream import PublishOptions


class CodedKeyValue(KeyValue):
    """A bucket as a program sees it through its codecs; all methods are those of `KeyValue`.

    The first codec is applied first when something is stored, and last when it is read.
    """

    def __init__(
        self, bucket: KeyValue, keys: Sequence[KeyCodec], values: Sequence[ValueCodec]
    ) -> None:
        self.__dict__.update(bucket.__dict__)
        self._key_codecs = tuple(keys)
        self._value_codecs = tuple(values)

    def __repr__(self) -> str:
        return f"CodedKeyValue({self.bucket!r})"

    async def put(self, key: str, value: Payload, *, ttl: DurationInput | None = None) -> int:
        """See `KeyValue.put`."""
        return await super().put(self._stored_key(key), self._stored_value(value), ttl=ttl)

    async def _load(self, key: str, revision: int | None) -> Entry | None:
        entry = await super()._load(self._stored_key(key), revision)
        return None if entry is None else self._shown(entry)

    async def _write(
        self,
        key: str,
        value: Payload,
        last: int,
        ttl: DurationInput | None,
        *,
        msg_id: str = "",
    ) -> int:
        stored, data = self._stored_key(key), self._stored_value(value)
        return await super()._write(stored, data, last, ttl, msg_id=msg_id)

    async def _mark(
        self, key: str, headers: dict[str, str], revision: int | None, options: PublishOptions
    ) -> None:
        await super()._mark(self._stored_key(key), headers, revision, options)

    def _entry_decoder(self) -> Callable[[Msg], Entry]:
        decode = super()._entry_decoder()
        return lambda message: self._shown(decode(message))

    def _wrong_revision(
        self, key: str, options: PublishOptions, error: JetStreamApiError
    ) -> WrongRevisionError:
        return super()._wrong_revision(self._shown_key(key), options, error)

    # ------------------------------------------------------------------ codecs

    def _stored_key(self, key: str) -> str:
        for codec in self._key_codecs:
            key = codec.encode_key(key)
        return key

    def _stored_filter(self, pattern: str) -> str:
        for codec in self._key_codecs:
            if isinstance(codec, FilterCodec):
                pattern = codec.encode_filter(pattern)
            elif pattern != ">":
                raise OptionsError(
                    f"keys {pattern!r}: {_name(codec)} has no encode_filter, so that only all keys"
                    " can be selected"
                )
        return pattern

    def _stored_value(self, value: Payload) -> bytes:
        data = payload_bytes(value)
        for codec in self._value_codecs:
            data = codec.encode_value(data)
        return data

    def _shown_key(self, stored: str) -> str:
        key = stored
        for codec in reversed(self._key_codecs):
            try:
                key = codec.decode_key(key)
            except ValueError as error:
                raise CodecError(
                    f"key {stored!r} of bucket {self.bucket!r} was not stored by {_name(codec)}:"
                    f" {error}"
                ) from error
        return key

    def _shown_value(self, key: str, entry: Entry) -> bytes:
        value = entry.value
        for codec in reversed(self._value_codecs):
            try:
                value = codec.decode_value(value)
            except ValueError as error:
                raise CodecError(
                    f"revision {entry.revision} of key {key!r} of bucket {self.bucket!r} was not"
                    f" stored by {_name(codec)}: {error}"
                ) from error
        return value

    def _shown(self, entry: Entry) -> Entry:
        """The entry with its own key and value; markers, and entries without values, have none."""
        key = self._shown_key(entry.key)
        has_value = not entry.is_deleted and entry.size == len(entry.value)
        value = self._shown_value(key, entry) if has_value else entry.value
        ttl_ns = entry.ttl_ns
        return Entry(
            entry.bucket,
            key,
            value,
            entry.revision,
            entry.created_ns,
            entry.operation,
            entry.delta,
            len(value) if has_value else entry.size,
            None if ttl_ns is None else f"{ttl_ns}ns",
        )


def _name(codec: Any) -> str:
    return type(codec).__name__
