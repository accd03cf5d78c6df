"""API requests about single messages of a stream: get and delete.

Owns one function per request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.api.request_types import MsgDeleteRequest, MsgGetRequest
from tradewind.api.responses import MsgDeleteResponse, MsgGetResponse
from tradewind.jetstream.api_request import ApiRequest, DurableAnswer
from tradewind.stream.stream_queries import check_get

if TYPE_CHECKING:
    from tradewind.errors import StoreError

# With more than this in answers that wait for the disk, further ones are refused.
HELD_READ_BYTES_MAX: Final = 8_388_608


class HeldRead(DurableAnswer, frozen=True):
    """The answer with a message that is not durable yet; the bytes of waiting answers are
    bounded.
    """

    def when_durable(self, done: Callable[[StoreError | None], None]) -> None:
        """See `DurableAnswer`."""
        hosted, response = self.hosted, self.response
        assert hosted is not None
        assert isinstance(response, MsgGetResponse)
        assert response.message is not None
        size = len(response.message.hdrs) + len(response.message.data)

        def finished(error: StoreError | None) -> None:
            hosted.held_read_bytes -= size
            done(error)

        hosted.held_read_bytes += size
        super().when_durable(finished)


def get(request: ApiRequest) -> MsgGetResponse | DurableAnswer:
    """STREAM.MSG.GET."""
    content: MsgGetRequest = request.content
    check_get(content)
    hosted = request.hosted()
    message = hosted.stream.get(content)
    response = MsgGetResponse(message=message)
    if message.seq <= hosted.stream.visible_seq:
        return response
    if hosted.held_read_bytes > HELD_READ_BYTES_MAX:
        raise errors.INSUFFICIENT_RESOURCES()
    return HeldRead(hosted, response, errors.STREAM_STORE_FAILED)


def delete(request: ApiRequest) -> DurableAnswer:
    """STREAM.MSG.DELETE."""
    content: MsgDeleteRequest = request.content
    hosted = request.hosted()
    hosted.stream.delete_message(content.seq, erase=not content.no_erase)
    return DurableAnswer(hosted, MsgDeleteResponse(success=True), errors.STREAM_MSG_DELETE_FAILED)
