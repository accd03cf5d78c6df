"""The types of an object store: descriptions of objects and the status of the store.

Owns the JSON that describes an object, which all NATS clients share, and the format of its digest.
It never contacts the server.
"""

from __future__ import annotations

import base64
import datetime
from typing import Final

import msgspec
from msgspec import Struct, field

from tradewind.api.names import OBJECT_STREAM
from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.client.errors import BadAnswerError
from tradewind.client.streams.bucket_status import BucketStatus
from tradewind.errors import JSON_ERRORS

CHUNK_BYTES: Final = 128 << 10
DIGEST_PREFIX: Final = "SHA-256="


class ObjectLink(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where a link leads: to an object, or without a name to a whole store."""

    bucket: str
    name: str = ""


class ObjectOptions(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How an object is stored."""

    link: ObjectLink | None = None
    max_chunk_size: int | None = None


class ObjectInfo(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The description of an object. Only the name is left of a deleted object.

    `mtime` is when it was stored, as RFC 3339 text; `modified` is the same as a datetime.
    """

    name: str
    description: str | None = ""
    headers: dict[str, list[str]] | None = field(default_factory=dict)
    metadata: dict[str, str] | None = field(default_factory=dict)
    options: ObjectOptions | None = None
    bucket: str = field(default_factory=str)
    nuid: str = field(default_factory=str)
    size: int = field(default_factory=int)
    mtime: str = field(default_factory=lambda: ZERO_TIME)
    chunks: int = field(default_factory=int)
    digest: str | None = ""
    deleted: bool = False

    @property
    def modified(self) -> datetime.datetime:
        """When it was stored, in UTC."""
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return epoch + datetime.timedelta(microseconds=parse_time(self.mtime) // 1000)

    @property
    def link(self) -> ObjectLink | None:
        """Where it leads, if it is a link."""
        return self.options.link if self.options else None


def decode_info(data: bytes, time: str) -> ObjectInfo:
    """The description in a stored message; its time is that of the message."""
    try:
        info = msgspec.json.decode(data, type=ObjectInfo)
    except JSON_ERRORS as error:
        raise BadAnswerError(f"the description of an object cannot be read: {error}") from None
    return msgspec.structs.replace(info, mtime=time)


def encode_info(info: ObjectInfo) -> bytes:
    """The description as it is stored: without a time, which is that of the message."""
    return msgspec.json.encode(msgspec.structs.replace(info, mtime=ZERO_TIME))


def encode_name(name: str) -> str:
    """A name as the token of a subject."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def encode_digest(digest: bytes) -> str:
    """A SHA-256 sum as it is written in descriptions."""
    return DIGEST_PREFIX + base64.urlsafe_b64encode(digest).decode()


def is_same_digest(text: str | None, digest: bytes) -> bool:
    """Whether a written sum is this one; padding may be missing."""
    if not text or text[: len(DIGEST_PREFIX)].upper() != DIGEST_PREFIX:
        return False
    return text[len(DIGEST_PREFIX) :].rstrip("=") == (
        base64.urlsafe_b64encode(digest).decode().rstrip("=")
    )


class ObjectStoreStatus(BucketStatus, frozen=True):
    """An object store as it is now."""

    stream_prefix = OBJECT_STREAM

    @property
    def size(self) -> int:
        """How many bytes it holds, descriptions included."""
        return self.info.state.bytes

    @property
    def is_sealed(self) -> bool:
        """Whether nothing in it can be changed."""
        return self.info.config.sealed
