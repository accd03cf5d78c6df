"""Cuts and partial reads for backups of an account: requests and answers of our own API.

Owns the fields and the limits, and the form in which a cut is sent: an archive like that of a
snapshot (`tradewind.store.backup.archive`), with these entries.

    cut.json            CutHead
    stream/NAME         CutStream; then, for this stream, the numbers of entries that it names:
      consumers/NAME    configuration and state, as in a snapshot
      removed           one for each block: first and last sequence, 8 bytes each, and the set of
                        sequences without a message, as in index.db
      messages          entries of messages after `after`, up to the end of the stream
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import field

from tradewind.api.base import ApiStruct, Int, Time, Uint64, always
from tradewind.api.stream_types import StreamConfig, StreamState
from tradewind.api.times import ZERO_TIME
from tradewind.api.truncation_types import OWN_TYPE_PREFIX

CUT_HEAD: Final = b"cut.json"
CUT_STREAM_PREFIX: Final = b"stream/"
CUT_REMOVED: Final = b"removed"
CUT_MESSAGES: Final = b"messages"
# Each of the two sequences of a block.
SEQUENCE_BYTES: Final = 8
# Messages that one cut sends; those that are more have to be read before.
CUT_BYTES_MAX: Final = 512 * 1024


class KnownPart(ApiStruct, frozen=True, kw_only=True):
    """The part of a stream that a client has: up to `last_seq`; `messages` are from `first_seq`
    on.
    """

    created: Time = always(ZERO_TIME)
    first_seq: Uint64 = 0
    last_seq: Uint64 = 0
    messages: Uint64 = 0


class BackupCutRequest(ApiStruct, frozen=True, kw_only=True):
    """BACKUP.CUT: all streams of the account in one moment, with what follows on `known`.

    A cut is complete if the messages after what is known are few. With `final` it has consumers and
    removed sequences in any case. With `named_only`, streams that are not in `known` come without
    messages and removed sequences: the client expects that they have not changed.
    """

    deliver_subject: str = always("")
    known: dict[str, KnownPart] = field(default_factory=dict)
    named_only: bool = False
    final: bool = False
    chunk_size: Int = 0
    window_size: Int = 0


class BackupCutResponse(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "backup_cut_response",
    frozen=True,
    kw_only=True,
):
    """BACKUP.CUT; the chunks follow."""

    streams: Int = always(0)
    complete: bool = always(False)
    time: Time = always(ZERO_TIME)


class BackupReadRequest(ApiStruct, frozen=True, kw_only=True):
    """BACKUP.READ: a snapshot without consumers, from a sequence on."""

    deliver_subject: str = always("")
    first_seq: Uint64 = 0
    chunk_size: Int = 0
    window_size: Int = 0


class CutHead(msgspec.Struct, kw_only=True):
    """The first entry of a cut."""

    time: str
    streams: int
    complete: bool


class CutStream(msgspec.Struct, kw_only=True):
    """A stream in a cut. Without `has_removed`, its removed sequences are not in the cut, and
    without `has_all` some of the messages after `after` are not.
    """

    created: str
    config: StreamConfig
    state: StreamState
    after: int
    consumers: int
    removed: int
    has_removed: bool
    has_all: bool
