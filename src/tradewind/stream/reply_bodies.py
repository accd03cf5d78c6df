"""The bodies of replies to the publishers of a stream.

Owns the texts: the current ones, and those of a stream that was created with the API of a JetStream
preview. It never sends anything: `publish_replies` has the answers that wait.

    {"stream":"S","seq":8}                     stored; `ingest` adds the number and what follows it
    {"error":{...},"stream":"S","seq":0}       refused
    +OK     -ERR 'stream not found'            the same in a preview
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.base import encode
from tradewind.api.legacy_marks import LEGACY_OK
from tradewind.api.stream_types import ErrorDetail

if TYPE_CHECKING:
    from tradewind.api.errors import ApiError


def or_stored(reason: object) -> str:
    """The reason for a missing acknowledgement, worded so that the message may still be stored."""
    return f"{reason}; what was published and not acknowledged may be stored"


class ReplyBodies:
    """The reply bodies of one stream. `stored` is the beginning of every acknowledgement."""

    def __init__(self, name: str, domain: str, *, is_legacy: bool) -> None:
        self._name = encode(name)
        self._is_legacy = is_legacy
        members = b',"domain":' + encode(domain) if domain else b""
        acknowledgement = b'{"stream":' + self._name + members + b',"seq":'
        self.stored = LEGACY_OK if is_legacy else acknowledgement

    def refused(self, error: ApiError) -> bytes:
        """The reply to a message that is refused."""
        if self._is_legacy:
            return b"-ERR '%s'" % error.description.encode()
        detail = ErrorDetail(
            code=error.code, err_code=error.err_code, description=error.description
        )
        return b'{"error":%s,"stream":%s,"seq":0}' % (encode(detail), self._name)
