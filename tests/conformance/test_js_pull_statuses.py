"""What is said to pull requests that get less than they want, and in which order.

Requests without JSON are here too: they say nothing of priority groups, and are served all the
same.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from conformance.helpers_consumer import MS, SECOND, Peer
from conformance.helpers_js import ApiClient
from harness import ServerProcess

LONG = 20 * SECOND
NO_MORE = "404 No Messages"
TIMEOUT = "408 Request Timeout"
BEAT = "100 Idle Heartbeat"


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    peer = Peer(js_server, js)
    yield peer
    peer.raw.close()


class Inboxes:
    """One for each pull request of a consumer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._numbers = itertools.count(1)

    def ask(self, body: bytes | None = None, **request: object) -> str:
        """A request behind those that were sent before; gives the sid that its answers have."""
        number = next(self._numbers)
        self.peer.subscribe(f"inbox{number}", str(number))
        self.peer.pull(f"inbox{number}", body=body, **request)
        return str(number)

    def next(self) -> tuple[str, str]:
        """(sid, subject of a message or text of a status)"""
        frame = self.peer.next()
        if frame.status:
            return frame.sid, frame.header.decode().split("\r\n")[0].removeprefix("NATS/1.0 ")
        return frame.sid, frame.subject

    def take(self, count: int) -> list[tuple[str, str]]:
        """So many; of heartbeats that follow each other one counts."""
        taken: list[tuple[str, str]] = []
        while len(taken) < count:
            answer = self.next()
            if not taken or answer != taken[-1] or answer[1] != BEAT:
                taken.append(answer)
        return taken


@pytest.fixture
def inboxes(peer: Peer) -> Inboxes:
    """Messages s.a to s.e, of which a consumer of two pending messages has sent one or two."""
    peer.stream("a", "b", "c", "d", "e")
    peer.consumer(max_ack_pending=2)
    return Inboxes(peer)


# pull requests one after the other, when two of two messages are not acknowledged, and all that
# is said to them: (request, answer)
BLOCKED: list[tuple[list[dict[str, object]], list[tuple[int, str]]]] = [
    ([{"no_wait": True}], []),
    ([{}], []),
    ([{"no_wait": True, "expires": 200 * MS}], [(1, TIMEOUT)]),
    ([{"expires": 200 * MS}], [(1, TIMEOUT)]),
    ([{"expires": 200 * MS, "max_bytes": 100}], [(1, TIMEOUT)]),
    ([{"expires": 2 * SECOND, "idle_heartbeat": 200 * MS}], [(1, BEAT), (1, TIMEOUT)]),
    (
        [{"no_wait": True, "expires": 2 * SECOND, "idle_heartbeat": 200 * MS}],
        [(1, BEAT), (1, TIMEOUT)],
    ),
    # Whoever does not wait is ended when another one expires, or is sent a heartbeat.
    ([{"expires": SECOND}, {"no_wait": True}], [(1, TIMEOUT), (2, NO_MORE)]),
    ([{"no_wait": True}, {"expires": 200 * MS}], [(1, NO_MORE), (2, TIMEOUT)]),
    (
        [{"no_wait": True}, {"expires": LONG, "idle_heartbeat": 200 * MS}],
        [(1, NO_MORE), (2, BEAT)],
    ),
    # But who would wait for a first message still does.
    ([{"no_wait": True, "expires": LONG}, {"expires": 200 * MS}], [(2, TIMEOUT)]),
]


@pytest.mark.parametrize(("requests", "answers"), BLOCKED)
def test_requests_that_wait_for_acknowledgements(
    inboxes: Inboxes, requests: list[dict[str, object]], answers: list[tuple[int, str]]
) -> None:
    peer = inboxes.peer
    peer.subscribe("first", "first")
    peer.pull("first", batch=2)
    peer.take(2)
    for request in requests:
        inboxes.ask(batch=3, **request)
    assert inboxes.take(len(answers)) == [(str(number), text) for number, text in answers]
    if BEAT not in dict(answers).values():
        assert peer.nothing_came()


@pytest.mark.parametrize(
    ("request_", "answers"),
    [
        ({"no_wait": True}, ["s.b"]),
        ({"expires": SECOND}, ["s.b", TIMEOUT]),
        ({"no_wait": True, "expires": SECOND}, ["s.b", TIMEOUT]),
        ({"no_wait": True, "expires": LONG, "idle_heartbeat": 100 * MS}, ["s.b", NO_MORE]),
        ({"expires": 2 * SECOND, "idle_heartbeat": 200 * MS}, ["s.b", BEAT, TIMEOUT]),
    ],
)
def test_requests_that_get_a_message_before_acknowledgements_are_missing(
    inboxes: Inboxes, request_: dict[str, object], answers: list[str]
) -> None:
    peer = inboxes.peer
    peer.subscribe("first", "first")
    peer.pull("first", batch=1)
    peer.next()
    inboxes.ask(batch=3, **request_)
    assert inboxes.take(len(answers)) == [("1", answer) for answer in answers]
    assert peer.nothing_came()


GROUPS = {
    "overflow": {},
    "pinned_client": {"priority_timeout": 60 * SECOND},
    "prioritized": {},
}


def grouped(peer: Peer, policy: str, *subjects: str) -> Inboxes:
    peer.stream(*subjects)
    peer.consumer(priority_policy=policy, priority_groups=["g"], **GROUPS[policy])
    return Inboxes(peer)


@pytest.mark.parametrize("policy", GROUPS)
@pytest.mark.parametrize(
    ("body", "count"), [(b"", 1), (b" ", 1), (b"1", 1), (b"2", 2), (b"some", 1), (b"0", 1)]
)
def test_a_request_without_json_belongs_to_no_group(
    peer: Peer, policy: str, body: bytes, count: int
) -> None:
    inboxes = grouped(peer, policy, "a", "b", "c")
    inboxes.ask(body)
    frames = peer.take(count)
    assert [frame.subject for frame in frames] == ["s.a", "s.b"][:count]
    header = b"NATS/1.0\r\nNats-Pin-Id: \r\n\r\n" if policy == "pinned_client" else b""
    assert {frame.header for frame in frames} == {header}
    assert peer.nothing_came()


@pytest.mark.parametrize("policy", GROUPS)
@pytest.mark.parametrize("body", [b"{}", b'{"batch":1}', b' {"batch":1}'])
def test_a_request_with_json_has_to_name_its_group(peer: Peer, policy: str, body: bytes) -> None:
    inboxes = grouped(peer, policy, "a")
    inboxes.ask(body)
    assert inboxes.next() == ("1", "400 Bad Request - Priority Group missing")


def test_who_names_no_group_has_the_lowest_priority(peer: Peer) -> None:
    inboxes = grouped(peer, "prioritized")
    inboxes.ask(b"2")
    inboxes.ask(group="g", batch=1, priority=9)
    inboxes.ask(group="g", batch=2, priority=0)
    peer.wait_info(lambda info: info["num_waiting"] == 3)
    peer.store("a", "b", "c", "d", "e")
    assert [inboxes.next()[0] for _ in range(5)] == ["3", "3", "2", "1", "1"]


def test_who_names_no_group_is_never_pinned_and_waits_while_another_is(peer: Peer) -> None:
    inboxes = grouped(peer, "pinned_client")
    inboxes.ask(b"2")
    inboxes.ask(group="g", batch=2)
    peer.wait_info(lambda info: info["num_waiting"] == 2)
    peer.store("a", "b", "c", "d")
    frames = peer.take(3)
    assert [frame.sid for frame in frames] == ["1", "2", "2"]
    pins = [_pin(frame.header) for frame in frames]
    assert pins[0] == ""
    assert pins[1] == pins[2] != ""
    assert peer.nothing_came()
    peer.js.done("CONSUMER.UNPIN.S.C", {"group": "g"})
    frame = peer.next()
    assert (frame.sid, _pin(frame.header)) == ("1", "")


def _pin(header: bytes) -> str:
    match = re.search(rb"\r\nNats-Pin-Id: (\w*)\r\n", header)
    assert match is not None
    return match[1].decode()


@pytest.mark.parametrize("policy", ["overflow", "prioritized"])
def test_an_ack_that_asks_for_more_belongs_to_no_group(peer: Peer, policy: str) -> None:
    inboxes = grouped(peer, policy, "a", "b")
    inboxes.ask(group="g", batch=1)
    peer.publish(peer.next().reply, b"+NXT", "inbox1")
    assert inboxes.next() == ("1", "s.b")
