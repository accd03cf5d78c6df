"""Cuts of an account, as a client reads them: all streams in one moment.

Owns the request and its answer (`tradewind.api.account_backup_types`). Only a tradewind-server
answers it; with any other, each stream has a moment of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.api.account_backup_types import (
    CUT_HEAD,
    CUT_MESSAGES,
    CUT_REMOVED,
    CUT_STREAM_PREFIX,
    SEQUENCE_BYTES,
    CutHead,
)
from tradewind.api.base import encode
from tradewind.api.request_types import KnownPart
from tradewind.api.times import parse_time
from tradewind.backups.account_api import (
    AccountApi,
    ArchiveDownload,
    StreamFacts,
    decoded,
    saved_consumer,
)
from tradewind.backups.backup_documents import SavedConsumer
from tradewind.backups.backup_errors import BackupError
from tradewind.backups.sequence_ranges import SequenceRanges
from tradewind.errors import StoreError
from tradewind.store.format.sequence_set import SequenceSet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The other members of a request.
REQUEST_BYTES = 1024


class _StreamHeader(msgspec.Struct, kw_only=True):
    """`CutStream`, with every setting that the server has."""

    created: str
    config: dict[str, Any]
    state: dict[str, Any]
    after: int
    consumers: int
    removed: int
    has_removed: bool
    has_all: bool


class CutPart(msgspec.Struct):
    """A stream in a cut. `messages` are those after `after`, if it `has_all` of them. `removed` is
    None if the cut does not tell which sequences have no message.
    """

    facts: StreamFacts
    after: int
    has_all: bool
    consumers: list[SavedConsumer]
    removed: SequenceRanges | None
    messages: bytes


class CutTooLargeError(BackupError):
    """A cut cannot be asked for in one request."""


class TakenCut(msgspec.Struct):
    """All streams of an account at a time, by name."""

    time: str
    is_complete: bool
    parts: dict[str, CutPart]


def take_account_cut(
    api: AccountApi,
    known: Mapping[str, KnownPart],
    *,
    named_only: bool = False,
    is_final: bool = False,
) -> TakenCut:
    """Take a cut; NotTradewindError if the server has none, JetStreamApiError if it refuses,
    CutTooLargeError if too many streams are known.
    """
    body = {"known": dict(known), "named_only": named_only, "final": is_final}
    if len(encode(body)) > api.connection.max_payload - REQUEST_BYTES:
        raise CutTooLargeError("too many streams have changed for one request")
    with ArchiveDownload(api, "backup_cut", "", body, "cut of the account") as download:
        entry = download.next_entry()
        if entry.name != CUT_HEAD:
            raise BackupError("the cut of the account has no head first")
        head: CutHead = decoded(entry.payload, CutHead, "head of the cut")
        parts = [_part(download) for _ in range(head.streams)]
        if download.next_entry().name:
            raise BackupError("the cut of the account has more streams than it says")
    try:
        parse_time(head.time)
    except ValueError as error:
        raise BackupError(f"the cut of the account has no time: {error}") from None
    return TakenCut(head.time, head.complete, {part.facts.name: part for part in parts})


def _part(download: ArchiveDownload) -> CutPart:
    entry = download.next_entry()
    name = entry.name.removeprefix(CUT_STREAM_PREFIX).decode("utf-8", "replace")
    header: _StreamHeader = decoded(entry.payload, _StreamHeader, f"cut of stream {name}")
    facts = StreamFacts(header.config, header.state, header.created)
    if facts.name != name or not entry.name.startswith(CUT_STREAM_PREFIX):
        raise BackupError(f"cut of stream {name}: it has the configuration of {facts.name!r}")
    consumers = [saved_consumer(download.next_entry(), name) for _ in range(header.consumers)]
    blocks = [_named(download, CUT_REMOVED, name) for _ in range(header.removed)]
    messages = _named(download, CUT_MESSAGES, name)
    removed = _removed(facts, blocks) if header.has_removed else None
    return CutPart(facts, header.after, header.has_all, consumers, removed, messages)


def _named(download: ArchiveDownload, wanted: bytes, stream: str) -> bytes:
    entry = download.next_entry()
    if entry.name != wanted:
        raise BackupError(f"cut of stream {stream}: {wanted.decode()} is missing")
    return entry.payload


def _removed(facts: StreamFacts, blocks: Sequence[bytes]) -> SequenceRanges:
    """The sequences without a message, between the first and the last one of the stream; none if
    no block is named.
    """
    found = SequenceRanges()
    if not blocks:
        return found
    next_seq = max(facts.number("first_seq"), 1)
    for block in blocks:
        first = int.from_bytes(block[:SEQUENCE_BYTES], "little")
        last = int.from_bytes(block[SEQUENCE_BYTES : 2 * SEQUENCE_BYTES], "little")
        if first > next_seq:
            found.add(next_seq, first - 1)
        try:
            deleted, _ = SequenceSet.decode(block, 2 * SEQUENCE_BYTES, path=facts.name)
        except StoreError as error:
            raise BackupError(f"cut of stream {facts.name}: {error}") from None
        seq = deleted.next_present(first)
        while seq is not None:
            end = deleted.next_absent(seq)
            through = (end if end is not None else last + 1) - 1
            found.add(seq, through)
            seq = deleted.next_present(through + 1)
        next_seq = max(next_seq, last + 1)
    last_seq = facts.number("last_seq")
    if next_seq <= last_seq and facts.number("messages"):
        found.add(next_seq, last_seq)
    return found
