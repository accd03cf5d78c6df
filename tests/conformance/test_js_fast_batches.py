"""Fast batches: messages that are stored as they come, with an acknowledgement now and then."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from conformance.helpers_publish import Publisher
from harness import ServerProcess

START, APPEND, COMMIT, END, PING = range(5)
_ids = itertools.count(1)
UNKNOWN = (10208, "batch publish ID unknown")


class FastClient:
    """Sends the messages of one batch, and reads every answer."""

    def __init__(self, peer: Publisher, stream: str, flow: str = "3", gap: str = "ok") -> None:
        self.peer = peer
        self.stream = stream
        self.flow, self.gap = flow, gap
        self.id = f"b{next(_ids)}"

    def send(self, number: int, operation: int, payload: bytes = b"x", header: str = "") -> None:
        reply = f"fast.{self.id}.{self.flow}.{self.gap}.{number}.{operation}.$FI"
        self.send_to(reply, payload, header)

    def send_to(self, reply: str, payload: bytes = b"x", header: str = "") -> None:
        head = f"{self.stream.lower()}.1 {reply}".encode()
        if not header:
            self.peer.client.send(b"PUB %s %d\r\n%s\r\n" % (head, len(payload), payload))
            return
        block = f"NATS/1.0\r\n{header}\r\n\r\n".encode()
        sizes = b"%d %d" % (len(block), len(block) + len(payload))
        self.peer.client.send(b"HPUB %s %s\r\n%s%s\r\n" % (head, sizes, block, payload))

    def answers(self) -> list[tuple[str, str]]:
        """The number and operation that are answered, and what the answers say, in brief."""
        # What is stored after them is acknowledged after them.
        self.send_to(f"fast.{self.id}.9.ok.9.{APPEND}.end")
        found = []
        while True:
            line, _, body = self.peer.client.read_message()
            subject = line.split(" ")[1] if isinstance(line, str) else line.split(b" ")[1].decode()
            if subject.endswith(".end"):
                return found
            tokens = subject.split(".")
            found.append((".".join(tokens[-3:-1]), self.brief(json.loads(body))))

    def brief(self, answer: dict[str, object]) -> str:
        kind = answer.get("type")
        if kind == "ack":
            return f"ack {answer['seq']} of {answer['msgs']}"
        if kind == "gap":
            return f"gap {answer['last_seq']} to {answer['seq']}"
        if kind == "err":
            return f"err {answer['seq']}: {answer['error']['err_code']}"  # type: ignore[index]
        if "error" in answer:
            assert answer["seq"] == 0
            return f"error {answer['error']['err_code']}"  # type: ignore[index]
        assert (answer["stream"], answer["batch"]) == (self.stream, self.id)
        duplicate = " again" if answer.get("duplicate") else ""
        return f"stored {answer['count']} as {answer['seq']}{duplicate}"


@pytest.fixture(params=["file", "memory"])
def stream(request: pytest.FixtureRequest, peer: Publisher) -> Iterator[str]:
    peer.client.send("SUB fast.> 8\r\n")
    yield peer.create(allow_batched=True, allow_msg_ttl=True, storage=request.param)
    peer.client.send("UNSUB 8\r\n")


def test_batch_is_acknowledged_now_and_then(peer: Publisher, stream: str) -> None:
    batch = FastClient(peer, stream)
    for number in range(1, 9):
        batch.send(number, START if number == 1 else COMMIT if number == 8 else APPEND)
    assert batch.answers() == [
        ("1.0", "ack 0 of 3"),
        ("3.1", "ack 3 of 3"),
        ("6.1", "ack 6 of 3"),
        ("8.2", "stored 8 as 8"),
    ]
    message = peer.api(f"STREAM.MSG.GET.{stream}", {"seq": 5})["message"]
    assert "hdrs" not in message
    batch.send(9, APPEND)
    assert batch.answers() == [("9.1", "error 10208")]


def test_end_without_a_message(peer: Publisher, stream: str) -> None:
    batch = FastClient(peer, stream, flow="none")
    for number in range(1, 12):
        batch.send(number, START if number == 1 else APPEND, header="A: b")
    batch.send(12, END)
    assert batch.answers() == [
        ("1.0", "ack 0 of 10"),
        ("10.1", "ack 10 of 10"),
        ("12.3", "stored 11 as 11"),
    ]


def test_one_message_is_a_batch(peer: Publisher, stream: str) -> None:
    batch = FastClient(peer, stream)
    batch.send(1, COMMIT)
    assert batch.answers() == [("1.2", "stored 1 as 1")]


def test_several_batches_share_the_flow(peer: Publisher, stream: str) -> None:
    first, second = FastClient(peer, stream, "100"), FastClient(peer, stream, "8")
    first.send(1, START)
    assert first.answers() == [("1.0", "ack 0 of 100")]
    for number in range(1, 25):
        second.send(number, START if number == 1 else APPEND)
    assert second.answers() == [
        ("1.0", "ack 0 of 1"),
        ("1.0", "ack 1 of 2"),
        ("3.1", "ack 3 of 4"),
        ("7.1", "ack 7 of 8"),
        ("15.1", "ack 15 of 8"),
        ("23.1", "ack 23 of 8"),
    ]


def test_gap_is_told_and_the_batch_goes_on(peer: Publisher, stream: str) -> None:
    batch = FastClient(peer, stream, "2", "ok")
    for number in (1, 4, 5):
        batch.send(number, START if number == 1 else APPEND)
    assert batch.answers() == [("1.0", "ack 0 of 2"), ("4.1", "gap 2 to 4"), ("4.1", "ack 4 of 2")]
    batch.send(5, APPEND)  # once more: that ends it
    batch.send(6, APPEND)
    assert batch.answers() == [
        ("5.1", "gap 6 to 5"),
        ("5.1", "stored 5 as 3"),
        ("6.1", "error 10208"),
    ]


def test_gap_ends_a_batch_that_takes_none(peer: Publisher, stream: str) -> None:
    batch = FastClient(peer, stream, "2", "fail")
    for number in (1, 4, 5):
        batch.send(number, START if number == 1 else APPEND)
    assert batch.answers() == [
        ("1.0", "ack 0 of 2"),
        ("4.1", "gap 2 to 4"),
        ("4.1", "stored 1 as 1"),
        ("5.1", "error 10208"),
    ]


def test_pings(peer: Publisher, stream: str) -> None:
    batch = FastClient(peer, stream, "5", "ok")
    batch.send(1, PING)
    batch.send(1, START)
    batch.send(2, APPEND)
    batch.send(2, PING)
    batch.send(6, PING)
    batch.send(7, COMMIT)
    assert batch.answers() == [
        ("1.4", "error 10208"),
        ("1.0", "ack 0 of 5"),
        ("2.4", "ack 0 of 5"),
        ("6.4", "gap 3 to 7"),
        ("6.4", "ack 5 of 5"),
        ("7.2", "stored 7 as 3"),
    ]
    batch = FastClient(peer, stream, "5", "fail")
    batch.send(1, START)
    batch.send(1, PING)
    batch.send(3, PING)
    assert batch.answers()[1:] == [
        ("1.4", "ack 0 of 5"),
        ("3.4", "gap 2 to 4"),
        ("3.4", "stored 1 as 5"),
    ]


WRONG = "Nats-Expected-Stream: OTHER"


@pytest.mark.parametrize(
    ("gap", "sent", "answers"),
    [
        ("fail", [(1, START, WRONG)], [("1.0", "ack 0 of 5"), ("1.0", "error 10060")]),
        ("fail", [(1, COMMIT, WRONG)], [("1.2", "error 10060")]),
        ("ok", [(1, COMMIT, WRONG)], [("1.2", "err 1: 10060"), ("1.2", "stored 0 as 0")]),
        (
            "fail",
            [(1, START, ""), (2, APPEND, WRONG), (3, APPEND, "")],
            [
                ("1.0", "ack 0 of 5"),
                ("2.1", "err 2: 10060"),
                ("2.1", "stored 1 as 1"),
                ("3.1", "error 10208"),
            ],
        ),
        (
            "ok",
            [(1, START, WRONG), (2, APPEND, ""), (3, COMMIT, WRONG)],
            [
                ("1.0", "ack 0 of 5"),
                ("1.0", "err 1: 10060"),
                ("3.2", "err 3: 10060"),
                ("3.2", "stored 2 as 1"),
            ],
        ),
        (
            "ok",
            [(1, START, "Nats-Msg-Id: a"), (2, APPEND, "Nats-Msg-Id: a"), (3, COMMIT, "")],
            [("1.0", "ack 0 of 5"), ("3.2", "stored 3 as 2")],
        ),
        (
            "ok",
            [(1, START, "Nats-TTL: x"), (2, COMMIT, "Nats-TTL: 5s")],
            [("1.0", "ack 0 of 5"), ("1.0", "err 1: 10165"), ("2.2", "stored 2 as 1")],
        ),
        ("ok", [(1, START, "Nats-Required-Api-Level: 99")], [("1.0", "error 10185")]),
    ],
)
def test_messages_that_are_refused(
    peer: Publisher,
    stream: str,
    gap: str,
    sent: list[tuple[int, int, str]],
    answers: list[tuple[str, str]],
) -> None:
    batch = FastClient(peer, stream, "5", gap)
    for number, operation, header in sent:
        batch.send(number, operation, header=header)
    assert batch.answers() == answers


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("Nats-Expected-Last-Sequence: 9\r\nNats-Expected-Last-Subject-Sequence-Subject: a", 10071),
        ("Nats-Expected-Last-Sequence: 9\r\nNats-TTL: x", 10165),
        ("Nats-Expected-Last-Subject-Sequence: 9\r\nNats-Stream-Source: O 1", 10227),
        ("Nats-Schedule: x\r\nNats-Stream-Source: O 1", 10227),
        ("Nats-Expected-Last-Msg-Id: x\r\nNats-Rollup: all", 10111),
    ],
)
def test_the_first_fault_of_several(peer: Publisher, stream: str, header: str, code: int) -> None:
    """It is another one than that of a message without a batch."""
    batch = FastClient(peer, stream, "5", "fail")
    batch.send(1, COMMIT, header=header)
    assert [text for _, text in batch.answers()] == [f"error {code}"]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("fast.x.5.ok.1.9.$FI", 10206),
        ("fast.x.5.ok.0.0.$FI", 10206),
        ("fast.x.5.ok.2.0.$FI", 10206),
        ("fast.x.5.ok.1.1.$FI", 10206),
        ("fast.x.5.ok.1.3.$FI", 10206),
        ("fast.x.5.OK.1.0.$FI", 10206),
        ("fast.x.5.ok.one.0.$FI", 10206),
        ("fast.x.5.ok.-1.0.$FI", 10206),
        ("fast.$FI", 10206),
        ("fast.ok.1.0.$FI", 10206),
        (f"fast.{'i' * 65}.5.ok.1.0.$FI", 10207),
        ("fast.x.5.ok.2.1.$FI", 10208),
    ],
)
def test_replies_that_name_no_batch(peer: Publisher, stream: str, reply: str, code: int) -> None:
    client = FastClient(peer, stream)
    client.send_to(reply)
    assert [text for _, text in client.answers()] == [f"error {code}"]


def test_other_streams_have_none(peer: Publisher) -> None:
    peer.client.send("SUB fast.> 8\r\n")
    batch = FastClient(peer, peer.create())
    batch.send(1, START)
    assert batch.answers() == [("1.0", "error 10205")]
    peer.client.send("UNSUB 8\r\n")


def test_message_that_is_too_large_leaves_a_gap(peer: Publisher) -> None:
    peer.client.send("SUB fast.> 8\r\n")
    batch = FastClient(peer, peer.create(allow_batched=True, max_msg_size=10), "2")
    batch.send(1, START)
    batch.send(2, APPEND, b"y" * 20)
    batch.send(3, APPEND)
    assert batch.answers() == [
        ("1.0", "ack 0 of 2"),
        ("2.1", "error 10054"),
        ("3.1", "gap 2 to 3"),
        ("3.1", "ack 2 of 2"),
    ]
    peer.client.send("UNSUB 8\r\n")


def test_too_many_open_batches(peer: Publisher, stream: str) -> None:
    for _ in range(1000):
        FastClient(peer, stream).send(1, START)
    batch = FastClient(peer, stream)
    batch.send(1, START)
    assert batch.answers()[-1] == ("1.0", "error 10211")


def test_mapped_and_published_again(peer: Publisher) -> None:
    """What is stored on the slow path is acknowledged in the same way."""
    peer.client.send("SUB fast.> 8\r\n")
    name = peer.create(allow_batched=True, republish={"src": ">", "dest": "copies.>"})
    batch = FastClient(peer, name, "2")
    for number in range(1, 5):
        batch.send(number, START if number == 1 else COMMIT if number == 4 else APPEND)
    assert batch.answers() == [
        ("1.0", "ack 0 of 2"),
        ("2.1", "ack 2 of 2"),
        ("4.2", "stored 4 as 4"),
    ]
    peer.client.send("UNSUB 8\r\n")


def test_duplicate_and_wrong_last_id_are_answered_by_the_batch(
    peer: Publisher, stream: str, js_server: ServerProcess
) -> None:
    """Ours gives each one answer of its batch; nats-server answers in two other ways."""
    open_one = FastClient(peer, stream)
    open_one.send(1, START, header="Nats-Msg-Id: a")
    open_one.answers()
    again, wrong = FastClient(peer, stream), FastClient(peer, stream)
    again.send(1, COMMIT, header="Nats-Msg-Id: a")
    wrong.send(1, START, header="Nats-Expected-Last-Msg-Id: other")
    assert again.answers() == (
        [("1.2", "stored 1 as 1 again"), ("1.0", "ack 0 of 1"), ("1.0", "err 1: 10070")]
        if js_server.kind == "tradewind"
        else [
            ("1.2", "ack 1 of 2"),
            ("1.2", "stored 1 as 0"),
            ("1.0", "ack 0 of 1"),
            ("1.0", "error 10070"),
        ]
    )
