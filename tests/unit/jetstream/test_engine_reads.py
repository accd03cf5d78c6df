"""Reads of messages that have replaced others and are not synced yet: no gap, and no lie."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.jetstream.handlers import message_handlers
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

GET = "$JS.API.STREAM.MSG.GET.S"


def replaced() -> tuple[InProcessServer, SimulatedDisk, Peer]:
    """S.0 was stored and then replaced; only the first is synced."""
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk, manual_sync=True)
    peer = Peer(server)
    peer.connection.send(
        b"PUB $JS.API.STREAM.CREATE.S inbox.c %d\r\n%s\r\n"
        % ((body := json.dumps(CONFIG).encode()).__len__(), body)
    )
    run_disk(server)
    peer.publish("S.0", b"old")
    run_disk(server)
    peer.take()
    assert peer.publish("S.0", b"new") is None
    return server, disk, peer


CONFIG = {"name": "S", "subjects": ["S.>"], "max_msgs_per_subject": 1}


def run_disk(server: InProcessServer) -> None:
    server.syncer.run_all()
    server.run_until_idle()


def documents(peer: Peer) -> list[dict[str, Any]]:
    return [json.loads(payload) for *_, payload in peer.take()]


@pytest.mark.parametrize("query", [{"last_by_subj": "S.0"}, {"next_by_subj": "S.0"}, {"seq": 2}])
def test_a_replaced_message_is_answered_with_its_successor_once_that_is_synced(
    query: dict[str, Any],
) -> None:
    server, _, peer = replaced()
    assert peer.ask(GET, query) == []
    run_disk(server)
    _, answer = documents(peer)
    assert (answer["message"]["seq"], b64decode(answer["message"]["data"])) == (2, b"new")


def test_what_is_not_there_is_said_at_once() -> None:
    _, _, peer = replaced()
    for query in ({"last_by_subj": "S.9"}, {"seq": 1}, {"seq": 3}):
        ((_, _, answer),) = peer.ask(GET, query)
        assert json.loads(answer)["error"]["err_code"] == 10037


def test_a_read_is_refused_if_the_successor_cannot_be_stored() -> None:
    server, disk, peer = replaced()
    assert peer.ask(GET, {"seq": 2}) == []
    disk.fail("sync")
    run_disk(server)
    assert {answer["error"]["err_code"] for answer in documents(peer)} == {10077}
    ((_, _, answer),) = peer.ask(GET, {"seq": 2})
    assert json.loads(answer)["error"]["err_code"] == 10077


def test_answers_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_handlers, "HELD_READ_BYTES_MAX", 5)
    server, _, peer = replaced()
    assert peer.ask(GET, {"seq": 2}) == peer.ask(GET, {"seq": 2}) == []
    ((_, _, answer),) = peer.ask(GET, {"seq": 2})
    assert json.loads(answer)["error"]["err_code"] == 10023
    run_disk(server)
    assert len(documents(peer)) == 3
    ((_, _, answer),) = peer.ask(GET, {"seq": 2})
    assert json.loads(answer)["message"]["seq"] == 2
