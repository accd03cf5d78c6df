"""A publish with a trace that records what the stream did with it, often without storing anything.

Owns the error texts that nats-server uses in traces, which differ from those of its responses. It
is imported when the first traced message arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.errors import StoreError
from tradewind.stream import header_fields
from tradewind.stream.publish_checks import Accept, Duplicate, Publish

if TYPE_CHECKING:
    from tradewind.broker.message_trace import MessageTrace
    from tradewind.stream.stream import Stream

DESTINATION: Final = b"Nats-Trace-Dest"
DISABLED: Final = b"trace disabled"

# Errors that nats-server finds only when it stores: a message that is only traced has none.
_LATE: Final = (errors.STREAM_STORE_FAILED.err_code, errors.MESSAGE_TTL_INVALID.err_code)
# Texts of some errors in traces; others have the text of the answer, or their number as well.
_WORDS: Final = {
    errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code: "maximum payload exceeded",
    errors.MESSAGE_TTL_DISABLED.err_code: "message TTL disabled",
}
_SAME_WORDS: Final = (
    errors.STREAM_NOT_MATCH.err_code,
    errors.STREAM_ROLLUP_FAILED.err_code,
    errors.STREAM_STORE_FAILED.err_code,
)


def publish_traced(
    stream: Stream,
    trace: MessageTrace,
    subject: bytes,
    reply: bytes,
    header: bytes,
    payload: bytes,
) -> None:
    """Store a message, or only find out what would happen to it; StoreError."""
    entry = trace.stored(stream.name)
    if trace.is_told:
        header = header_fields.replace_field(header, DESTINATION, DISABLED)
    message = stream.slow_path.incoming(subject, header, payload)
    shown = message.subject.decode("utf-8", "replace")
    if message.is_fast_part(reply) or message.fields.get(header_fields.BATCH_ID):
        _publish_part(stream, trace, message, reply)
        if trace.refusal is not None:
            entry["error"] = _words(stream, message, trace.refusal)
        else:
            entry["subject"] = shown
        return
    try:
        verdict = stream.slow_path.check(message)
    except errors.ApiError as error:
        if error.err_code in _LATE:
            entry["subject"] = shown
            if trace.only:
                return
        entry["error"] = _words(stream, message, error)
        if trace.only:
            stream.slow_path.refuse(reply, error)
        else:
            stream.slow_path.turn_away(message, reply, error)
        return
    if isinstance(verdict, Duplicate):
        entry["error"] = "msgid is duplicate"
    elif isinstance(verdict, Accept):
        entry["subject"] = shown
        if verdict.skip:
            entry["nointerest"] = True
        if trace.only:
            return
    try:
        stream.slow_path.carry_out(message, verdict, reply)
    except StoreError as error:
        entry["error"] = str(error)
        raise
    if isinstance(verdict, Accept) and not verdict.skip:
        done = trace.kept(stream.name, stream.store.last_seq)
        if done is not None:
            stream.commits.when_durable(done)


def _publish_part(stream: Stream, trace: MessageTrace, message: Publish, reply: bytes) -> None:
    """Handle a message of a batch. Only the one that ends it, or a refusal, is traced."""
    if not trace.only:
        stream.slow_path.publish_part(message, reply)
    else:
        try:
            stream.checks.admit_part(message, is_fast=message.is_fast_part(reply))
        except errors.ApiError as error:
            stream.slow_path.refuse(reply, error)
    is_end = not trace.only and bool(message.fields.get(header_fields.BATCH_COMMIT))
    trace.is_untold = not is_end and trace.refusal is None


def _words(stream: Stream, message: Publish, error: errors.ApiError) -> str:
    """The text of an error in a trace."""
    fields = message.fields
    if error.is_kind(errors.STREAM_WRONG_LAST_SEQUENCE):
        expected = fields.get(header_fields.EXPECTED_LAST_SEQUENCE, b"").decode()
        if expected and expected.lstrip("0") != str(stream.store.last_seq):
            return f"last sequence mismatch: {int(expected)} vs {stream.store.last_seq}"
        expected = fields.get(header_fields.EXPECTED_LAST_SUBJECT_SEQUENCE, b"").decode()
        found = error.description.rpartition(": ")[2]
        return f"last sequence by subject mismatch: {expected} vs {found}"
    if error.is_kind(errors.STREAM_WRONG_LAST_MSG_ID):
        expected = fields.get(header_fields.EXPECTED_LAST_MESSAGE_ID, b"").decode(
            "utf-8", "replace"
        )
        found = stream.ingest.last_id.decode("utf-8", "replace")
        return f'last msgid mismatch: "{expected}" vs "{found}"'
    if error.err_code in _SAME_WORDS:
        return error.description
    return _WORDS.get(error.err_code) or f"{error.description} ({error.err_code})"
