"""The documents in a place of backups, and their links.

Owns the types and the names of files. The format:

    backups/ID.json      a backup: `{"digest": ..., "backup": {...}}`; it lists its streams
    objects/XX/HASH      everything else, named by the SHA-256 of its bytes
    locks/NAME.json      who is at work

    BackupRecord -> SavedStream -> RangePage -> MessageRange -> messages
                              \\--> consumers

Objects are written before what names them, and the backup last. An object is never changed, so
backups share those that stay the same. Documents are JSON inside S2; messages are entries as in
`tradewind.store.backup.archive`, inside S2. Unknown members are left alone by older versions.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tradewind.backups.backup_errors import BackupError
from tradewind.store.format.s2 import S2Error, compress, decompress

FORMAT: Final = 1
BACKUPS: Final = "backups"
OBJECTS: Final = "objects"
LOCKS: Final = "locks"
# The ranges in one page.
PAGE_RANGES: Final = 256
PAGE_REMOVED_BYTES: Final = 256 << 10
DOCUMENT_BYTES_MAX: Final = 1 << 30


class _Document(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The base of all documents."""


class MessageRange(_Document):
    """An object with consecutive messages. `live` of its `messages` belong to the backup: not those
    in `removed`, a packed set of sequences. `size` are its bytes without compression.
    """

    object: str
    first_seq: int
    last_seq: int
    messages: int
    live: int
    size: int
    stored: int
    first_ns: int
    last_ns: int
    removed: bytes = b""


class RangePage(_Document):
    """Some message ranges, in their order."""

    ranges: list[MessageRange]


class PageLink(_Document):
    """A page, and the sums of its ranges."""

    object: str
    first_seq: int
    last_seq: int
    live: int
    size: int
    stored: int


class SavedConsumer(_Document):
    """A consumer: configuration and state as in a snapshot."""

    name: str
    config: dict[str, Any]
    state: dict[str, Any]


class SavedStream(_Document):
    """A stream at the moment of its cut. `state` is that of the server; `missing` messages of it
    were removed before they could be read.
    """

    name: str
    created: str
    config: dict[str, Any]
    state: dict[str, Any]
    pages: list[PageLink]
    consumers: str = ""  # an object with a list of SavedConsumer
    consumer_count: int = 0
    missing: int = 0

    def number(self, member: str) -> int:
        """A number of the state; BackupError if it is none."""
        value = self.state.get(member, 0)
        if type(value) is not int or value < 0:
            raise BackupError(f"stream {self.name}: state.{member} must be a whole number")
        return value


class BackedUpStream(_Document):
    """A stream of a backup, and what a list shows of it."""

    name: str
    object: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    last_ts: str
    created: str
    missing: int = 0
    fingerprint: str = ""  # the digest of everything but the messages


class BackupRecord(_Document):
    """A backup: a point in time of an account. `cut` is "account" if all streams were looked at in
    one moment, or "stream" if each has its own, between `started` and `finished`.
    """

    format: int
    id: str
    started: str
    cut_at: str
    finished: str
    cut: str
    server: str
    streams: list[BackedUpStream]
    templates: str = ""  # an object with a list of templates
    template_count: int = 0
    # What this backup has added to the place.
    added_bytes: int = 0
    added_objects: int = 0
    comment: str = ""
    # Streams that could not be read, with the reason.
    failed: dict[str, str] = msgspec.field(default_factory=dict)


class _Envelope(msgspec.Struct):
    digest: str
    backup: msgspec.Raw


def object_name(digest: str) -> str:
    """The name of the file of an object."""
    return f"{OBJECTS}/{digest[:2]}/{digest}"


def backup_name(backup_id: str) -> str:
    """The name of the file of a backup."""
    return f"{BACKUPS}/{backup_id}.json"


def packed_document(document: object) -> bytes:
    """A document as an object."""
    return compress(msgspec.json.encode(document))


def unpacked_document(content: bytes, kind: Any, what: str) -> Any:
    """The document in an object; BackupError names `what` if it is none."""
    try:
        return msgspec.json.decode(decompress(content, DOCUMENT_BYTES_MAX), type=kind)
    except (S2Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BackupError(f"{what}: not a document of a backup: {error}") from None


def encode_backup(record: BackupRecord) -> bytes:
    """The content of the file of a backup."""
    text = msgspec.json.encode(record)
    return msgspec.json.encode(_Envelope(digest_of(text), msgspec.Raw(text))) + b"\n"


def decode_backup(content: bytes, what: str) -> BackupRecord:
    """Parse the file of a backup; BackupError if it is damaged or from a newer version."""
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
        if digest_of(bytes(envelope.backup)) != envelope.digest:
            raise BackupError(f"{what}: its digest does not match: the file is damaged")
        version = msgspec.json.decode(envelope.backup).get("format")
        if version != FORMAT:
            raise BackupError(f"{what}: format {version!r}; this version reads {FORMAT}")
        return msgspec.json.decode(envelope.backup, type=BackupRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BackupError(f"{what}: not a backup: {error}") from None


def digest_of(content: bytes) -> str:
    """The SHA-256 of bytes, which names the object."""
    from hashlib import sha256

    return sha256(content).hexdigest()
