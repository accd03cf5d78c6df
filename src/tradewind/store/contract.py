"""The values that a message store takes and gives: limits, messages, totals and refusals.

Owns names and meanings only; `MessageStore` is what takes and gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tradewind.errors import StoreError

# The largest record of a file; `records` reads and writes none that is larger.
RECORD_BYTES_MAX: Final = 32 * 1024 * 1024


class NotFoundError(StoreError):
    """There is no such message: it was never stored, or it was deleted, or removed by a limit."""


class DiscardedError(StoreError):
    """The stream is full and its policy is to refuse new messages; the text is the official one."""


class StoreLimits(msgspec.Struct, frozen=True):
    """The limits of a store. 0 or less means no limit.

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
        """Whether a new message may remove another one."""
        total = self.msgs_max > 0 or self.bytes_max > 0
        return self.subject_msgs_max > 0 or (total and not self.discard_new)


def limits_of(config: Mapping[str, Any]) -> StoreLimits:
    """The limits in a stream's configuration."""

    def limit(name: str) -> int:
        return max(int(config.get(name) or 0), 0)

    return StoreLimits(
        msgs_max=limit("max_msgs"),
        bytes_max=limit("max_bytes"),
        age_max_ns=limit("max_age"),
        subject_msgs_max=limit("max_msgs_per_subject"),
        discard_new=config.get("discard") == "new",
        message_ttl=bool(config.get("allow_msg_ttl")),
        marks_expired=limit("subject_delete_marker_ttl") > 0,
    )


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
