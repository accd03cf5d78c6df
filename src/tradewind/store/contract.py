"""The contract of a message store: the types and the `Store` protocol.

Owns names and meanings only. `MessageStore` (memory) and `FileStore` (disk) implement it and pass
the same test suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from tradewind.errors import StoreError

# The largest record of a file; `records` reads and writes none that is larger.
RECORD_BYTES_MAX: Final = 32 * 1024 * 1024


class NotFoundError(StoreError):
    """There is no such message: never stored, deleted, or removed by a limit."""


class DiscardedError(StoreError):
    """The stream is full and its policy is to refuse new messages; the text is the official one."""


class StoreLimits(msgspec.Struct, frozen=True):
    """How much is kept. 0 or less means no limit.

    `discard_new`: the number of all messages and of bytes never remove anything, not even when the
    limit was lowered or the store is opened; `check_room` refuses instead. The age and the limit of
    a subject remove in any case.
    """

    msgs_max: int = 0
    bytes_max: int = 0
    age_max_ns: int = 0
    subject_msgs_max: int = 0
    discard_new: bool = False
    # Whether messages may have a time to live of their own (`allow_msg_ttl`).
    message_ttl: bool = False
    # The last message of a subject does not just expire: the owner of the store puts a marker in
    # its place, see `MessageStore.next_to_mark`.
    marks_expired: bool = False

    @property
    def removes_for_others(self) -> bool:
        """Whether a message may have to go because another one came."""
        total = self.msgs_max > 0 or self.bytes_max > 0
        return self.subject_msgs_max > 0 or (total and not self.discard_new)


class MessageCopy(msgspec.Struct, frozen=True):
    """A copy of one message."""

    seq: int
    timestamp_ns: int
    subject: bytes
    header: bytes
    payload: bytes


class LostMessages(msgspec.Struct, frozen=True):
    """Messages that were on disk and can no longer be read, as stream info reports them."""

    sequences: tuple[int, ...]
    bytes: int


class StoreState(msgspec.Struct, frozen=True):
    """The totals of a stream."""

    msgs: int
    bytes: int
    first_seq: int
    first_timestamp_ns: int
    last_seq: int
    last_timestamp_ns: int
    subjects: int
    deleted: int
    lost: LostMessages | None = None


class SubjectState(msgspec.Struct, frozen=True):
    """One subject of a stream."""

    msgs: int
    first_seq: int
    last_seq: int


class Store(Protocol):
    """The messages of one stream."""

    @property
    def state(self) -> StoreState:
        """The totals now."""

    def store(
        self, subject: bytes, header: bytes, payload: bytes, timestamp_ns: int, ttl_ns: int = 0
    ) -> int:
        """Append a message and give its sequence.

        `ttl_ns` is what its Nats-TTL header says, 0 without one and negative for "never".
        """

    def skip(self, through: int, timestamp_ns: int) -> None:
        """Use up all sequences up to `through` without messages."""

    def get(self, seq: int) -> MessageCopy:
        """The message of a sequence; NotFoundError if there is none."""

    def next_message(self, patterns: tuple[bytes, ...], seq: int) -> MessageCopy:
        """The first message at or behind `seq` whose subject matches; NotFoundError at the end."""

    def last_message(self, subject: bytes) -> MessageCopy:
        """The newest message whose subject matches (a literal or a pattern)."""

    def remove(self, seq: int, *, erase: bool = False) -> bool:
        """Delete a message, with `erase` also its bytes; false if it is not there."""

    def purge(self, pattern: bytes = b"", *, below: int = 0, keep: int = 0) -> int:
        """Delete the messages that match, below a sequence or all but the newest `keep`; returns
        how many.
        """

    def compact(self, seq: int) -> int:
        """Delete everything below `seq`; returns how many messages that were."""

    def expire(
        self,
        now_ns: int,
        *,
        limit: int = 0,
        expired: Callable[[MessageCopy], None] | None = None,
    ) -> int:
        """Delete what is older than the age limit or its own time to live; returns how many.

        At most `limit` if it is not 0. `expired` is told of each after it is gone, and must not
        change the store. A message whose time to live is "never" does not age.
        """

    def next_expiry_ns(self) -> int | None:
        """When `expire` will have something to do, or earlier; None if never."""

    def subjects(
        self, pattern: bytes = b"", offset: int = 0, limit: int = 100_000
    ) -> dict[bytes, int]:
        """Live messages per matching subject."""

    def messages(self, seq: int = 0) -> Iterator[MessageCopy]:
        """All live messages from a sequence on; the store may change meanwhile."""
