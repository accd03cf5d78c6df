"""Single messages of a stream: get and delete.

Owns one function per request.
"""

from __future__ import annotations

from tradewind.api import errors
from tradewind.api.request_types import MsgDeleteRequest, MsgGetRequest
from tradewind.api.responses import MsgDeleteResponse, MsgGetResponse
from tradewind.jetstream.requests import Durable, Request
from tradewind.stream.reading import check_get


def get(request: Request) -> MsgGetResponse:
    """STREAM.MSG.GET."""
    content: MsgGetRequest = request.content
    check_get(content)
    return MsgGetResponse(message=request.hosted().stream.get(content))


def delete(request: Request) -> Durable:
    """STREAM.MSG.DELETE."""
    content: MsgDeleteRequest = request.content
    hosted = request.hosted()
    hosted.stream.delete_message(content.seq, erase=not content.no_erase)
    return Durable(hosted, MsgDeleteResponse(success=True), errors.STREAM_MSG_DELETE_FAILED)
