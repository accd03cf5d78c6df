"""The JSON documents in a backup: the state of the stream and of its consumers.

Owns their fields and valid values. A backup is untrusted input, so every number is checked before
it is used, and no more is decoded at a time than a turn of the event loop has time for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from tradewind.store.backup.archive import ArchiveError
from tradewind.store.backup.json_slices import first_member, is_end, next_members
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.format.layout import SEQUENCE_MAX
from tradewind.store.format.varint import U64_MASK

TIME_NS_MAX: Final = (1 << 63) - 1
# The bytes decoded in one go, which holds the interpreter lock.
DOCUMENT_BYTES_MAX: Final = 1024 * 1024
SLICE_BYTES: Final = 64 * 1024
# Fields of a consumer, and of its state.
FIELDS_MAX: Final = 16
_SEQUENCE_DIGITS_MAX: Final = 19


def decode_document(data: bytes, what: str) -> dict[str, Any]:
    """Decode a JSON object of moderate size; `what` names it in errors."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveError(f"{what}: it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ArchiveError(f"{what}: it is not a JSON object")
    return document


class Numbers:
    """The numbers of a document: whole, not negative, below 2^64."""

    def __init__(self, document: dict[str, Any], what: str) -> None:
        self._document = document
        self._what = what

    def __call__(self, name: str) -> int:
        """The number of this name; a missing one is 0."""
        value = self._document.get(name, 0)
        if type(value) is not int or not 0 <= value <= U64_MASK:
            raise ArchiveError(f"{self._what}: {name} must be a whole number from 0")
        return value


class DocumentPart(NamedTuple):
    """A value inside a large document, from `start` to `end`; blanks may follow it."""

    data: bytes
    start: int
    end: int

    def is_object(self) -> bool:
        """Whether it begins like an object."""
        return self.data[self.start : self.start + 1] == b"{"

    def is_null(self) -> bool:
        """Whether the value is null."""
        return self.data[self.start : self.start + 5].strip() == b"null"

    def decoded(self, what: str) -> dict[str, Any]:
        """Decode the object, which must not be large."""
        if self.end - self.start > DOCUMENT_BYTES_MAX:
            size = self.end - self.start
            raise ArchiveError(f"{what}: {size} bytes are more than {DOCUMENT_BYTES_MAX}")
        return decode_document(self.data[self.start : self.end], what)

    def slices(self, bytes_max: int, what: str) -> Iterator[tuple[int, int, int]]:
        """The members in slices: where they begin, where the first value does, and their end."""
        at = first_member(self.data, self.start, what)
        if is_end(self.data, at, self.end):
            return
        end = at
        while at:
            value, end, next_at = next_members(self.data, at, bytes_max, what)
            yield at, value, end
            at = next_at
        if not is_end(self.data, end, self.end):
            raise ArchiveError(f"{what}: it is not a JSON object")

    def fields(self, what: str) -> dict[str, DocumentPart]:
        """The members, which must be few."""
        found: dict[str, DocumentPart] = {}
        for start, value, end in self.slices(0, what):
            part = DocumentPart(self.data, value, end)
            key = decode_document(b"{" + self.data[start:value] + b"0}", what)
            found.update(dict.fromkeys(key, part))
            if len(found) > FIELDS_MAX:
                raise ArchiveError(f"{what}: it has more than {FIELDS_MAX} fields")
        return found


def consumer_state_from(part: DocumentPart, what: str, entries_max: int) -> ConsumerState:
    """Parse the state of a consumer, with at most `entries_max` messages in it."""
    fields = part.fields(what)
    state = ConsumerState(
        _pair(fields.get("delivered"), f"{what}, delivered"),
        _pair(fields.get("ack_floor"), f"{what}, ack_floor"),
    )
    for text, entry in _table(fields.get("pending"), f"{what}, pending"):
        number = Numbers(entry if isinstance(entry, dict) else {"Sequence": entry}, what)
        time_ns = entry.get("Timestamp", 0) if isinstance(entry, dict) else -1
        if type(time_ns) is not int or not 0 <= time_ns <= TIME_NS_MAX:
            raise ArchiveError(f"{what}: the time of a pending message must be a whole number")
        state.pending[text] = PendingDelivery(number("Sequence"), time_ns)
        _check_count(state, what, entries_max)
    for text, count in _table(fields.get("redelivered"), f"{what}, redelivered"):
        state.redelivered[text] = Numbers({"redelivered": count}, what)("redelivered")
        _check_count(state, what, entries_max)
    return state


def _check_count(state: ConsumerState, what: str, entries_max: int) -> None:
    if state.entry_count > entries_max:
        raise ArchiveError(f"{what}: the consumers have more messages in progress than allowed")


def _pair(part: DocumentPart | None, what: str) -> SequencePair:
    if part is None or not part.is_object():
        raise ArchiveError(f"{what} must be an object")
    number = Numbers(part.decoded(what), what)
    consumer_seq, stream_seq = number("consumer_seq"), number("stream_seq")
    if stream_seq > SEQUENCE_MAX:
        raise ArchiveError(f"{what}: no stream has a message {stream_seq}")
    return SequencePair(consumer_seq, stream_seq)


def _table(part: DocumentPart | None, what: str) -> Iterator[tuple[int, Any]]:
    if part is None or part.is_null():
        return
    if not part.is_object():
        raise ArchiveError(f"{what} must be an object")
    for start, _, end in part.slices(SLICE_BYTES, what):
        if end - start > DOCUMENT_BYTES_MAX:
            raise ArchiveError(f"{what}: a member has more than {DOCUMENT_BYTES_MAX} bytes")
        for text, value in decode_document(b"{" + part.data[start:end] + b"}", what).items():
            is_number = text.isascii() and text.isdigit() and len(text) <= _SEQUENCE_DIGITS_MAX
            if not is_number or not 0 < int(text) <= SEQUENCE_MAX:
                raise ArchiveError(f"{what}: {text[:32]!r} is not a sequence")
            yield int(text), value


def consumer_state_document(state: ConsumerState, last_seq: int) -> dict[str, Any]:
    """Encode the state of a consumer; cut at `last_seq`, where the backup ends."""
    document: dict[str, Any] = {
        name: {
            "consumer_seq": pair.consumer_seq,
            "stream_seq": min(pair.stream_seq, last_seq),
        }
        for name, pair in (("delivered", state.delivered), ("ack_floor", state.ack_floor))
    }
    pending = {
        str(seq): {"Sequence": entry.consumer_seq, "Timestamp": entry.time_ns}
        for seq, entry in sorted(state.pending.items())
        if seq <= last_seq
    }
    redelivered = {
        str(seq): count for seq, count in sorted(state.redelivered.items()) if seq <= last_seq
    }
    if pending:
        document["pending"] = pending
    if redelivered:
        document["redelivered"] = redelivered
    return document
