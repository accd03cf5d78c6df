"""Error responses of the two previews.

Owns the texts of errors and the format of responses. Where the previews had no text of their own,
the current one is used; the first preview said "observable" instead of "consumer".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api import errors
from tradewind.api.legacy_marks import LEGACY_OK, LEGACY_SETS, LEGACY_STREAMS

if TYPE_CHECKING:
    from tradewind.api.errors import ApiError

_ESCAPES: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
_SEQUENCE: Final = re.compile(r"sequence (\d+) not found")


class LegacyRefusal(Exception):  # noqa: N818 - it is an answer
    """A request that is answered with `-ERR` and this text."""


class Dialect(msgspec.Struct, frozen=True):
    """The dialect of one preview. `texts` are its own texts for current errors, by their code."""

    mark: str
    is_quoted: bool
    consumer: str
    stream: str
    texts: dict[int, str] = msgspec.field(default_factory=dict)

    def error(self, text: str) -> bytes:
        """The response to a request that is refused."""
        return f"-ERR '{text}'".encode() if self.is_quoted else f"-ERR {text}".encode()

    def text_of(self, error: ApiError) -> str:
        """The text of the preview for a current error."""
        own = self.texts.get(error.err_code)
        if own is not None:
            return own
        if found := _SEQUENCE.fullmatch(error.description):
            return f"sequence [{found[1]}] not found"
        text = error.description
        return text.replace("consumer", self.consumer).replace("stream", self.stream)


def _code(kind: errors.ErrorKind) -> int:
    return kind.err_code


SETS: Final = Dialect(
    LEGACY_SETS,
    is_quoted=False,
    consumer="observable",
    stream="message set",
    texts={
        _code(errors.STREAM_NOT_FOUND): "msgset not found",
        _code(errors.NOT_ENABLED_FOR_ACCOUNT): "jetstream not enabled for account",
        _code(errors.MAXIMUM_CONSUMERS_LIMIT): "maximum observables limit reached",
        _code(errors.CONSUMER_WORKQUEUE_MULTIPLE_UNFILTERED): (
            "multiple non-partioned observables not allowed on workqueue message set"
        ),
        _code(errors.CONSUMER_WORKQUEUE_NOT_UNIQUE): (
            "partitioned observable not unique on workqueue message set"
        ),
        _code(errors.CONSUMER_WORKQUEUE_NOT_DELIVER_ALL): (
            "observable must be deliver all on workqueue message set"
        ),
    },
)
STREAMS: Final = Dialect(
    LEGACY_STREAMS,
    is_quoted=True,
    consumer="consumer",
    stream="stream",
    texts={_code(errors.NOT_ENABLED_FOR_ACCOUNT): "jetstream not enabled for account"},
)
OK: Final = LEGACY_OK


def document(value: Any) -> bytes:
    """A response with data: indented JSON, in the order and with the escapes of Go's structs."""
    data = msgspec.json.format(msgspec.json.encode(value), indent=2)
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return data
