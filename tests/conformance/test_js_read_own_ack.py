"""Whoever has an acknowledgement finds what it says, whichever way it is asked for.

nats-server stores copies in other streams and wakes consumers beside the acknowledgement: there
they may come a moment later, which a busy machine shows. Ours must have them at the first look.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial

import pytest

from conformance.helpers_publish import Publisher
from harness import ServerProcess

COUNT = 100


@pytest.fixture
def looks(js_server: ServerProcess) -> int:
    """How often one may look for what comes beside an acknowledgement."""
    return 1 if js_server.kind == "tradewind" else 100_000


def first_found(looks: int, look: Callable[[], object], wanted: object) -> object:
    """What was seen last, once it is what is wanted or after so many looks."""
    for _ in range(looks - 1):
        if (seen := look()) == wanted:
            return seen
    return look()


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
    return None if found[0].startswith("NATS/1.0 ") else found[-1].encode()


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
    peer: Publisher, storage: str, read: Reader, looks: int
) -> None:
    name = with_consumer(peer, storage=storage)
    for number in range(1, COUNT + 1):
        subject = f"{name.lower()}.{number % 3}"
        assert publish(peer, subject, b"%d" % number) == number
        found = partial(read, peer, name, subject, number)
        times = looks if read is pulled else 1
        assert first_found(times, found, b"%d" % number) == b"%d" % number


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_copy_in_another_stream_is_there_as_soon_as_the_message_is_acknowledged(
    peer: Publisher, storage: str, read: Reader, looks: int
) -> None:
    second = with_consumer(peer, storage=storage)
    first = peer.create(republish={"src": ">", "dest": f"{second.lower()}.>"})
    for number in range(1, COUNT + 1):
        subject = f"{first.lower()}.{number % 3}"
        assert publish(peer, subject, b"%d" % number) == number
        copy = f"{second.lower()}.{subject}"
        found = partial(read, peer, second, copy, number)
        assert first_found(looks, found, b"%d" % number) == b"%d" % number


def counts(peer: Publisher, name: str) -> tuple[int, int, int]:
    """Messages, last sequence, and how many are left for the consumer."""
    state = peer.api(f"STREAM.INFO.{name}")["state"]
    pending = peer.api(f"CONSUMER.INFO.{name}.C")["num_pending"]
    return state["messages"], state["last_seq"], pending


def test_infos_count_what_was_acknowledged(peer: Publisher, storage: str, looks: int) -> None:
    name = with_consumer(peer, storage=storage)
    for number in range(1, COUNT + 1):
        publish(peer, f"{name.lower()}.x", b"x")
        wanted = (number, number, number)
        assert first_found(looks, partial(counts, peer, name), wanted) == wanted


def test_infos_of_another_stream_count_the_copy(peer: Publisher, storage: str, looks: int) -> None:
    second = with_consumer(peer, storage=storage)
    first = peer.create(republish={"src": ">", "dest": f"{second.lower()}.>"})
    for number in range(1, COUNT + 1):
        publish(peer, f"{first.lower()}.x", b"x")
        wanted = (number, number, number)
        assert first_found(looks, partial(counts, peer, second), wanted) == wanted


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


KEY_READS: dict[str, tuple[str, dict[str, object]]] = {
    "last": ("STREAM.MSG.GET", {"last_by_subj": "KEY"}),
    "next": ("STREAM.MSG.GET", {"next_by_subj": "KEY", "seq": 1}),
    "direct": ("DIRECT.GET", {"last_by_subj": "KEY"}),
    "direct next": ("DIRECT.GET", {"next_by_subj": "KEY", "seq": 1}),
}


def is_not_found(answer: bytes) -> bool:
    return answer.startswith(b"NATS/1.0 404") or b'"code":404' in answer


@pytest.mark.parametrize("way", KEY_READS)
@pytest.mark.parametrize("rollup", [False, True], ids=["limit", "rollup"])
def test_a_subject_that_is_being_replaced_is_never_empty(
    peer: Publisher, storage: str, way: str, rollup: bool
) -> None:
    limit = {"allow_rollup_hdrs": True} if rollup else {"max_msgs_per_subject": 1}
    name = peer.create(storage=storage, allow_direct=True, **limit)
    subject = f"{name.lower()}.key"
    publish(peer, subject, b"x")
    call, query = KEY_READS[way]
    body = json.dumps(query).replace("KEY", subject).encode()
    for _ in range(COUNT):
        # Neither waits for the other, so the read finds a message that is being replaced.
        peer.send(subject, b"x", b"Nats-Rollup: sub" if rollup else b"")
        peer.send(f"$JS.API.{call}.{name}", body)
        answers = [b"%b%b" % peer.client.read_message()[1:] for _ in range(2)]
        assert not [answer for answer in answers if is_not_found(answer)], answers
