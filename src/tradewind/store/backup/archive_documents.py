"""The JSON documents in a backup: the state of the stream and of its consumers.

Owns their fields and valid values. A backup is untrusted input, so every number is checked before
it is used.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tradewind.store.backup.archive import ArchiveError
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.format.layout import SEQUENCE_MAX
from tradewind.store.format.varint import U64_MASK

TIME_NS_MAX: Final = (1 << 63) - 1
_SEQUENCE_DIGITS_MAX: Final = 19


def decode_document(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object; `what` is named if it is none."""
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
        """The number of this name; one that is absent is 0."""
        value = self._document.get(name, 0)
        if type(value) is not int or not 0 <= value <= U64_MASK:
            raise ArchiveError(f"{self._what}: {name} must be a whole number from 0")
        return value


def consumer_state_from(document: dict[str, Any], what: str) -> ConsumerState:
    """The state of a consumer as archives have it."""
    state = ConsumerState(
        _pair(document.get("delivered"), f"{what}, delivered"),
        _pair(document.get("ack_floor"), f"{what}, ack_floor"),
    )
    for text, entry in _table(document.get("pending"), f"{what}, pending"):
        number = Numbers(entry if isinstance(entry, dict) else {"Sequence": entry}, what)
        time_ns = entry.get("Timestamp", 0) if isinstance(entry, dict) else -1
        if type(time_ns) is not int or not 0 <= time_ns <= TIME_NS_MAX:
            raise ArchiveError(f"{what}: the time of a pending message must be a whole number")
        state.pending[text] = PendingDelivery(number("Sequence"), time_ns)
    for text, count in _table(document.get("redelivered"), f"{what}, redelivered"):
        state.redelivered[text] = Numbers({"redelivered": count}, what)("redelivered")
    return state


def _pair(document: object, what: str) -> SequencePair:
    if not isinstance(document, dict):
        raise ArchiveError(f"{what}: it must be an object")
    number = Numbers(document, what)
    consumer_seq, stream_seq = number("consumer_seq"), number("stream_seq")
    if stream_seq > SEQUENCE_MAX:
        raise ArchiveError(f"{what}: no stream has a message {stream_seq}")
    return SequencePair(consumer_seq, stream_seq)


def _table(document: object, what: str) -> list[tuple[int, Any]]:
    if document is None:
        return []
    if not isinstance(document, dict):
        raise ArchiveError(f"{what}: it must be an object")
    rows = []
    for text, value in document.items():
        is_number = text.isascii() and text.isdigit() and len(text) <= _SEQUENCE_DIGITS_MAX
        if not is_number or not 0 < int(text) <= SEQUENCE_MAX:
            raise ArchiveError(f"{what}: {text[:32]!r} is not a sequence")
        rows.append((int(text), value))
    return rows


def consumer_state_document(state: ConsumerState, last_seq: int) -> dict[str, Any]:
    """The other way round; the backup ends with `last_seq`, and so does what it says of it."""
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
