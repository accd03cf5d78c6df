"""What a consumer sends is not touched by those who get it."""

from __future__ import annotations

import base64

from engine_kit import Peer

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk


def payload(seq: int) -> bytes:
    return b"%08d" % seq * 375


def test_a_stream_may_store_what_its_consumer_sends() -> None:
    """A request asks for messages to a subject of the very stream, which stores them beside the
    one that is being sent; there are others who get it too.
    """
    peer = Peer(InProcessServer(disk=SimulatedDisk()))
    peer.create("S", storage="memory")
    config = {"durable_name": "C", "ack_policy": "none"}
    peer.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    peer.connection.send(b"SUB S.given 7\r\n")
    peer.publish("S.x", payload(1))
    peer.take()
    for seq in range(1, 60):
        # Each one is sent on, and stored again behind itself: the memory it is in has to grow.
        peer.connection.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C S.given 0\r\n\r\n")
        assert [frame[2] for frame in peer.take()] == [payload(1)]
        message = peer.api("STREAM.MSG.GET.S", {"seq": seq + 1})["message"]
        assert base64.b64decode(message["data"]) == payload(1)
