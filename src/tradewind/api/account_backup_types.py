"""Cuts for backups of an account, as they are sent.

Owns the limits, and the form in which a cut is sent: an archive like that of a
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

from tradewind.api.stream_types import StreamConfig, StreamState

CUT_HEAD: Final = b"cut.json"
CUT_STREAM_PREFIX: Final = b"stream/"
CUT_REMOVED: Final = b"removed"
CUT_MESSAGES: Final = b"messages"
# Each of the two sequences of a block.
SEQUENCE_BYTES: Final = 8
# Messages that one cut sends; those that are more have to be read before.
CUT_BYTES_MAX: Final = 512 * 1024


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
