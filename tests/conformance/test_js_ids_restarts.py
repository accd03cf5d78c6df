"""What a server makes up: ids, pins and subjects that its next start does not make up again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.helpers_consumer import Peer
from conformance.helpers_js import ApiClient
from harness import ServerProcess, StartServer

SECOND = 1_000_000_000


Run = Callable[[], ServerProcess]


@pytest.fixture
def run(start: StartServer, tmp_path: Path) -> Run:
    return lambda: start("", "-js", "-sd", str(tmp_path / "js"))


def pinned(peer: Peer, pin: str = "") -> object:
    """Pull with a pin id or without: the pin id of the message that comes, or the status."""
    request = {"group": "g", "batch": 1, "expires": 20 * SECOND}
    peer.pull("inbox", **request, **({"id": pin} if pin else {}))
    frame = peer.next()
    _, found, rest = frame.header.partition(b"Nats-Pin-Id: ")
    return rest.partition(b"\r\n")[0].decode() if found else frame.header


def made_up(peer: Peer) -> dict[str, str]:
    """Everything with a name that the server chose."""
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.>", "event")
    peer.raw.ping()
    lasting = {"inactive_threshold": 60 * SECOND, "ack_policy": "none"}
    created = peer.js.done("CONSUMER.CREATE.S", {"stream_name": "S", "config": lasting})
    ephemeral = created["name"]
    while (event := json.loads(peer.next().payload))["consumer"] != ephemeral:
        pass  # another one, which was announced late
    peer.unsubscribe("event")
    peer.js.done(f"CONSUMER.DELETE.S.{ephemeral}")
    stream = {"name": "R", "subjects": ["r"], "storage": "file"}
    state = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0}
    state |= {"first_ts": "0001-01-01T00:00:00Z", "last_ts": "0001-01-01T00:00:00Z"}
    restore = peer.js.done("STREAM.RESTORE.R", {"config": stream, "state": state})
    return {
        "ephemeral": ephemeral,
        "event": event["id"],
        "restore": restore["deliver_subject"],
        "pin": str(pinned(peer)),
    }


def test_nothing_made_up_is_made_up_again_after_a_restart(run: Run) -> None:
    found = []
    for number in range(2):
        server = run()
        with ApiClient(server) as js:
            peer = Peer(server, js)
            peer.subscribe("inbox")
            if number == 0:
                peer.stream("a", "b", "c", "d", storage="file")
                peer.consumer(
                    priority_policy="pinned_client",
                    priority_groups=["g"],
                    priority_timeout=3600 * SECOND,
                )
            found.append(made_up(peer))
            peer.raw.close()
        server.stop()
    assert {key for key in found[0] if found[0][key] == found[1][key]} == set()


def test_a_pin_from_before_a_restart_is_refused_once_another_is_pinned(
    run: Run,
) -> None:
    server = run()
    with ApiClient(server) as js:
        peer = Peer(server, js)
        peer.subscribe("inbox")
        peer.stream("a", "b", "c", "d", storage="file")
        peer.consumer(
            priority_policy="pinned_client",
            priority_groups=["g"],
            priority_timeout=3600 * SECOND,
        )
        before = str(pinned(peer))
        peer.raw.close()
    server.stop()
    server = run()
    with ApiClient(server) as js:
        peer = Peer(server, js)
        peer.subscribe("inbox")
        now = str(pinned(peer))
        assert len(now) == len(before) == 22
        assert pinned(peer, before) == b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"
        assert pinned(peer, now) == now
        peer.raw.close()
