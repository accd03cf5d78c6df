"""Atomic batches: messages that are stored together or not at all."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from conformance.helpers_ops import running
from conformance.helpers_publish import Publisher
from harness import ServerProcess

DUPLICATE = (10201, "atomic publish batch contains duplicate message id")
INCOMPLETE = (10176, "atomic publish batch is incomplete")
WRONG_LATER = (10164, "wrong last sequence")


@pytest.fixture(params=["file", "memory"])
def stream(request: pytest.FixtureRequest, peer: Publisher) -> str:
    return peer.create(allow_atomic=True, allow_rollup_hdrs=True, storage=request.param)


def part(number: int | str, *more: str, batch: str = "b", commit: str = "") -> bytes:
    """The header of a message of a batch."""
    lines = [f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {number}"]
    if commit:
        lines.append(f"Nats-Batch-Commit: {commit}")
    return "\r\n".join([*lines, *more]).encode()


def add(peer: Publisher, name: str, number: int, *more: str, **where: Any) -> bytes:
    """A message that is not the last one; gives the answer, which is empty if it is kept."""
    key = where.pop("key", number)
    return peer.publish(f"{name.lower()}.{key}", b"m%d" % number, part(number, *more, **where))


def outcome(peer: Publisher, name: str, *messages: list[str], **keys: Any) -> tuple[int, str]:
    """A batch of messages with these more header lines; gives the error, (0, "") if it is stored.

    They go to the subjects 1, 2, ... of the stream, or as `keys` says: k2="1".
    """
    for number, more in enumerate(messages[:-1], 1):
        assert add(peer, name, number, *more, key=keys.get(f"k{number}", number)) == b""
    number = len(messages)
    subject = f"{name.lower()}.{keys.get(f'k{number}', number)}"
    return peer.refusal(subject, b"", part(number, *messages[-1], commit="1"))


def stored(peer: Publisher, name: str, seq: int) -> tuple[str, str, bytes]:
    message = peer.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
    header = b64decode(message.get("hdrs", "")).decode()
    return message["subject"], header, b64decode(message.get("data", ""))


def test_batch_is_stored_when_it_is_committed(peer: Publisher, stream: str) -> None:
    subject = stream.lower()
    peer.publish(f"{subject}.0", b"before")
    assert add(peer, stream, 1) == b""
    assert add(peer, stream, 2, "A: b") == b""
    peer.publish(f"{subject}.0", b"between")
    assert peer.sequences(stream) == [1, 2]
    answer = peer.publish(f"{subject}.3", b"m3", part(3, commit="1"))
    assert json.loads(answer) == {"stream": stream, "seq": 5, "batch": "b", "count": 3}
    assert peer.sequences(stream) == [1, 2, 3, 4, 5]
    assert [stored(peer, stream, seq)[2] for seq in (2, 3, 4, 5)] == [
        b"between",
        b"m1",
        b"m2",
        b"m3",
    ]
    assert stored(peer, stream, 4) == (
        f"{subject}.2",
        "NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 2\r\nA: b\r\n\r\n",
        b"m2",
    )


def test_end_of_a_batch_is_not_stored(peer: Publisher, stream: str) -> None:
    add(peer, stream, 1)
    add(peer, stream, 2)
    answer = peer.publish(f"{stream.lower()}.9", b"gone", part(3, commit="eob"))
    assert json.loads(answer) == {"stream": stream, "seq": 2, "batch": "b", "count": 2}
    assert stored(peer, stream, 2)[1].endswith("Nats-Batch-Commit: 1\r\n\r\n")
    assert peer.sequences(stream) == [1, 2]


def test_batch_of_one_message(peer: Publisher, stream: str) -> None:
    answer = peer.publish(f"{stream.lower()}.1", b"x", part(1, commit="1"))
    assert json.loads(answer) == {"stream": stream, "seq": 1, "batch": "b", "count": 1}


def test_batches_and_clients_mix(peer: Publisher, js_server: ServerProcess, stream: str) -> None:
    other = Publisher(js_server)
    add(peer, stream, 1, batch="one")
    add(other, stream, 1, batch="two")
    add(other, stream, 2, batch="one")
    add(peer, stream, 2, batch="two")
    for batch, last in (("two", 3), ("one", 6)):
        answer = other.publish(f"{stream.lower()}.3", b"", part(3, batch=batch, commit="1"))
        assert json.loads(answer)["seq"] == last
    other.close()


def test_empty_id_is_none(peer: Publisher, stream: str) -> None:
    assert peer.refusal(f"{stream.lower()}.1", b"", b"Nats-Batch-Id:") == (0, "")
    assert peer.sequences(stream) == [1]


def test_stream_without_batches_refuses_them(peer: Publisher) -> None:
    name = peer.create()
    assert peer.refusal(f"{name.lower()}.1", b"", part(1)) == (10174, "atomic publish is disabled")
    assert peer.refusal(f"{name.lower()}.1", b"", b"Nats-Batch-Id: b")[0] == 10174


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        (b"Nats-Batch-Id: b", (10175, "atomic publish sequence is missing")),
        (part(""), (10175, "atomic publish sequence is missing")),
        (part("x"), (10175, "atomic publish sequence is missing")),
        (part("-1"), (10175, "atomic publish sequence is missing")),
        (part("0"), INCOMPLETE),
        (part("2"), INCOMPLETE),
        (part("1000"), INCOMPLETE),
        (part("1001"), (10199, "atomic publish batch is too large: 1000")),
        (part("1001", commit="eob"), INCOMPLETE),
        (part("1002", commit="eob"), (10199, "atomic publish batch is too large: 1000")),
        (part("1", commit="eob"), INCOMPLETE),
        (part("0", commit="eob"), (10199, "atomic publish batch is too large: 1000")),
        (part("1", commit="2"), (10200, "atomic publish batch commit is invalid")),
        (part("1", commit="true"), (10200, "atomic publish batch commit is invalid")),
        (part("1", batch="b" * 65), (10179, "atomic publish batch ID is invalid")),
        (part("x", batch="b" * 65), (10179, "atomic publish batch ID is invalid")),
        (part("1", "Nats-Required-Api-Level: 99"), (10185, "JetStream minimum api level required")),
    ],
)
def test_first_message_that_opens_no_batch(
    peer: Publisher, stream: str, header: bytes, refusal: tuple[int, str]
) -> None:
    assert peer.refusal(f"{stream.lower()}.1", b"", header) == refusal
    assert peer.refusal(f"{stream.lower()}.1", b"", part(2)) == INCOMPLETE
    assert peer.api(f"STREAM.INFO.{stream}")["state"]["last_seq"] == 0


@pytest.mark.parametrize("number", [1, 2, 4])
def test_message_out_of_order_ends_the_batch(peer: Publisher, stream: str, number: int) -> None:
    add(peer, stream, 1)
    add(peer, stream, 2)
    assert peer.refusal(f"{stream.lower()}.1", b"", part(number)) == INCOMPLETE
    assert peer.refusal(f"{stream.lower()}.1", b"", part(3, commit="1")) == INCOMPLETE
    assert add(peer, stream, 1) == b""


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (part(3), "incomplete"),
        (part(2, "Nats-Required-Api-Level: 99"), "unsupported"),
        (part(2, commit="no"), None),
        (part(2, "Nats-Expected-Stream: X", commit="1"), None),
    ],
)
def test_event_tells_of_a_batch_that_is_given_up(
    peer: Publisher, stream: str, more: bytes, reason: str | None
) -> None:
    subject = f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{stream}"
    peer.client.send(f"SUB {subject} 9\r\n")
    add(peer, stream, 1)
    peer.send(f"{stream.lower()}.1", b"", more)
    peer.client.send("PING\r\n")
    found = []
    is_done = False
    while not is_done or (reason and not found):
        line = peer.client.read_line()
        is_done = is_done or line == b"PONG"
        if line.startswith(b"MSG " + subject.encode()):
            found.append(json.loads(peer.client.read_line()))
    peer.client.send("UNSUB 9\r\n")
    if reason is None:
        assert found == []
        return
    (event,) = found
    assert event["type"] == "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
    assert (event["stream"], event["batch"], event["reason"]) == (stream, "b", reason)
    assert set(event) == {"type", "id", "timestamp", "stream", "batch", "reason"}


ID = "Nats-Msg-Id: "
LAST = "Nats-Expected-Last-Sequence: "
LAST_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence: "
OF = "Nats-Expected-Last-Subject-Sequence-Subject: "
UNSUPPORTED = "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"


@pytest.mark.parametrize(
    ("messages", "keys", "refusal"),
    [
        ([["Nats-Expected-Last-Msg-Id: a"], []], {}, (10177, UNSUPPORTED)),
        ([[], ["Nats-Expected-Last-Msg-Id: a"]], {}, (10177, UNSUPPORTED)),
        ([["Nats-Expected-Stream: X"], []], {}, (10060, "expected stream does not match")),
        ([[], ["Nats-TTL: 5s"]], {}, (10166, "per-message TTL is disabled")),
        ([[], ["Nats-TTL: x"]], {}, (10166, "per-message TTL is disabled")),
        ([[f"{ID}a"], [f"{ID}a"]], {}, DUPLICATE),
        ([[f"{ID}known"], []], {}, DUPLICATE),
        ([[f"{LAST}1"], []], {}, (0, "")),
        ([[f"{LAST}0"], []], {}, (10071, "wrong last sequence: 1")),
        ([[], [f"{LAST}1"]], {}, (10071, "wrong last sequence: 2")),
        ([[], [f"{LAST}2"]], {}, WRONG_LATER),
        ([[f"{LAST_OF_SUBJECT}0"], [f"{LAST_OF_SUBJECT}0"]], {}, (0, "")),
        ([[f"{LAST_OF_SUBJECT}5"], []], {}, (10071, "wrong last sequence: 0")),
        ([[], [f"{LAST_OF_SUBJECT}0"]], {"k2": "1"}, WRONG_LATER),
        ([[], [f"{LAST_OF_SUBJECT}1"]], {"k2": "0"}, (0, "")),
        ([[f"{OF}x"], []], {}, (10193, "missing sequence for expected last sequence per subject")),
        ([["Nats-Incr: 1"], []], {}, (10168, "message counters is disabled")),
        ([["Nats-Stream-Source: X 1"], []], {}, (10227, None)),
        ([[], ["Nats-Rollup: all"]], {}, (10111, "batch rollup all invalid")),
        ([[], ["Nats-Rollup: sub"]], {"k2": "1"}, (10111, "batch rollup sub invalid")),
        ([[], ["Nats-Rollup: no"]], {}, (10111, 'rollup value invalid: "no"')),
        ([["Nats-Rollup: all"], []], {}, (0, "")),
        ([[], ["Nats-Rollup: sub"]], {}, (0, "")),
    ],
)
def test_all_of_a_batch_has_to_hold(
    peer: Publisher,
    stream: str,
    messages: list[list[str]],
    keys: dict[str, str],
    refusal: tuple[int, str | None],
) -> None:
    peer.publish(f"{stream.lower()}.0", b"", b"Nats-Msg-Id: known")
    found = outcome(peer, stream, *messages, **keys)
    assert found == (refusal[0], found[1] if refusal[1] is None else refusal[1])
    last_seq = peer.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]
    assert last_seq == (1 if refusal[0] else 3)
    assert peer.refusal(f"{stream.lower()}.1", b"", part(2)) == INCOMPLETE


def test_time_to_live_of_a_batch_is_checked(peer: Publisher) -> None:
    name = peer.create(allow_atomic=True, allow_msg_ttl=True)
    assert outcome(peer, name, [], ["Nats-TTL: x"])[0] == 10165
    assert outcome(peer, name, [], ["Nats-TTL: 1h"]) == (0, "")


def test_ids_of_a_batch_are_known_afterwards(peer: Publisher, stream: str) -> None:
    assert outcome(peer, stream, [f"{ID}a"], [f"{ID}b"]) == (0, "")
    answer = json.loads(peer.publish(f"{stream.lower()}.1", b"", b"Nats-Msg-Id: a"))
    assert (answer["seq"], answer["duplicate"]) == (1, True)
    assert peer.refusal(f"{stream.lower()}.1", b"", b"Nats-Expected-Last-Msg-Id: b") == (0, "")


def test_refused_batch_leaves_no_ids(peer: Publisher, stream: str) -> None:
    assert outcome(peer, stream, [f"{ID}a"], ["Nats-Expected-Stream: X"])[0] == 10060
    assert outcome(peer, stream, [f"{ID}a"], []) == (0, "")


def test_rollup_of_all_replaces_what_was_there(peer: Publisher, stream: str) -> None:
    for _ in range(3):
        peer.publish(f"{stream.lower()}.0")
    assert outcome(peer, stream, ["Nats-Rollup: all"], []) == (0, "")
    assert peer.sequences(stream) == [4, 5]


@pytest.mark.parametrize(
    ("limit", "messages", "text"),
    [
        ({"max_msgs": 2}, 3, "maximum messages exceeded"),
        ({"max_msgs": 3}, 3, ""),
        ({"max_bytes": 100}, 3, "maximum bytes exceeded"),
        (
            {"max_msgs_per_subject": 1, "discard_new_per_subject": True},
            2,
            "maximum messages per subject exceeded",
        ),
    ],
)
def test_limits_hold_for_the_whole_batch(
    peer: Publisher, limit: dict[str, Any], messages: int, text: str
) -> None:
    name = peer.create(allow_atomic=True, discard="new", **limit)
    keys = {f"k{number}": "same" for number in range(1, messages + 1)}
    assert outcome(peer, name, *([[]] * messages), **keys) == ((10077, text) if text else (0, ""))
    assert peer.api(f"STREAM.INFO.{name}")["state"]["messages"] == (0 if text else messages)


def test_counters_add_up_inside_a_batch(peer: Publisher) -> None:
    name = peer.create(allow_atomic=True, allow_msg_counter=True)
    subject = f"{name.lower()}.1"
    peer.publish(subject, b"", b"Nats-Incr: 10")
    for number in (1, 2):
        assert peer.publish(subject, b"", part(number, f"Nats-Incr: {number}")) == b""
    answer = json.loads(peer.publish(subject, b"", part(3, "Nats-Incr: 3", commit="1")))
    assert answer == {"stream": name, "seq": 4, "batch": "b", "count": 3}
    assert [stored(peer, name, seq)[2] for seq in (2, 3, 4)] == [
        b'{"val":"11"}',
        b'{"val":"13"}',
        b'{"val":"16"}',
    ]
    assert peer.refusal(subject, b"", part(1, commit="1"))[0] == 10169


def test_many_batches_are_refused_with_429(peer: Publisher, stream: str) -> None:
    for number in range(50):
        assert add(peer, stream, 1, batch=f"b{number}") == b""
    answer = json.loads(add(peer, stream, 1, batch="more"))
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (429, 10210)
    peer.publish(f"{stream.lower()}.1", b"", part(2, batch="b0", commit="1"))
    assert add(peer, stream, 1, batch="more") == b""


def test_batch_of_a_thousand_messages(peer: Publisher, stream: str) -> None:
    for number in range(1, 1000):
        peer.client.send(_unanswered(stream, number))
    answer = json.loads(peer.publish(f"{stream.lower()}.1", b"", part(1000, commit="1")))
    assert (answer["seq"], answer["count"]) == (1000, 1000)
    for number in range(1, 1001):
        peer.client.send(_unanswered(stream, number))
    refusal = peer.refusal(f"{stream.lower()}.1", b"", part(1001, commit="1"))
    assert refusal == (10199, "atomic publish batch is too large: 1000")


def _unanswered(stream: str, number: int) -> bytes:
    block = b"NATS/1.0\r\n%s\r\n\r\n" % part(number)
    return b"HPUB %s.1 %d %d\r\n%s\r\n" % (stream.lower().encode(), len(block), len(block), block)


def test_switching_batches_off_forgets_them(peer: Publisher, stream: str) -> None:
    add(peer, stream, 1)
    peer.update(stream, allow_atomic=False)
    assert peer.refusal(f"{stream.lower()}.1", b"", part(2, commit="1"))[0] == 10174
    peer.update(stream, allow_atomic=True)
    assert peer.refusal(f"{stream.lower()}.1", b"", part(2, commit="1")) == INCOMPLETE


def test_limits_and_timeout_are_those_of_the_configuration(
    shared_kind: str, tmp_path: Path
) -> None:
    limits = """
    jetstream { store_dir: "STORE/limits", limits { batch {
      max_msgs: 2, max_inflight_per_stream: 1
    } } }
    """
    timeout = 'jetstream { store_dir: "STORE/timeout", limits { batch { timeout: "200ms" } } }'
    with running(shared_kind, tmp_path, timeout) as server:
        peer = Publisher(server)
        name = peer.create(allow_atomic=True)
        peer.client.send(f"SUB $JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{name} 9\r\n")
        add(peer, name, 1)
        line, _, payload = peer.client.read_message()
        assert "BATCH_ABANDONED" in line
        assert json.loads(payload)["reason"] == "timeout"
        assert peer.refusal(f"{name.lower()}.1", b"", part(2)) == INCOMPLETE
        peer.close()
    with running(shared_kind, tmp_path, limits) as server:
        peer = Publisher(server)
        name = peer.create(allow_atomic=True)
        peer.client.send(f"SUB $JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{name} 9\r\n")
        add(peer, name, 1)
        assert json.loads(add(peer, name, 1, batch="c"))["error"]["err_code"] == 10210
        add(peer, name, 2)
        peer.send(f"{name.lower()}.1", b"", part(3, commit="1"))
        found = {peer.client.read_message()[2], peer.client.read_message()[2]}
        assert any(b'"large"' in one for one in found)
        assert any(b"10199" in one for one in found)
        peer.close()
