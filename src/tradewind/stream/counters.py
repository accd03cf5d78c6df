"""Counters: messages that increase the number of their subject.

Owns the format of an increment, and computing the sum that is stored in its place. Numbers have as
many digits as a message can hold. It never stores anything.

    Nats-Incr: +5      on the subject hits.home, whose last message says {"val":"37"}
    -> stored as {"val":"42"}, acknowledged with "val":"42"
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api import errors
from tradewind.api.base import encode
from tradewind.errors import JSON_ERRORS
from tradewind.stream import header_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.store.contract import MessageCopy

# A message with a sum cannot also have requirements, or replace others.
_FORBIDDEN: Final = (
    header_fields.ROLLUP,
    header_fields.EXPECTED_STREAM,
    header_fields.EXPECTED_LAST_MESSAGE_ID,
    header_fields.EXPECTED_LAST_SEQUENCE,
    header_fields.EXPECTED_LAST_SUBJECT_SEQUENCE,
    header_fields.EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
)
_INTEGER: Final = re.compile(rb"[+-]?[0-9]+", re.ASCII)
_SUBJECT_FIELD: Final = 4  # of Nats-Stream-Source
# The integers of Python refuse more than 4,300 digits, and turn into text in quadratic time.
DIGITS_MAX: Final = 10_000_000
_EXACT: Final = Context(prec=DIGITS_MAX, Emin=MIN_EMIN, Emax=MAX_EMAX)


class _Sum(msgspec.Struct):
    """The payload of a counter's message."""

    val: str


class Count(msgspec.Struct, frozen=True):
    """The message that is stored instead of an increment, and the sum for its publisher."""

    header: bytes
    payload: bytes
    value: bytes


def check_increment(fields: Mapping[bytes, bytes], payload: bytes, *, is_counter: bool) -> None:
    """ApiError for an increment that is malformed, or in a stream without counters."""
    increment = fields.get(header_fields.INCREMENT)
    if not increment:
        return
    if not _INTEGER.fullmatch(increment):
        raise errors.MESSAGE_INCR_INVALID()
    if not is_counter:
        raise errors.MESSAGE_INCR_DISABLED()
    if payload:
        raise errors.MESSAGE_INCR_PAYLOAD()
    if any(fields.get(name) for name in _FORBIDDEN):
        raise errors.MESSAGE_INCR_INVALID()


def count(header: bytes, fields: Mapping[bytes, bytes], previous: MessageCopy | None) -> Count:
    """The sum of an increment and the last message of its subject; ApiError if there is no
    increment.
    """
    increment = fields.get(header_fields.INCREMENT)
    if not increment:
        raise errors.MESSAGE_INCR_MISSING()
    total = Decimal(increment.decode())
    if previous is not None:
        total = _EXACT.add(total, _value_of(previous.payload))
        if sources := _sources_of(previous):
            header = header_fields.replace_field(
                header, header_fields.COUNTER_SOURCES, encode(sources)
            )
    value = _digits(total).encode()
    return Count(header, b'{"val":"%s"}' % value, value)


def count_copy(
    header: bytes, fields: Mapping[bytes, bytes], payload: bytes, previous: MessageCopy | None
) -> Count:
    """The sum plus the growth of another stream's counter since its last copy.

    The header of the sum records the share of each counter. ApiError if this is not a counter.
    """
    if not fields.get(header_fields.INCREMENT):
        raise errors.MESSAGE_INCR_MISSING()
    stream, subject = _origin_of(fields)
    value = _value_of(payload)
    sources = _sources_of(previous) if previous is not None else {}
    counted = sources.get(stream, {})
    known = counted.get(subject, "0")
    if not _INTEGER.fullmatch(known.encode()):
        raise errors.MESSAGE_COUNTER_BROKEN()
    growth = _EXACT.subtract(value, Decimal(known))
    total = growth if previous is None else _EXACT.add(growth, _value_of(previous.payload))
    sources[stream] = dict(sorted({**counted, subject: _digits(value)}.items()))
    sources = {name: sources[name] for name in sorted(sources)}
    header = header_fields.replace_field(header, header_fields.INCREMENT, _digits(growth).encode())
    header = header_fields.replace_field(header, header_fields.COUNTER_SOURCES, encode(sources))
    text = _digits(total).encode()
    return Count(header, b'{"val":"%s"}' % text, text)


def _origin_of(fields: Mapping[bytes, bytes]) -> tuple[str, str]:
    """The stream and the subject of a copy's original."""
    origin = fields.get(header_fields.STREAM_SOURCE, b"").decode("utf-8", "replace").split(" ")
    if len(origin) <= _SUBJECT_FIELD:
        raise errors.MESSAGE_COUNTER_BROKEN()
    return origin[0], origin[_SUBJECT_FIELD]


def _digits(number: Decimal) -> str:
    return format(number, "f") if number else "0"


def _value_of(payload: bytes) -> Decimal:
    try:
        text = msgspec.json.decode(payload, type=_Sum).val.encode()
    except JSON_ERRORS:
        raise errors.MESSAGE_COUNTER_BROKEN() from None
    if not _INTEGER.fullmatch(text):
        raise errors.MESSAGE_COUNTER_BROKEN()
    return Decimal(text.decode())


def _sources_of(message: MessageCopy) -> dict[str, dict[str, str]]:
    """The shares of other streams in a sum, by stream and subject."""
    text = header_fields.special_fields(message.header).get(header_fields.COUNTER_SOURCES)
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    except JSON_ERRORS:
        raise errors.MESSAGE_COUNTER_BROKEN() from None
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}
