"""Errors of the JetStream API as exceptions: one class per error code, with a hint.

Owns the classes, which are made from the tables in `tradewind.api.errors` and `own_errors` when
they are first used (STREAM_NOT_FOUND becomes StreamNotFoundError), and the hints for common errors.
`api_errors.pyi` lists them for type checkers and is written by `tools/api_errors_stub.py`.
"""

from __future__ import annotations

import functools
from typing import Any

from tradewind.api import errors as table
from tradewind.api import own_errors
from tradewind.api.errors import ApiError, ErrorKind
from tradewind.client.errors import ClientError

# What to do, by the name in the table.
_HINTS = {
    "MESSAGE_TTL_DISABLED": "set allow_msg_ttl in the stream's configuration, "
    "or allow_ttl in that of a bucket",
    "ACCOUNT_RESOURCES_EXCEEDED": "remove messages or raise the limits of the account",
    "BAD_REQUEST": "the server does not understand the request; it may be older than this client",
    "CONSUMER_NAME_EXISTS": "choose another name, or update the consumer",
    "ATOMIC_PUBLISH_DISABLED": "set allow_atomic in the stream's configuration",
    "CONSUMER_ALREADY_EXISTS": "it has other settings: use consumers.update to change it",
    "CONSUMER_NOT_FOUND": "create it with consumers.add, or check its name",
    "CONSUMER_DOES_NOT_EXIST": "create it with consumers.add first",
    "INSUFFICIENT_RESOURCES": "the server has no room left: see max_file_store, max_memory_store",
    "INVALID_JSON": "the server does not know a setting of this request; it may be older",
    "MAXIMUM_CONSUMERS_LIMIT": "delete consumers, or raise max_consumers",
    "MAXIMUM_STREAMS_LIMIT": "delete streams, or raise the limit of the account",
    "NO_MESSAGE_FOUND": "it never existed, or the limits of the stream removed it",
    "NOT_ENABLED": "start the server with JetStream (-js)",
    "NOT_ENABLED_FOR_ACCOUNT": "give the account JetStream in the server's configuration",
    "SEQUENCE_NOT_FOUND": "it never existed, or the limits of the stream removed it",
    "STREAM_WRONG_LAST_MSG_ID": "another client wrote in the meantime: read again, then decide",
    "STREAM_WRONG_LAST_SEQUENCE": "another client wrote in the meantime: read again, then decide",
    "STREAM_WRONG_LAST_SEQUENCE_CONSTANT": "another client wrote in the meantime: read again, then "
    "decide",
    "STREAM_MESSAGE_EXCEEDS_MAXIMUM": "send less at once, or raise max_msg_size of the stream",
    "STREAM_NAME_EXISTS": "a stream of this name has other settings: use streams.update",
    "STREAM_NOT_FOUND": "create it with streams.add, or check its name, account and domain",
    "STREAM_NOT_MATCH": "another stream stores this subject: check expect_stream",
    "STREAM_PURGE_FAILED": "see the server log",
    "STREAM_SEALED": "nothing can be changed in a sealed stream",
    "STREAM_STORE_FAILED": "the stream is full (discard new), or its disk failed",
    "STREAM_SUBJECT_OVERLAP": "a subject belongs to one stream only: see streams.find",
    "STREAM_TOO_MANY_REQUESTS": "publish more slowly: wait for acknowledgements",
    "TRANSACTION_BUSY": "commit fewer transactions at once",
    "TRANSACTION_FAILED": "see the server log: its disk fails",
    "TRANSACTION_NOT_AWAITED": "it is acknowledged already, or was never delivered",
    "TRANSACTION_NO_STREAM": "create a stream with this subject, or check the subject",
    "TRANSACTION_REDELIVERED": "another client has it now: continue with the next message",
}


class JetStreamApiError(ApiError, ClientError):
    """The server refused a request: `code`, `err_code` and `description` are its own.

    `hint` says what to do about it, if that is known. Each error code has a subclass.
    """

    hint = ""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(code, err_code, description)
        if self.hint:
            self.args = (f"{description} ({err_code}): {self.hint}",)


def class_name(kind_name: str) -> str:
    """STREAM_NOT_FOUND gives StreamNotFoundError."""
    return "".join(word.capitalize() for word in kind_name.split("_")) + "Error"


def kinds() -> dict[str, ErrorKind]:
    """The rows of the table by their names."""
    every = {**vars(table), **vars(own_errors)}
    return {name: kind for name, kind in every.items() if isinstance(kind, ErrorKind)}


@functools.cache
def _kinds_by_class() -> dict[str, str]:
    """The names of the rows of the table by those of their classes."""
    return {class_name(name): name for name in kinds()}


@functools.cache
def _kinds_by_code() -> dict[int, str]:
    """The names of the rows of the table by their error codes."""
    return {kind.err_code: name for name, kind in kinds().items()}


def _class_of(name: str) -> type[JetStreamApiError]:
    """The class for a row of the table, made when it is first wanted: programs see few of them."""
    made: type[JetStreamApiError] | None = globals().get(class_name(name))
    if made is None:
        kind = kinds()[name]
        members = {
            "__doc__": f"{kind.text} (code {kind.code}, error code {kind.err_code})",
            "__module__": __name__,
            "hint": _HINTS.get(name, ""),
        }
        # Of two threads that make it at once, both get the first one.
        fresh = type(class_name(name), (JetStreamApiError,), members)
        made = globals().setdefault(class_name(name), fresh)
    return made


def make_api_error(code: int, err_code: int, description: str) -> JetStreamApiError:
    """The error of a response; one that this version does not know is a plain JetStreamApiError."""
    name = _kinds_by_code().get(err_code)
    kind = JetStreamApiError if name is None else _class_of(name)
    return kind(code, err_code, description)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [each for each in __dir__() if each.endswith("Error")]
    kind = _kinds_by_class().get(name) if name.endswith("Error") else None
    if kind is None:
        raise AttributeError(f"the JetStream API has no error {name!r}")
    return _class_of(kind)


def __dir__() -> list[str]:
    return sorted({*globals(), *_kinds_by_class()})
