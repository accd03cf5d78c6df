"""Streams that count: increments become sums, however large they are."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

import tradewind.sync
from conformance.helpers_publish import Publisher
from harness import ServerProcess
from tradewind.client.api_errors import MessageIncrMissingError

BROKEN = (10172, "message counter is broken")
INVALID = (10171, "message counter increment is invalid")


@pytest.fixture(params=["file", "memory"])
def counter(request: pytest.FixtureRequest, peer: Publisher) -> str:
    """The name of a stream that counts; its subjects begin with the same in small letters."""
    return peer.create(allow_msg_counter=True, allow_direct=True, storage=request.param)


def add(peer: Publisher, name: str, increment: str, *more: str, key: str = "1") -> dict[str, Any]:
    header = "\r\n".join([f"Nats-Incr: {increment}", *more]).encode()
    answer: dict[str, Any] = json.loads(peer.publish(f"{name.lower()}.{key}", b"", header))
    return answer


def stored(peer: Publisher, name: str, seq: int) -> tuple[str, bytes]:
    """The header block and the payload of a message."""
    message = peer.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
    return b64decode(message.get("hdrs", "")).decode(), b64decode(message.get("data", ""))


def test_sums_are_stored_and_acknowledged(peer: Publisher, counter: str) -> None:
    assert add(peer, counter, "1") == {"stream": counter, "seq": 1, "val": "1"}
    assert add(peer, counter, "+41") == {"stream": counter, "seq": 2, "val": "42"}
    assert add(peer, counter, "-50", "A: b") == {"stream": counter, "seq": 3, "val": "-8"}
    assert add(peer, counter, "7", key="2") == {"stream": counter, "seq": 4, "val": "7"}
    header, payload = stored(peer, counter, 3)
    assert header == "NATS/1.0\r\nNats-Incr: -50\r\nA: b\r\n\r\n"
    assert payload == b'{"val":"-8"}'


@pytest.mark.parametrize(
    ("increment", "value"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("+0", "0"),
        ("007", "7"),
        ("   5", "5"),
        (str(2**63), str(2**63)),
        (str(-(2**64)), str(-(2**64))),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_any_integer_counts(peer: Publisher, counter: str, increment: str, value: str) -> None:
    assert add(peer, counter, increment)["val"] == value
    assert add(peer, counter, "0")["val"] == value


def test_thousands_of_digits_add_up(peer: Publisher, counter: str) -> None:
    assert add(peer, counter, "9" * 20_000)["val"] == "9" * 20_000
    assert add(peer, counter, "1")["val"] == "1" + "0" * 20_000
    assert add(peer, counter, "-1" + "0" * 20_000)["val"] == "0"


@pytest.mark.parametrize(
    "increment", ["1_000", "1.5", "0x10", "+", "-", "--1", "one", "1 2", "1e3", "٣"]
)
def test_what_is_no_integer_is_refused(peer: Publisher, counter: str, increment: str) -> None:
    header = f"Nats-Incr: {increment}".encode()
    assert peer.refusal(f"{counter.lower()}.1", b"", header) == INVALID


@pytest.mark.parametrize(
    ("payload", "header", "refusal"),
    [
        (b"", b"", (10169, "message counter increment is missing")),
        (b"", b"A: b", (10169, "message counter increment is missing")),
        (b"x", b"", (10169, "message counter increment is missing")),
        (b"", b"Nats-Incr:", (10169, "message counter increment is missing")),
        (b"", b"Nats-Incr: ", (10169, "message counter increment is missing")),
        (b"x", b"Nats-Incr: 1", (10170, "message counter has payload")),
        (b"x", b"Nats-Incr: a", INVALID),
        (b"", b"Nats-Incr: 1\r\nNats-Rollup: sub", INVALID),
        (b"", b"Nats-Incr: 1\r\nNats-Expected-Stream: X", INVALID),
        (b"", b"Nats-Incr: 1\r\nNats-Expected-Last-Msg-Id: X", INVALID),
        (b"", b"Nats-Incr: 1\r\nNats-Expected-Last-Sequence: 0", INVALID),
        (b"", b"Nats-Incr: 1\r\nNats-Expected-Last-Subject-Sequence: 0", INVALID),
        (b"", b"Nats-Incr: 1\r\nNats-TTL: 5s", (10166, "per-message TTL is disabled")),
    ],
)
def test_what_a_counter_does_not_take(
    peer: Publisher, counter: str, payload: bytes, header: bytes, refusal: tuple[int, str]
) -> None:
    assert peer.refusal(f"{counter.lower()}.1", payload, header) == refusal
    assert peer.api(f"STREAM.INFO.{counter}")["state"]["last_seq"] == 0


def test_other_streams_do_not_count(peer: Publisher) -> None:
    subject = f"{peer.create().lower()}.1"
    assert peer.refusal(subject, b"", b"Nats-Incr: 1")[0] == 10168
    assert peer.refusal(subject, b"", b"Nats-Incr: x") == INVALID
    assert peer.refusal(subject, b"x", b"Nats-Incr:") == (0, "")


def test_repeated_id_counts_once(peer: Publisher, counter: str) -> None:
    assert add(peer, counter, "5", "Nats-Msg-Id: a")["val"] == "5"
    again = add(peer, counter, "5", "Nats-Msg-Id: a")
    assert again == {"stream": counter, "seq": 1, "duplicate": True}
    assert add(peer, counter, "0")["val"] == "5"


def test_purge_of_a_subject_starts_again(peer: Publisher, counter: str) -> None:
    add(peer, counter, "5")
    add(peer, counter, "6")
    subject = f"{counter.lower()}.1"
    peer.api(f"STREAM.PURGE.{counter}", {"filter": subject, "keep": 1})
    assert add(peer, counter, "1")["val"] == "12"
    peer.api(f"STREAM.PURGE.{counter}", {"filter": subject})
    assert add(peer, counter, "1")["val"] == "1"


def test_limit_of_one_message_keeps_the_sum(peer: Publisher) -> None:
    name = peer.create(allow_msg_counter=True, max_msgs_per_subject=1)
    for number in range(1, 20):
        assert add(peer, name, "1")["val"] == str(number)
    assert peer.api(f"STREAM.INFO.{name}")["state"]["messages"] == 1


def test_size_limit_holds_for_the_sum(peer: Publisher) -> None:
    name = peer.create(allow_msg_counter=True, max_msg_size=60)
    assert add(peer, name, "9" * 10)["val"] == "9" * 10
    # The message itself would fit, with its sum it does not.
    answer = add(peer, name, "9" * 18)
    assert answer["error"]["err_code"] == 10054


@pytest.mark.parametrize("sources", ['{"S":{"a":"5"}}', '{"Z":{"b":"1","a":"2"},"A":{}}', "{}"])
def test_counts_of_other_streams_are_inherited(peer: Publisher, counter: str, sources: str) -> None:
    add(peer, counter, "1", f"Nats-Counter-Sources: {sources}")
    add(peer, counter, "1", "A: b")
    header, _ = stored(peer, counter, 2)
    found = [line for line in header.split("\r\n") if line.startswith("Nats-Counter-Sources")]
    ordered = json.dumps(json.loads(sources), sort_keys=True, separators=(",", ":"))
    assert found == ([] if sources == "{}" else [f"Nats-Counter-Sources: {ordered}"])


@pytest.mark.parametrize("sources", ["x", "[]", '{"S":1}', '{"S":{"a":5}}'])
def test_broken_counts_of_other_streams_break_the_counter(
    peer: Publisher, counter: str, sources: str
) -> None:
    add(peer, counter, "1", f"Nats-Counter-Sources: {sources}")
    assert peer.refusal(f"{counter.lower()}.1", b"", b"Nats-Incr: 1") == BROKEN


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"discard": "new"}, "counter stream cannot use discard new"),
        ({"allow_msg_ttl": True}, "counter stream cannot use message TTLs"),
        ({"retention": "workqueue"}, "counter stream can only use limits retention"),
        ({"retention": "interest"}, "counter stream can only use limits retention"),
    ],
)
def test_counter_cannot_be_everything(peer: Publisher, change: dict[str, Any], text: str) -> None:
    config = {"name": "CANNOT", "subjects": ["cannot"], "allow_msg_counter": True, **change}
    assert peer.api("STREAM.CREATE.CANNOT", config)["error"]["description"] == text


def test_counting_cannot_be_switched(peer: Publisher, counter: str) -> None:
    config = peer.api(f"STREAM.INFO.{counter}")["config"]
    answer = peer.api(f"STREAM.UPDATE.{counter}", {**config, "allow_msg_counter": False})
    assert answer["error"]["description"] == (
        "stream configuration update can not change message counter setting"
    )
    assert config["metadata"]["_nats.req.level"] == "2"


def test_client_counts(js_server: ServerProcess, peer: Publisher, counter: str) -> None:
    subject = f"{counter.lower()}.9"
    with tradewind.sync.connect(js_server.url) as connection:
        js = connection.jetstream()
        assert js.counter(counter, subject) == 0
        assert js.increment(subject) == 1
        assert js.increment(subject, 10**5000, msg_id="a") == 10**5000 + 1
        assert js.increment(subject, 10**5000, msg_id="a") == 10**5000 + 1
        assert js.increment(subject, -(10**5000)) == 1
        assert js.counter(counter, subject) == 1
        with pytest.raises(MessageIncrMissingError):
            js.publish(subject, b"no increment")
