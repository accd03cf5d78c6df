"""Message tracing into streams: what a trace says of storing, and what is stored.

Every event is compared field by field, on both servers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers_ops import login, next_message, replies, shared_server
from helpers_tracing import DEST, ONLY, Listener, told, traced

from harness import RawClient, ServerProcess, wait_for

server = shared_server("""
server_name: here
jetstream { store_dir: "STORE/js" }
accounts {
  A {
    jetstream: enabled
    users: [ {user: a, password: pw} ]
    imports: [
      {service: {account: OTHER, subject: "far.in"}}
      {service: {account: OTHER, subject: "far.quiet"}}
    ]
  }
  OTHER {
    jetstream: enabled
    users: [ {user: other, password: pw} ]
    exports: [ {service: "far.in", allow_trace: true}, {service: "far.quiet"} ]
  }
  T {
    jetstream: enabled
    users: [ {user: t, password: pw} ]
    msg_trace: {dest: "traces"}
  }
}
""")

DISABLED = "Nats-Trace-Dest: trace disabled"


class Publisher:
    """Publishes into streams of an account that nobody else uses meanwhile."""

    def __init__(self, server: ServerProcess, user: str) -> None:
        self.user = user
        self.client: RawClient = login(server, user, "pw", no_responders=True)
        assert replies(self.client, "SUB inbox 1\r\n") == []
        self.traces = Listener(server, user)
        for name in self.ask("$JS.API.STREAM.NAMES")["streams"] or []:
            self.ask(f"$JS.API.STREAM.DELETE.{name}")

    def close(self) -> None:
        self.client.close()
        self.traces.close()

    def ask(self, subject: str, request: object = None) -> dict[str, Any]:
        """A request to the API and its answer."""
        body = json.dumps(request) if request is not None else ""
        self.client.send(f"PUB {subject} inbox {len(body)}\r\n{body}\r\n")
        answer: dict[str, Any] = json.loads(next_message(self.client)[2])
        assert "error" not in answer, answer
        return answer

    def stream(self, subject: str = "s", **config: Any) -> None:
        fields = {"name": "S", "subjects": [subject], "storage": "memory", **config}
        self.ask("$JS.API.STREAM.CREATE.S", fields)

    def publish(self, *lines: str, subject: str = "s", body: str = "p") -> bytes:
        """The answer of the stream; empty for a message that is only traced."""
        message = traced(subject, *lines, reply="inbox", body=body)
        if ONLY in lines:
            assert told(self.client, message) == []
            return b""
        self.client.send(message)
        return next_message(self.client)[2]

    def js(self) -> dict[str, Any]:
        """What the next trace says of the stream; it says nothing else."""
        came, *rest = self.traces.events()
        assert came["type"] == "in"
        assert came["acc"] == self.user.upper()
        assert len(rest) == 1, rest
        assert rest[0].pop("type") == "js"
        return rest[0]

    def stored(self) -> list[tuple[str, bytes]]:
        """Subjects and headers of all messages in the stream."""
        found = []
        for seq in range(1, self.ask("$JS.API.STREAM.INFO.S")["state"]["last_seq"] + 1):
            message = self.ask("$JS.API.STREAM.MSG.GET.S", {"seq": seq})["message"]
            found.append((message["subject"], base64.b64decode(message.get("hdrs", ""))))
        return found


@pytest.fixture
def peer(server: ServerProcess) -> Iterator[Publisher]:
    peer = Publisher(server, "a")
    yield peer
    peer.close()


def header(*lines: str) -> bytes:
    return ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


def test_a_message_that_is_stored(peer: Publisher) -> None:
    """It is stored so that nobody traces it again."""
    peer.stream()
    assert json.loads(peer.publish("Y: 2", DEST, "Z: 1")) == {"stream": "S", "seq": 1}
    assert peer.js() == {"stream": "S", "subject": "s"}
    assert peer.stored() == [("s", header("Y: 2", DISABLED, "Z: 1"))]


def test_a_message_that_is_only_traced_is_not_stored(peer: Publisher) -> None:
    peer.stream()
    assert peer.publish(DEST, ONLY) == b""
    assert peer.js() == {"stream": "S", "subject": "s"}
    assert peer.stored() == []


def test_the_subject_is_the_one_that_is_stored(peer: Publisher) -> None:
    peer.stream("x.*", subject_transform={"src": "x.*", "dest": "y.{{wildcard(1)}}"})
    peer.publish(DEST, subject="x.a")
    assert peer.js() == {"stream": "S", "subject": "y.a"}
    assert peer.stored() == [("y.a", header(DISABLED))]


# What a header demands, and what the trace says instead of the subject.
REFUSED = {
    "sequence": (["Nats-Expected-Last-Sequence: 9"], "last sequence mismatch: 9 vs 1"),
    "subject's sequence": (
        ["Nats-Expected-Last-Subject-Sequence: 9"],
        "last sequence by subject mismatch: 9 vs 1",
    ),
    "both": (
        ["Nats-Expected-Last-Subject-Sequence: 7", "Nats-Expected-Last-Sequence: 1"],
        "last sequence by subject mismatch: 7 vs 1",
    ),
    "stream": (["Nats-Expected-Stream: OTHER"], "expected stream does not match"),
    "id": (["Nats-Expected-Last-Msg-Id: zz"], 'last msgid mismatch: "zz" vs "first"'),
    "rollup": (["Nats-Rollup: sub"], "rollup not permitted"),
    "ttl": (["Nats-TTL: 5s"], "message TTL disabled"),
    "counter": (["Nats-Incr: 1"], "message counters is disabled (10168)"),
    "schedule": (
        ["Nats-Schedule: @at 2130-01-01T00:00:00Z"],
        "message schedules is disabled (10188)",
    ),
    "batch": (["Nats-Batch-Id: b", "Nats-Batch-Sequence: 1"], "atomic publish is disabled (10174)"),
}


@pytest.mark.parametrize("only", [(), (ONLY,)], ids=["stored", "only"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_message_that_is_refused(peer: Publisher, name: str, only: tuple[str, ...]) -> None:
    lines, error = REFUSED[name]
    peer.stream()
    peer.client.send("HPUB s 32 33\r\nNATS/1.0\r\nNats-Msg-Id: first\r\n\r\np\r\n")
    peer.client.send(traced("s", *lines, DEST, *only, reply="inbox"))
    answer = json.loads(next_message(peer.client)[2])
    assert answer["error"]["err_code"] > 10000
    assert peer.js() == {"stream": "S", "error": error}
    assert len(peer.stored()) == 1


@pytest.mark.parametrize("only", [(), (ONLY,)], ids=["stored", "only"])
def test_a_duplicate(peer: Publisher, only: tuple[str, ...]) -> None:
    peer.stream()
    peer.client.send("HPUB s 32 33\r\nNATS/1.0\r\nNats-Msg-Id: first\r\n\r\np\r\n")
    peer.client.send(traced("s", DEST, "Nats-Msg-Id: first", *only, reply="inbox"))
    assert json.loads(next_message(peer.client)[2])["duplicate"]
    assert peer.js() == {"stream": "S", "error": "msgid is duplicate"}
    assert len(peer.stored()) == 1


@pytest.mark.parametrize(
    ("config", "lines", "error"),
    [
        ({"max_msgs": 1}, [], "maximum messages exceeded"),
        ({"max_bytes": 150}, [], "maximum bytes exceeded"),
        (
            {"max_msgs_per_subject": 1, "discard_new_per_subject": True},
            [],
            "maximum messages per subject exceeded",
        ),
        ({"allow_msg_ttl": True}, ["Nats-TTL: xx"], "invalid per-message TTL (10165)"),
    ],
)
def test_what_is_found_when_a_message_is_stored(
    peer: Publisher, config: dict[str, Any], lines: list[str], error: str
) -> None:
    """A message that is only traced does not get so far."""
    peer.stream(discard="new", **config)
    peer.publish(DEST, body="x" * 40)
    assert peer.js() == {"stream": "S", "subject": "s"}
    answer = json.loads(peer.publish(DEST, *lines, body="x" * 40))
    assert answer["error"]["code"] >= 400
    assert peer.js() == {"stream": "S", "subject": "s", "error": error}
    assert peer.publish(DEST, ONLY, *lines, body="x" * 40) == b""
    assert peer.js() == {"stream": "S", "subject": "s"}


def test_a_message_that_is_too_large_for_the_stream(peer: Publisher) -> None:
    peer.stream(max_msg_size=100)
    assert json.loads(peer.publish(DEST, body="x" * 100))["error"]["err_code"] == 10054
    assert peer.js() == {"stream": "S", "error": "maximum payload exceeded"}


@pytest.mark.parametrize("only", [(), (ONLY,)], ids=["stored", "only"])
def test_a_message_that_nobody_wants(peer: Publisher, only: tuple[str, ...]) -> None:
    peer.stream(retention="interest")
    peer.publish(DEST, *only)
    assert peer.js() == {"stream": "S", "subject": "s", "nointerest": True}


def test_a_counter(peer: Publisher) -> None:
    peer.stream(allow_msg_counter=True)
    assert json.loads(peer.publish(DEST, "Nats-Incr: 1", body=""))["val"] == "1"
    assert peer.js() == {"stream": "S", "subject": "s"}
    assert json.loads(peer.publish(DEST))["error"]["err_code"] == 10169
    error = "message counter increment is missing (10169)"
    assert peer.js() == {"stream": "S", "error": error}


def test_of_an_atomic_batch_the_last_message_is_traced(peer: Publisher) -> None:
    peer.stream(allow_atomic=True)
    peer.client.send(traced("s", DEST, "Nats-Batch-Id: u", "Nats-Batch-Sequence: 1", reply="inbox"))
    assert next_message(peer.client)[2] == b""
    assert peer.traces.nothing_came()
    end = ("Nats-Batch-Id: u", "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1")
    assert json.loads(peer.publish(DEST, *end))["count"] == 2
    assert peer.js() == {"stream": "S", "subject": "s"}
    assert peer.stored()[1] == ("s", header(DISABLED, *end))


def test_receivers_and_streams_are_in_one_trace(peer: Publisher) -> None:
    peer.stream()
    assert replies(peer.client, "SUB s 9\r\n") == []
    told(peer.client, traced("s", DEST, ONLY))
    events = peer.traces.events()
    assert sorted(event["type"] for event in events) == ["eg", "in", "js"]
    assert replies(peer.client, "UNSUB 9\r\n") == []


@pytest.mark.parametrize("only", [(), (ONLY,)], ids=["delivered", "only"])
@pytest.mark.parametrize("subject", ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.NOPE"])
def test_requests_to_the_api(peer: Publisher, subject: str, only: tuple[str, ...]) -> None:
    told(peer.client, traced(subject, DEST, *only, body=""))
    came, crossing = peer.traces.events()
    assert came["subj"] == subject
    assert crossing == {"type": "si", "acc": "$SYS", "from": subject, "to": subject}


def test_consumers_and_direct_gets_are_in_no_trace(peer: Publisher) -> None:
    peer.stream(allow_direct=True)
    peer.publish(DEST)
    peer.js()
    config = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    peer.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.C", config)
    peer.client.send(traced("$JS.API.CONSUMER.MSG.NEXT.S.C", DEST, body="1", reply="inbox"))
    words, delivered, _ = next_message(peer.client)
    assert delivered == header(DISABLED)
    peer.client.send(traced(words[3], DEST, body="", reply="inbox"))
    next_message(peer.client)
    peer.client.send(traced("$JS.API.DIRECT.GET.S", DEST, body='{"seq":1}', reply="inbox"))
    assert next_message(peer.client)[1].startswith(header(DISABLED)[:-2])
    for subject in ("$JS.API.CONSUMER.MSG.NEXT.S.C", words[3], "$JS.API.DIRECT.GET.S"):
        (came,) = peer.traces.events()
        assert came["subj"] == subject


@pytest.mark.parametrize("only", [(), (ONLY,)], ids=["stored", "only"])
@pytest.mark.parametrize("subject", ["far.in", "far.quiet"])
def test_a_stream_of_another_account(
    server: ServerProcess, peer: Publisher, subject: str, only: tuple[str, ...]
) -> None:
    far = Publisher(server, "other")
    far.stream(subject)
    told(peer.client, traced(subject, DEST, *only))
    came, crossing, *rest = peer.traces.events()
    assert came["subj"] == subject
    assert crossing == {"type": "si", "acc": "OTHER", "from": subject, "to": subject}
    stored = [{"type": "js", "stream": "S", "subject": subject}]
    assert rest == (stored if subject == "far.in" else [])
    if not only:
        wait_for(far.stored, "the message in the stream")
    kept = [found.replace(b"Nats-Trace-Only: true\r\n", b"") for _, found in far.stored()]
    assert kept == ([] if only else [header(DISABLED)])
    assert far.traces.nothing_came()
    far.close()


def test_a_message_with_a_traceparent_is_stored_as_one_that_is_traced(
    server: ServerProcess,
) -> None:
    peer = Publisher(server, "t")
    peer.stream()
    peer.publish("A: b", "traceparent: a-b-c-01")
    assert peer.js() == {"stream": "S", "subject": "s"}
    assert peer.stored() == [("s", header("A: b", "traceparent: a-b-c-01", DISABLED))]
    peer.publish("traceparent: a-b-c-00")
    assert peer.stored()[1] == ("s", header("traceparent: a-b-c-00"))
    assert peer.traces.nothing_came()
    peer.close()
