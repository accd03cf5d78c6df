"""Single messages of a stream: get and delete.

Owns one function per request.
"""

from __future__ import annotations

from tradewind.api.request_types import MsgDeleteRequest, MsgGetRequest
from tradewind.api.responses import MsgDeleteResponse, MsgGetResponse
from tradewind.jetstream.requests import Request


def get(request: Request) -> MsgGetResponse:
    """STREAM.MSG.GET."""
    content: MsgGetRequest = request.content
    return MsgGetResponse(message=request.hosted().stream.get(content))


def delete(request: Request) -> MsgDeleteResponse:
    """STREAM.MSG.DELETE."""
    content: MsgDeleteRequest = request.content
    request.hosted().stream.delete_message(content.seq, erase=not content.no_erase)
    return MsgDeleteResponse(success=True)
