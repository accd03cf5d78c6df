"""Requests that nobody answers, and too many of them."""

from __future__ import annotations

import json

import pytest
from engine_kit import Peer

from tradewind.api.endpoints import ENDPOINTS
from tradewind.jetstream import dispatch
from tradewind.jetstream.handlers import load_handler
from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.testing import InProcessServer, User, UserGate
from tradewind.testing.fake_disk import SimulatedDisk

UNKNOWN = ["x", "x.y", "STREAM", "CONSUMER", "CONSUMER.x", "CONSUMER.MSG.x", "DIRECT.x", "INFO.x"]


def test_every_handler_that_the_table_names_is_there() -> None:
    for endpoint in ENDPOINTS:
        for row in (endpoint, *endpoint.legacy):
            assert not row.handler or callable(load_handler(row.handler))


def test_unknown_request_is_heard_and_not_answered() -> None:
    peer = Peer(InProcessServer(disk=SimulatedDisk()))
    for name in UNKNOWN:
        assert peer.ask(f"$JS.API.{name}") == [], name


@pytest.mark.parametrize("name", ["CONSUMER.MSG.NEXT.S.none", "DIRECT.GET.S", "DIRECT.GET.none"])
@pytest.mark.parametrize("prefix", ["$JS.API", "$JS.hub.API"])
def test_request_to_something_that_is_not_there_finds_nobody(prefix: str, name: str) -> None:
    options = ServerOptions(jetstream=JetStreamOptions(enabled=True, domain="hub"))
    peer = Peer(InProcessServer(options, disk=SimulatedDisk()))
    peer.create("S")
    ((_, header, payload),) = peer.ask(f"{prefix}.{name}", {"seq": 1})
    assert header.startswith(b"NATS/1.0 503")
    assert payload == b""


def test_direct_get_with_the_domain_is_answered_once() -> None:
    options = ServerOptions(jetstream=JetStreamOptions(enabled=True, domain="hub"))
    peer = Peer(InProcessServer(options, disk=SimulatedDisk()))
    peer.create("S", allow_direct=True)
    peer.publish("S.a", b"stored")
    answers = peer.ask("$JS.hub.API.DIRECT.GET.S", {"seq": 1})
    assert [payload for *_, payload in answers] == [b"stored"]


def test_too_many_waiting_requests_are_dropped_and_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "REQUESTS_WAITING_MAX", 5)
    gate = UserGate([User("sys", "sys", "$SYS"), User("u", "u")])
    server = InProcessServer(disk=SimulatedDisk(), gate=gate, accounts=["$SYS"])
    watcher, peer = Peer(server, "sys", "sys"), Peer(server, "u", "u")
    watcher.connection.send(b"SUB $JS.EVENT.ADVISORY.API.LIMIT_REACHED 2\r\n")
    server.workers.is_held = True
    peer.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["S"]})
    for _ in range(5):
        assert peer.ask("$JS.API.STREAM.NAMES") == []
    assert watcher.take() == []
    assert peer.ask("$JS.API.STREAM.NAMES") == []
    ((_, _, payload),) = watcher.take()
    event = json.loads(payload)
    assert event["type"] == "io.nats.jetstream.advisory.v1.api_limit_reached"
    assert list(event) == ["type", "id", "timestamp", "server", "dropped"]
    assert (event["server"], event["dropped"]) == ("in-process", 5)
    server.workers.run_all()
    server.run_until_idle()
    kinds = [json.loads(payload)["type"].rpartition(".")[2] for *_, payload in peer.take()]
    assert kinds == ["stream_create_response", "stream_names_response"]
