"""Whoever has an acknowledgement finds what it says, whichever way it is asked for."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator

import pytest

from conformance.helpers_publish import Publisher
from harness import ServerProcess

COUNT = 100


@pytest.fixture
def peer(js_server: ServerProcess) -> Iterator[Publisher]:
    publisher = Publisher(js_server)
    yield publisher
    publisher.close()


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def publish(peer: Publisher, subject: str, payload: bytes, header: bytes = b"") -> int:
    """The sequence that was acknowledged."""
    answer = json.loads(peer.publish(subject, payload, header))
    assert "error" not in answer, answer
    return int(answer["seq"])


def stored(peer: Publisher, name: str, request: dict[str, object]) -> bytes | None:
    """The payload that MSG.GET gives, None if there is none."""
    answer = peer.api(f"STREAM.MSG.GET.{name}", request)
    return base64.b64decode(answer["message"]["data"]) if "message" in answer else None


def by_sequence(peer: Publisher, name: str, subject: str, seq: int) -> bytes | None:
    return stored(peer, name, {"seq": seq})


def by_subject(peer: Publisher, name: str, subject: str, seq: int) -> bytes | None:
    return stored(peer, name, {"last_by_subj": subject})


def directly(peer: Publisher, name: str, subject: str, seq: int) -> bytes | None:
    found = peer.answers(f"$JS.API.DIRECT.GET.{name}", b'{"seq":%d}' % seq)[0]
    return found[-1].encode() if f"Nats-Sequence: {seq}" in found else None


def directly_by_subject(peer: Publisher, name: str, subject: str, seq: int) -> bytes | None:
    found = peer.answers(f"$JS.API.DIRECT.GET.{name}.{subject}")[0]
    return found[-1].encode() if f"Nats-Sequence: {seq}" in found else None


def pulled(peer: Publisher, name: str, subject: str, seq: int) -> bytes | None:
    call = f"$JS.API.CONSUMER.MSG.NEXT.{name}.C"
    found = peer.answers(call, b'{"batch":1,"no_wait":true}')[0]
    return found[-1].encode() if len(found) == 1 else None


READERS = (by_sequence, by_subject, directly, directly_by_subject, pulled)
Reader = Callable[[Publisher, str, str, int], bytes | None]


def with_consumer(peer: Publisher, **config: object) -> str:
    """A stream that can be read in every way, with a consumer C that acknowledges nothing."""
    name = peer.create(allow_direct=True, **config)
    consumer = {"durable_name": "C", "ack_policy": "none", "deliver_policy": "all"}
    body = {"stream_name": name, "config": consumer}
    assert "error" not in peer.api(f"CONSUMER.CREATE.{name}.C", body)
    return name


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_message_is_there_as_soon_as_it_is_acknowledged(
    peer: Publisher, storage: str, read: Reader
) -> None:
    name = with_consumer(peer, storage=storage)
    for number in range(1, COUNT + 1):
        subject = f"{name.lower()}.{number % 3}"
        seq = publish(peer, subject, b"%d" % number)
        assert (seq, read(peer, name, subject, seq)) == (number, b"%d" % number)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_copy_in_another_stream_is_there_as_soon_as_the_message_is_acknowledged(
    peer: Publisher, storage: str, read: Reader
) -> None:
    second = with_consumer(peer, storage=storage)
    first = peer.create(republish={"src": ">", "dest": f"{second.lower()}.>"})
    for number in range(1, COUNT + 1):
        subject = f"{first.lower()}.{number % 3}"
        assert publish(peer, subject, b"%d" % number) == number
        copy = f"{second.lower()}.{subject}"
        assert read(peer, second, copy, number) == b"%d" % number


def test_infos_count_what_was_acknowledged(peer: Publisher, storage: str) -> None:
    name = with_consumer(peer, storage=storage)
    for number in range(1, COUNT + 1):
        publish(peer, f"{name.lower()}.x", b"x")
        state = peer.api(f"STREAM.INFO.{name}")["state"]
        assert (state["messages"], state["last_seq"]) == (number, number)
        assert peer.api(f"CONSUMER.INFO.{name}.C")["num_pending"] == number


def test_infos_of_another_stream_count_the_copy(peer: Publisher, storage: str) -> None:
    second = with_consumer(peer, storage=storage)
    first = peer.create(republish={"src": ">", "dest": f"{second.lower()}.>"})
    for number in range(1, COUNT + 1):
        publish(peer, f"{first.lower()}.x", b"x")
        state = peer.api(f"STREAM.INFO.{second}")["state"]
        assert (state["messages"], state["last_seq"]) == (number, number)
        assert peer.api(f"CONSUMER.INFO.{second}.C")["num_pending"] == number


def test_what_a_message_replaces_is_gone_when_it_is_acknowledged(
    peer: Publisher, storage: str
) -> None:
    name = peer.create(storage=storage, max_msgs_per_subject=1)
    subject = f"{name.lower()}.x"
    for number in range(1, COUNT + 1):
        assert publish(peer, subject, b"x") == number
        assert stored(peer, name, {"seq": number - 1} if number > 1 else {"seq": 999}) is None
        assert peer.sequences(name) == [number]


def test_what_a_rollup_replaces_is_gone_when_it_is_acknowledged(
    peer: Publisher, storage: str
) -> None:
    name = peer.create(storage=storage, allow_rollup_hdrs=True)
    for number in range(1, COUNT, 2):
        publish(peer, f"{name.lower()}.x", b"x")
        assert publish(peer, f"{name.lower()}.y", b"y", b"Nats-Rollup: all") == number + 1
        assert peer.sequences(name) == [number + 1]


def test_id_is_known_when_its_message_is_acknowledged(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage)
    subject = f"{name.lower()}.x"
    for number in range(1, COUNT + 1):
        header = b"Nats-Msg-Id: %d" % number
        assert publish(peer, subject, b"x", header) == number
        again = json.loads(peer.publish(subject, b"x", header))
        assert (again["seq"], again["duplicate"]) == (number, True)


def test_expected_sequence_is_that_of_the_last_acknowledgement(
    peer: Publisher, storage: str
) -> None:
    name = peer.create(storage=storage)
    for number in range(COUNT):
        header = b"Nats-Expected-Last-Sequence: %d" % number
        assert publish(peer, f"{name.lower()}.x", b"x", header) == number + 1
