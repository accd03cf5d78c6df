"""The keys that go together in one source, step or sink.

Owns the keys of each kind of table, and the checks of the numbers and durations that are handed on
to the source and sink of `tradewind.spark`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tradewind.api.names import is_valid_name
from tradewind.pipelines.definition.document import Key, PipelineDocument
from tradewind.pipelines.definition.model import SHARED_SUFFIX, Head, Sink, Source
from tradewind.pipelines.notation.intervals import parse_interval_ms
from tradewind.spark.connections.logins import LOGIN_FIELDS

SERVER_KEYS: Final = {"server", "context", *LOGIN_FIELDS}
_READ_KEYS: Final = {"batch_bytes", "batch_min", "batch_wait", "read_mode", "timeout", "share"}
SOURCE_KEYS: Final = {
    "stream": {"subjects", "start", "start_seq", "payload", "data_loss", "store", "ack_consumer"}
    | _READ_KEYS
    | SERVER_KEYS,
    "bucket": {"payload", "store"} | _READ_KEYS | SERVER_KEYS,
    "parquet": {"schema"},
    "json": {"schema"},
    "csv": {"schema"},
}
_WRITE_KEYS: Final = {"create", "fail_on_unknown", "timeout"}
SINK_KEYS: Final = {
    "stream": {"subject", "data", "headers", "ordered", "id"} | _WRITE_KEYS | SERVER_KEYS,
    "bucket": {"key", "value"} | _WRITE_KEYS | SERVER_KEYS,
    "parquet": {"partition_by"},
    "delta": {"partition_by", "key", "delete_when", "order_by"},
    "iceberg": {"partition_by", "key", "delete_when", "order_by"},
    "console": set(),
}
STEP_KEYS: Final = {
    "sql": set(),
    "python": {"from"},
    "window": {"from", "slide", "on", "by", "keep"},
}
TIMEOUT_SECONDS_MAX: Final = 3600
RESTARTS_MAX: Final = 1_000_000
_FOLLOWED: Final = ("batch_bytes", "batch_min", "batch_wait", "ack_consumer", "share")


def check_reading(document: PipelineDocument, place: tuple[str, str], source: Source) -> None:
    """How a source is read: batches, the mode, and what needs a source that is followed."""

    def fail(key: str, text: str) -> Exception:
        return document.error((*place, key), text)

    for key in ("start_seq", "batch", "batch_bytes", "batch_min"):
        if getattr(source, key) < 0:
            raise fail(key, f"{key} must not be negative")
    for key in _FOLLOWED:
        if getattr(source, key) and not source.is_followed:
            raise fail(key, f"{key!r} is only for a source that is followed")
    if source.batch and source.batch_min > source.batch:
        raise fail("batch_min", f"{source.batch_min} is more than batch allows, {source.batch}")
    if source.batch_wait:
        check_interval(document, (*place, "batch_wait"), source.batch_wait)
        if not source.batch_min:
            raise fail("batch_wait", "it needs batch_min: the messages that are waited for")
    if source.ack_consumer and not is_valid_name(source.ack_consumer):
        raise fail("ack_consumer", f"{source.ack_consumer!r} is not a name of a consumer")
    mode = source.read_mode
    if mode == "blocks" and not source.store:
        raise fail("read_mode", "blocks needs 'store': the store folder of the server")
    if mode in ("network", "backup") and source.store:
        raise fail("read_mode", f"{mode} reads from the server: leave 'store' out")
    if mode == "backup" and (source.is_followed or source.bucket):
        text = "a backup has an end: it is for a stream with `follow: false`"
        raise fail("read_mode", text)
    check_timeout(document, place, source.timeout)


def check_writing(document: PipelineDocument, place: tuple[str, str], sink: Sink) -> None:
    """How a stream or bucket is written."""
    check_timeout(document, place, sink.timeout)
    if sink.id and sink.mode != "append":
        raise document.error(
            (*place, "id"), "rows that change have no id of their own: mode append"
        )


def check_timeout(document: PipelineDocument, place: tuple[str, str], text: str) -> None:
    """A timeout is whole seconds, an hour at most."""
    if not text:
        return
    keys = (*place, "timeout")
    check_interval(document, keys, text)
    seconds, rest = divmod(parse_interval_ms(text), 1000)
    if rest or not 1 <= seconds <= TIMEOUT_SECONDS_MAX:
        raise document.error(keys, f"{text!r} must be whole seconds, from 1 second to 1 hour")


def check_restart(document: PipelineDocument, head: Head) -> None:
    """The policy for queries that fail."""
    policy = head.restart
    if policy is None:
        return
    if not 1 <= policy.attempts <= RESTARTS_MAX:
        keys = ("restart", "attempts")
        raise document.error(keys, f"attempts must be from 1 to {RESTARTS_MAX}")
    for key in ("delay", "max_delay"):
        check_interval(document, ("restart", key), getattr(policy, key))
    if parse_interval_ms(policy.max_delay) < parse_interval_ms(policy.delay):
        text = f"{policy.max_delay!r} is shorter than the delay, {policy.delay!r}"
        raise document.error(("restart", "max_delay"), text)


def check_names(
    document: PipelineDocument, sources: dict[str, Source], sinks: dict[str, Sink]
) -> None:
    """No sink has the name of a query that several sinks share."""
    for name, source in sources.items():
        shared = f"{name}{SHARED_SUFFIX}"
        if source.share and shared in sinks:
            text = f"{shared!r} is the name of the shared query of {name}; choose another one"
            raise document.error(("sinks", shared), text)


def check_interval(document: PipelineDocument, keys: Sequence[Key], text: str) -> None:
    """A duration such as 2 seconds."""
    try:
        parse_interval_ms(text)
    except ValueError as error:
        raise document.error(keys, str(error)) from None
