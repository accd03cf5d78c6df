"""Advisories and metrics: the members of each kind, in their order, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from helpers_ops import running

from conformance.helpers_consumer import MS, SECOND, Peer
from conformance.helpers_js import ApiClient
from harness import RawClient, ServerProcess

HEAD = ["type", "id", "timestamp"]
CLIENT = ["start", "host", "id", "acc", "user", "name", "lang", "ver", "rtt", "server", "kind"]
CLIENT += ["client_type"]
MESSAGE = ["stream", "consumer", "consumer_seq", "stream_seq", "deliveries"]
# kind -> members behind the first three
MEMBERS = {
    "stream_action": ["stream", "action", "domain"],
    "consumer_action": ["stream", "consumer", "action", "domain"],
    "consumer_pause": ["stream", "consumer", "paused", "pause_until", "domain"],
    "consumer_group_pinned": ["account", "stream", "consumer", "domain", "group", "pinned_id"],
    "consumer_group_unpinned": ["account", "stream", "consumer", "domain", "group", "reason"],
    "max_deliver": ["stream", "consumer", "stream_seq", "deliveries", "domain"],
    "nak": [*MESSAGE, "domain"],
    "terminated": [*MESSAGE, "domain"],
    "terminated with a reason": [*MESSAGE, "reason", "domain"],
    "consumer_ack": [*MESSAGE[:4], "ack_time", "deliveries", "domain"],
    "snapshot_create": ["stream", "state", "client", "domain"],
    "snapshot_complete": ["stream", "start", "end", "client", "domain"],
    "restore_create": ["stream", "client", "domain"],
    "restore_complete": ["stream", "start", "end", "bytes", "client", "domain"],
    "api_audit": ["server", "client", "subject", "response", "domain"],
    "api_audit with a request": ["server", "client", "subject", "request", "response", "domain"],
}
ZERO_TIME = "0001-01-01T00:00:00Z"


@pytest.fixture(scope="module", params=["", "hub"], ids=["no domain", "domain"])
def domain(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(
    shared_kind: str, domain: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = f"""
    accounts {{
      A {{ jetstream: enabled, users: [ {{user: anna, password: p}} ] }}
      $SYS {{ users: [ {{user: admin, password: p}} ] }}
    }}
    jetstream {{ store_dir: "STORE"{", domain: hub" if domain else ""} }}
    """
    folder: Path = tmp_path_factory.mktemp("events")
    with running(shared_kind, folder, config) as process:
        yield process


def _kind(event: dict[str, Any]) -> str:
    kind: str = event["type"].rpartition(".")[2]
    return kind


class Watcher:
    """Hears all events of the account, and shows those that have come."""

    def __init__(self, server: ServerProcess, domain: str) -> None:
        self.domain = domain
        self.raw = RawClient(server.port).connect(user="anna", **{"pass": "p"})
        self.raw.send("SUB $JS.EVENT.> 1\r\n")
        self.raw.ping()

    def next(self, kind: str) -> dict[str, Any]:
        """The next event, which must be of this kind; audits of the API are passed over."""
        event = self._read(kind)
        assert _kind(event) == kind.partition(" ")[0], event
        return self._checked(kind, event)

    def next_audit(self, kind: str, subject: str) -> dict[str, Any]:
        """The next audit of this request; those of an earlier test may come late."""
        while (event := self._read(kind))["type"].endswith("api_audit"):
            if event["subject"] == f"$JS.API.{subject}":
                return self._checked(kind, event)
        raise AssertionError(event)

    def next_two(self, one: str, other: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The next two events, of these kinds in whichever order: the official server races."""
        found = {_kind(event): event for event in (self._read(), self._read())}
        assert set(found) == {one, other}
        return self._checked(one, found[one]), self._checked(other, found[other])

    def _read(self, kind: str = "") -> dict[str, Any]:
        while True:
            event: dict[str, Any] = json.loads(self.raw.read_message()[2])
            if _kind(event) != "api_audit" or kind.startswith("api_audit"):
                return event

    def _checked(self, kind: str, event: dict[str, Any]) -> dict[str, Any]:
        expected = [name for name in MEMBERS[kind] if name != "domain" or self.domain]
        assert list(event) == HEAD + expected
        assert event.get("domain", "") == self.domain
        if "client" in event:
            assert list(event["client"]) == CLIENT
        return event

    def nothing_else(self) -> bool:
        """Whether nothing came before the answer to a ping, except audits of the API."""
        self.raw.send("PING\r\n")
        while (line := self.raw.read_line()) != b"PONG":
            if line == b"PING":
                self.raw.send("PONG\r\n")
                continue
            if not line.startswith(b"MSG $JS.EVENT.ADVISORY.API "):
                return False
            self.raw.read_exact(int(line.split()[-1]) + 2)
        return True


@pytest.fixture
def watcher(server: ServerProcess, domain: str) -> Iterator[Watcher]:
    watcher = Watcher(server, domain)
    yield watcher
    watcher.raw.close()


@pytest.fixture
def peer(server: ServerProcess) -> Iterator[Peer]:
    login = {"user": "anna", "pass": "p", "name": "n", "lang": "py", "version": "1"}
    with ApiClient(server, **login) as js:
        peer = Peer.__new__(Peer)
        peer.js, peer.raw = js, RawClient(server.port).connect(no_responders=True, **login)
        peer.subscribe("inbox")
        yield peer
        peer.raw.close()
        delete_streams(js)


def delete_streams(js: ApiClient) -> None:
    """Remove all streams, and wait for the events that tell of it: the next test has none.

    Consumers first: what the official server still has to send for a stream when
    that ends is lost, and so may be the last event.
    """
    with RawClient(js.server.port).connect(user="anna", **{"pass": "p"}) as listener:
        listener.send("SUB $JS.EVENT.ADVISORY.CONSUMER.DELETED.> 1\r\n")
        listener.send("SUB $JS.EVENT.ADVISORY.STREAM.DELETED.* 2\r\n")
        listener.ping()
        streams = js.request("STREAM.NAMES")["streams"] or []
        for stream in streams:
            for consumer in js.request(f"CONSUMER.NAMES.{stream}")["consumers"] or []:
                js.done(f"CONSUMER.DELETE.{stream}.{consumer}")
                listener.read_message()
        js.delete_streams()
        for _ in streams:
            listener.read_message()


def test_streams_and_consumers_come_change_and_go(peer: Peer, watcher: Watcher) -> None:
    peer.stream()
    assert watcher.next("stream_action")["action"] == "create"
    fields = {"name": "S", "subjects": ["s.>"], "storage": "memory", "max_msgs": 5}
    peer.js.done("STREAM.UPDATE.S", fields)
    assert watcher.next("stream_action")["action"] == "modify"
    peer.consumer()
    assert watcher.next("consumer_action")["action"] == "create"
    peer.consumer(description="changed")
    assert watcher.nothing_else()
    peer.js.done("CONSUMER.DELETE.S.C")
    assert watcher.next("consumer_action")["action"] == "delete"
    peer.js.done("STREAM.DELETE.S")
    assert watcher.next("stream_action")["action"] == "delete"


def test_acknowledgements(peer: Peer, watcher: Watcher) -> None:
    peer.stream("a", "b", "c", "d", "e")
    watcher.next("stream_action")
    peer.consumer(sample_freq="100%")
    watcher.next("consumer_action")
    frames = peer.fetch(5)
    peer.ack(frames[0])
    assert watcher.next("consumer_ack")["stream_seq"] == 1
    # What is terminated was not acknowledged: it is not measured.
    peer.ack(frames[1], b"+TERM")
    assert watcher.next("terminated")["stream_seq"] == 2
    peer.ack(frames[2], b"+TERM it is <bad>")
    assert watcher.next("terminated with a reason")["reason"] == "it is <bad>"
    peer.ack(frames[3], b"-NAK")
    assert watcher.next("nak")["stream_seq"] == 4
    peer.ack(frames[4], b"+WPI")
    peer.js.done("STREAM.MSG.DELETE.S", {"seq": 5})
    event = watcher.next("terminated with a reason")
    assert event["reason"] == "Unacknowledged message was deleted"
    peer.publish(frames[3].reply, b"+NXT", "inbox")
    assert watcher.next("consumer_ack")["stream_seq"] == 4
    assert watcher.nothing_else()


def test_a_message_that_was_sent_often_enough(peer: Peer, watcher: Watcher) -> None:
    peer.stream("a")
    watcher.next("stream_action")
    peer.consumer(max_deliver=1, ack_wait=50 * MS)
    watcher.next("consumer_action")
    peer.fetch(1)
    assert watcher.next("max_deliver")["deliveries"] == 1


def test_pauses(peer: Peer, watcher: Watcher) -> None:
    peer.stream()
    watcher.next("stream_action")
    peer.consumer()
    watcher.next("consumer_action")
    peer.js.done("CONSUMER.PAUSE.S.C", {"pause_until": _later(3600)})
    event = watcher.next("consumer_pause")
    assert (event["paused"], event["pause_until"][:4] > "2000") == (True, True)
    # Whoever changes it, or asks for it as it is, is told of the pause again.
    peer.consumer(description="changed")
    again = watcher.next("consumer_pause")
    assert (again["paused"], again["pause_until"]) == (True, event["pause_until"])
    peer.consumer(description="changed")
    assert watcher.next("consumer_pause")["paused"] is True
    peer.js.done("CONSUMER.PAUSE.S.C", {})
    event = watcher.next("consumer_pause")
    assert (event["paused"], event["pause_until"]) == (False, ZERO_TIME)
    peer.consumer()
    assert watcher.nothing_else()
    while not peer.js.done("CONSUMER.PAUSE.S.C", {"pause_until": (until := _later(0.3))})["paused"]:
        pass  # it was over when it came
    event = watcher.next("consumer_pause")
    while not event["paused"] or event["pause_until"].rstrip("Z0") != until.rstrip("Z0"):
        event = watcher.next("consumer_pause")
    assert watcher.next("consumer_pause")["paused"] is False


def test_a_consumer_that_is_paused_from_the_start(peer: Peer, watcher: Watcher) -> None:
    peer.stream()
    watcher.next("stream_action")
    peer.consumer(pause_until=_later(3600))
    watcher.next("consumer_action")
    assert watcher.next("consumer_pause")["paused"] is True
    peer.consumer("P", pause_until=_later(-3600))
    watcher.next("consumer_action")
    assert watcher.nothing_else()


def test_pins(peer: Peer, watcher: Watcher) -> None:
    peer.stream("a")
    watcher.next("stream_action")
    for reason, timeout in (("admin", 60 * SECOND), ("timeout", SECOND)):
        pinned = {"priority_policy": "pinned_client", "priority_timeout": timeout}
        peer.consumer(reason, priority_groups=["g"], **pinned)
        watcher.next("consumer_action")
        peer.pull("inbox", reason, group="g", batch=1)
        event = watcher.next("consumer_group_pinned")
        assert (event["account"], event["group"], len(event["pinned_id"])) == ("A", "g", 22)
        if reason == "admin":
            peer.js.done("CONSUMER.UNPIN.S.admin", {"group": "g"})
        assert watcher.next("consumer_group_unpinned")["reason"] == reason


def test_backups(peer: Peer, watcher: Watcher) -> None:
    peer.stream("a", storage="file")
    watcher.next("stream_action")
    answer = peer.js.done("STREAM.SNAPSHOT.S", {"deliver_subject": "inbox"})
    chunks = []
    while (frame := peer.next()).payload:
        chunks.append(frame.payload)
        if frame.reply:
            peer.publish(frame.reply)
    event = watcher.next("snapshot_create")
    assert event["state"]["messages"] == 1
    watcher.next("snapshot_complete")
    config = {**answer["config"], "name": "R", "subjects": ["r"]}
    request = {"config": config, "state": answer["state"]}
    target = peer.js.done("STREAM.RESTORE.R", request)["deliver_subject"]
    watcher.next("restore_create")
    for chunk in [*chunks, b""]:
        peer.publish(target, chunk, "inbox")
        peer.next()
    created, restored = watcher.next_two("stream_action", "restore_complete")
    assert created["action"] == "create"
    assert restored["bytes"] == sum(map(len, chunks))


def test_audits(peer: Peer, watcher: Watcher) -> None:
    peer.js.request("STREAM.INFO.NONE", b"{")
    event = watcher.next_audit("api_audit with a request", "STREAM.INFO.NONE")
    assert event["request"] == "{"
    peer.js.request("STREAM.NAMES")
    assert watcher.next_audit("api_audit", "STREAM.NAMES")["client"]["user"] == "anna"


def _later(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
