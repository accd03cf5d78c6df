"""Truncating a stream and undoing that: requests and answers of Tradewind's own API.

Owns the fields, their rules, and the meaning of a request in times and bytes. Never touches a
stream. nats-server has neither; both are below `$TW.API.STREAM.`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import field

from tradewind.api.base import ApiStruct, Duration, Time, Uint64, always
from tradewind.api.errors import STREAM_PURGE_FAILED
from tradewind.api.times import parse_time
from tradewind.subjects import is_valid_subject

OWN_TYPE_PREFIX: Final = "io.tradewind.api.v1."
SUBJECTS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 1024
KEEP_FOR_NS_MAX: Final = 90 * 86_400 * 1_000_000_000
# This many truncations of a stream can be taken back at a time.
WINDOWS_MAX: Final = 16


class HeaderMatch(ApiStruct, frozen=True, kw_only=True):
    """A condition on the header: messages with this name; with this value, if one is given."""

    name: str = always("")
    value: str | None = None


class StreamTruncateRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.TRUNCATE: remove the messages that meet all conditions.

    `newest`: only this many of the newest of these. `keep_for`: how long it can be undone.
    """

    before: Time | None = None
    after: Time | None = None
    newest: Uint64 = 0
    subjects: list[str] = field(default_factory=list)
    header: HeaderMatch | None = None
    keep_for: Duration = 0
    dry_run: bool = False


class StreamUndoRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.UNDO: undo the latest truncation, or the one with `id`."""

    id: str = ""
    dry_run: bool = False


class RemovedMessages(ApiStruct, frozen=True, kw_only=True):
    """Messages that are removed or brought back: the first and the last of them, and how many."""

    messages: Uint64 = always(0)
    bytes: Uint64 = always(0)
    first_seq: Uint64 = always(0)
    first_time: Time | None = None
    last_seq: Uint64 = always(0)
    last_time: Time | None = None


class StreamTruncateResponse(
    RemovedMessages,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "stream_truncate_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.TRUNCATE. `undo_id` is the id for STREAM.UNDO, valid until `undo_until`."""

    success: bool = False
    dry_run: bool = False
    undo_id: str = ""
    undo_until: Time | None = None


class UndoWindow(RemovedMessages, frozen=True, kw_only=True):
    """A truncation that can be undone."""

    id: str = always("")
    until: Time | None = None


class StreamUndoResponse(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "stream_undo_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.UNDO. `messages` were brought back; a dry run lists what can be undone."""

    success: bool = False
    dry_run: bool = False
    messages: Uint64 = always(0)
    bytes: Uint64 = always(0)
    windows: list[UndoWindow] = field(default_factory=list)


class Criteria(msgspec.Struct, frozen=True):
    """The conditions of a request. `before_ns` and `after_ns`: None means no bound."""

    patterns: tuple[bytes, ...]
    before_ns: int | None
    after_ns: int | None
    header_name: bytes
    header_value: bytes | None
    newest: int

    def takes(self, timestamp_ns: int, header: bytes) -> bool:
        """Whether a message of a matching subject meets the conditions."""
        if self.before_ns is not None and timestamp_ns >= self.before_ns:
            return False
        if self.after_ns is not None and timestamp_ns <= self.after_ns:
            return False
        return not self.header_name or self._has_header(header)

    def _has_header(self, header: bytes) -> bool:
        start = header.find(b"\r\n" + self.header_name + b":")
        while start >= 0:
            begin = start + len(self.header_name) + 3
            end = header.find(b"\r\n", begin)
            if self.header_value is None or header[begin:end].strip() == self.header_value:
                return True
            start = header.find(b"\r\n" + self.header_name + b":", end)
        return False


def criteria_of(request: StreamTruncateRequest) -> Criteria:
    """Parse the conditions; ApiError names the field and what would be right."""
    header = request.header
    if not (request.before or request.after or request.newest or request.subjects or header):
        raise _refused(
            "specify before, after, newest, subjects or header; STREAM.PURGE removes all messages"
        )
    if len(request.subjects) > SUBJECTS_MAX:
        raise _refused(f"subjects must be at most {SUBJECTS_MAX}, not {len(request.subjects)}")
    for subject in request.subjects:
        if not is_valid_subject(subject):
            raise _refused(f"subjects: {subject[:64]!r} is neither a subject nor a pattern")
    if not 0 <= request.keep_for <= KEEP_FOR_NS_MAX:
        raise _refused("keep_for: from 0 to 90 days, in nanoseconds")
    name, value = "", None
    if header is not None:
        name, value = header.name, header.value
        if not name or len(name.encode()) > HEADER_BYTES_MAX or any(c in name for c in ":\r\n"):
            raise _refused("header must be a name without colons and line breaks")
        if value is not None and len(value.encode()) > HEADER_BYTES_MAX:
            raise _refused(f"header: a value of at most {HEADER_BYTES_MAX} bytes")
    before_ns, after_ns = _time_of("before", request.before), _time_of("after", request.after)
    if before_ns is not None and after_ns is not None and after_ns >= before_ns:
        raise _refused("after must be earlier than before")
    return Criteria(
        tuple(subject.encode("utf-8", "surrogateescape") for subject in request.subjects),
        before_ns,
        after_ns,
        name.encode("utf-8", "surrogateescape"),
        None if value is None else value.strip().encode("utf-8", "surrogateescape"),
        request.newest,
    )


def _time_of(name: str, text: str | None) -> int | None:
    if not text:
        return None
    try:
        return parse_time(text)
    except ValueError:
        raise _refused(
            f"{name} must be a time such as 2026-01-31T12:00:00Z, not {text[:64]!r}"
        ) from None


def _refused(text: str) -> Exception:
    return STREAM_PURGE_FAILED(err=text)
