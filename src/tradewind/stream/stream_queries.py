"""Queries of a stream: its state, and single messages.

Owns the meaning of the state in STREAM.INFO and the ways to select a message. It never changes
anything, and sees messages up to `visible`: those that a power failure could remove are not shown.
Only if no visible message fits, one up to `readable` is selected: it may have replaced another, and
its subject must not look empty. The caller shows it when it is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api import errors
from tradewind.api.responses import StoredMessage
from tradewind.api.stream_types import LostStreamData, StreamState
from tradewind.api.times import ZERO_TIME, format_time, parse_time
from tradewind.store.contract import MessageCopy, NotFoundError, StoreState
from tradewind.store.table.deleted_list import DeletedList
from tradewind.store.table.subject_page import SubjectPage
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.api.request_types import MsgGetRequest
    from tradewind.store.table.message_store import MessageStore
    from tradewind.store.table.subject_index import SubjectFilter
    from tradewind.stream.ingest import Ingest

SUBJECTS_PAGE: Final = 100_000
DELETED_LISTED_MAX: Final = 1_000_000


def to_bytes(subject: str) -> bytes:
    """A subject of a request as it is on the wire."""
    return subject.encode("utf-8", "surrogateescape")


def to_text(subject: bytes) -> str:
    """A subject as text for documents."""
    return subject.decode("utf-8", "replace")


def can_match(pattern: bytes) -> bool:
    """Whether a pattern is well formed; a malformed one in a request matches nothing."""
    return is_valid_subject(pattern.decode("utf-8", "surrogateescape"))


def _time(time_ns: int) -> str:
    return format_time(time_ns) if time_ns else ZERO_TIME


def stream_state(store: MessageStore, consumer_count: int) -> StreamState:
    """The state of a stream; subjects and deleted sequences, which may be many, are added by
    `with_details`.
    """
    return state_document(store.state, consumer_count)


def state_document(state: StoreState, consumer_count: int) -> StreamState:
    """The state of a stream with these totals."""
    lost = state.lost
    return StreamState(
        messages=state.msgs,
        bytes=state.bytes,
        first_seq=state.first_seq,
        first_ts=_time(state.first_timestamp_ns),
        last_seq=state.last_seq,
        last_ts=_time(state.last_timestamp_ns),
        num_subjects=state.subjects,
        num_deleted=state.deleted,
        lost=LostStreamData(msgs=list(lost.sequences), bytes=lost.bytes) if lost else None,
        consumer_count=consumer_count,
    )


def subject_page(store: MessageStore, pattern: str) -> SubjectPage:
    """Matching subjects with their messages, still to be collected."""
    subject = to_bytes(pattern)
    return SubjectPage(store.index, store.filter((subject,)) if can_match(subject) else None)


def deleted_list(store: MessageStore) -> DeletedList:
    """The sequences without a message, still to be collected."""
    return DeletedList(store, DELETED_LISTED_MAX)


def with_details(state: StreamState, details: dict[str, bytes]) -> StreamState:
    """The state with additional members that are already JSON."""
    members: dict[str, Any] = {name: msgspec.Raw(text) for name, text in details.items()}
    return msgspec.structs.replace(state, **members)


def message_at(store: MessageStore, seq: int, visible: int) -> MessageCopy:
    """The message of a sequence; NotFoundError."""
    if seq > visible:
        raise NotFoundError(f"stream {store.name!r} has no message {seq}")
    return store.get(seq)


def last_message(store: MessageStore, subject: bytes, visible: int) -> MessageCopy:
    """The newest message whose subject matches; NotFoundError."""
    if not visible or not can_match(subject):
        raise NotFoundError(f"stream {store.name!r} has no message on {subject!r}")
    return store.last_message(subject, visible)


def filter_of(store: MessageStore, pattern: str) -> SubjectFilter:
    """A filter for one pattern, all subjects if it is empty; NotFoundError if nothing can match."""
    subject = to_bytes(pattern or ">")
    if not can_match(subject):
        raise NotFoundError(f"stream {store.name!r} has no message on {subject!r}")
    return store.filter((subject,))


def next_message(store: MessageStore, chosen: SubjectFilter, seq: int, visible: int) -> MessageCopy:
    """The first message from a sequence on that passes the filter; NotFoundError."""
    message = store.next_message(chosen, seq)
    if message.seq > visible:
        raise NotFoundError(f"stream {store.name!r} has no matching message from {seq} on")
    return message


def not_there(store: MessageStore, seq: int, *, in_files: bool) -> errors.ApiError:
    """The error of deleting a missing message. For files, nats-server words it differently outside
    the range of their sequences.
    """
    if in_files and seq > store.last_seq:
        return errors.STREAM_MSG_DELETE_FAILED(err="stream store EOF")
    if in_files and seq < max(store.first_seq, 1):
        return errors.STREAM_MSG_DELETE_FAILED(err="no message found")
    return errors.SEQUENCE_NOT_FOUND(seq=seq)


def time_of(text: str) -> int:
    """The time in a request, which has been checked when it was decoded."""
    return parse_time(text)


def find_message(store: MessageStore, request: MsgGetRequest, visible: int) -> MessageCopy:
    """The one message that a request names; NotFoundError. The request has no conflicts."""
    if request.start_time is not None:
        seq = store.sequence_at(time_of(request.start_time))
        return next_message(store, filter_of(store, request.next_by_subj), seq, visible)
    if request.next_by_subj:
        chosen = filter_of(store, request.next_by_subj)
        return next_message(store, chosen, request.seq, visible)
    if request.last_by_subj:
        return last_message(store, to_bytes(request.last_by_subj), visible)
    return message_at(store, request.seq, visible)


def check_get(request: MsgGetRequest) -> None:
    """ApiError unless a request names one message in one way."""
    names_none = (
        not request.seq
        and not request.last_by_subj
        and not request.next_by_subj
        and request.start_time is None
    )
    if names_none or request.batch > 0 or request.max_bytes > 0 or has_conflict(request):
        raise errors.BAD_REQUEST()


def get_message(store: MessageStore, request: MsgGetRequest, ingest: Ingest) -> StoredMessage:
    """STREAM.MSG.GET."""
    check_get(request)
    try:
        try:
            message = find_message(store, request, ingest.visible())
        except NotFoundError:
            message = find_message(store, request, ingest.readable())
    except NotFoundError:
        raise errors.NO_MESSAGE_FOUND() from None
    return StoredMessage(
        subject=to_text(message.subject),
        seq=message.seq,
        hdrs=b"" if request.no_hdr else message.header,
        data=message.payload,
        time=format_time(message.timestamp_ns),
    )


def has_conflict(request: MsgGetRequest) -> bool:
    """Whether a request names messages in two ways that exclude each other."""
    by_time = request.start_time is not None
    return bool(
        (request.seq and request.last_by_subj)
        or (request.seq and by_time)
        or (by_time and request.last_by_subj)
        or (request.last_by_subj and request.next_by_subj)
    )
