"""What a stream keeps, and what it does with messages on the way in."""

from __future__ import annotations

import pytest

from conformance.helpers_publish import Publisher


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fill(peer: Publisher, name: str, subjects: str, size: int = 1) -> list[str]:
    """Publish to these subjects, one per character; gives the texts of the refusals."""
    return [peer.refusal(f"{name.lower()}.{last}", b"x" * size)[1] for last in subjects]


def test_limit_on_messages_removes_the_oldest(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage, max_msgs=2)
    assert fill(peer, name, "1231") == [""] * 4
    assert peer.sequences(name) == [3, 4]


def test_limit_on_bytes_counts_what_each_storage_needs(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage)
    subject = f"{name.lower()}.1"
    peer.publish(subject, b"x" * 10)
    overhead = {"file": 30, "memory": 16}[storage]
    assert peer.state(name)["bytes"] == overhead + len(subject) + 10
    peer.publish(subject, b"x" * 10, b"A: b")
    with_header = {"file": 34, "memory": 16}[storage] + len(subject) + 18 + 10
    assert peer.state(name)["bytes"] == overhead + len(subject) + 10 + with_header


def test_message_larger_than_all_bytes_is_stored_and_gone(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage, max_bytes=200)
    assert fill(peer, name, "1", 300) == [""]
    state = peer.state(name)
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 2, 1)


def test_limit_per_subject_removes_the_oldest_of_the_subject(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage, max_msgs_per_subject=2)
    fill(peer, name, "112131")
    assert peer.sequences(name) == [3, 4, 5, 6]


def test_discard_new_refuses_unless_the_subject_is_replaced(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage, discard="new", max_msgs=2, max_msgs_per_subject=1)
    full = "maximum messages exceeded"
    assert fill(peer, name, "112233") == ["", "", "", "", full, full]
    assert peer.sequences(name) == [2, 4]


def test_discard_new_per_subject_refuses_but_lets_a_rollup_in(
    peer: Publisher, storage: str
) -> None:
    name = peer.create(
        storage=storage,
        discard="new",
        max_msgs_per_subject=1,
        discard_new_per_subject=True,
        allow_rollup_hdrs=True,
    )
    assert fill(peer, name, "112") == ["", "maximum messages per subject exceeded", ""]
    assert peer.refusal(f"{name.lower()}.1", b"", b"Nats-Rollup: sub") == (0, "")
    assert peer.sequences(name) == [2, 3]


def test_discard_new_by_bytes_also_when_the_subject_is_replaced(peer: Publisher) -> None:
    name = peer.create(discard="new", max_bytes=300, max_msgs_per_subject=1)
    full = "maximum bytes exceeded"
    assert fill(peer, name, "1", 150) == [""]
    assert fill(peer, name, "1", 100) == [""]  # smaller than what it replaces
    assert fill(peer, name, "1", 200) == [full]
    assert fill(peer, name, "2", 50) == [""]


def test_rollup_removes_what_is_older(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage, allow_rollup_hdrs=True)
    fill(peer, name, "1212")
    subject = f"{name.lower()}.1"
    wrong = peer.refusal(subject, b"", b"Nats-Rollup: other")
    assert wrong == (10111, 'rollup value invalid: "other"')
    assert peer.refusal(subject, b"", b"Nats-Rollup: SUB") == (0, "")
    assert peer.sequences(name) == [2, 4, 5]
    assert peer.refusal(subject, b"", b"Nats-Rollup: all") == (0, "")
    assert peer.sequences(name) == [6]
    assert peer.refusal(
        subject, b"", b"Nats-Rollup: sub\r\nNats-Expected-Last-Subject-Sequence: 5"
    ) == (10071, "wrong last sequence: 6")


def test_interest_without_consumers_numbers_and_keeps_nothing(
    peer: Publisher, storage: str
) -> None:
    name = peer.create(storage=storage, retention="interest")
    subject = f"{name.lower()}.1"
    assert b'"seq":1}' in peer.publish(subject, b"x")
    assert b'"seq":2}' in peer.publish(subject, b"x", b"Nats-Msg-Id: a")
    assert b'"seq":2,"duplicate": true}' in peer.publish(subject, b"x", b"Nats-Msg-Id: a")
    assert peer.refusal(subject, b"", b"Nats-Expected-Last-Sequence: 9") == (
        10071,
        "wrong last sequence: 2",
    )
    assert peer.refusal(subject, b"", b"Nats-Expected-Last-Msg-Id: a") == (0, "")
    state = peer.state(name)
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 4, 3)


def test_transform_is_applied_before_everything_else(peer: Publisher) -> None:
    name = peer.create(
        subjects=["in.*", "plain"],
        subject_transform={"src": "in.*", "dest": "out.{{wildcard(1)}}.x"},
    )
    peer.publish("in.1", b"x")
    peer.publish("plain", b"x")
    wrong = peer.refusal("in.1", b"", b"Nats-Expected-Last-Subject-Sequence: 0")
    assert wrong == (10071, "wrong last sequence: 1")
    assert peer.state(name)["subjects"] == {"out.1.x": 1, "plain": 1}


def test_republish_sends_a_copy_before_the_acknowledgement(peer: Publisher) -> None:
    name = peer.create(republish={"dest": "copy.>"})
    subject = f"{name.lower()}.1"
    peer.client.send("SUB copy.> 2\r\n")
    peer.send(subject, b"one", b"A: b")
    line, header, payload = peer.client.read_message()
    assert line.startswith(f"HMSG copy.{subject} 2 ")
    lines = header.decode().split("\r\n")
    assert lines[:5] == [
        "NATS/1.0",
        "A: b",
        f"Nats-Stream: {name}",
        f"Nats-Subject: {subject}",
        "Nats-Sequence: 1",
    ]
    assert lines[5].startswith("Nats-Time-Stamp: ")
    assert lines[6:] == ["Nats-Last-Sequence: 0", "", ""]
    assert payload == b"one"
    assert peer.client.read_message()[2].endswith(b'"seq":1}')
    peer.send(subject, b"two")
    assert peer.client.read_message()[1].endswith(b"\r\nNats-Last-Sequence: 1\r\n\r\n")
    assert peer.client.read_message()[2].endswith(b'"seq":2}')


def test_republish_of_headers_only_tells_the_size(peer: Publisher) -> None:
    name = peer.create(republish={"src": ">", "dest": "sizes.>", "headers_only": True})
    peer.client.send("SUB sizes.> 2\r\n")
    peer.send(f"{name.lower()}.1", b"four")
    _, header, payload = peer.client.read_message()
    assert header.endswith(b"\r\nNats-Last-Sequence: 0\r\nNats-Msg-Size: 4\r\n\r\n")
    assert payload == b""
    peer.client.read_message()


def test_new_limits_apply_at_once(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage)
    fill(peer, name, "121212")
    peer.update(name, max_msgs=4)
    assert peer.sequences(name) == [3, 4, 5, 6]
    peer.update(name, max_msgs_per_subject=1)
    assert peer.sequences(name) == [5, 6]
    peer.update(name, max_msgs=-1, max_msgs_per_subject=-1, discard="new", max_bytes=10)
    assert fill(peer, name, "1") == ["maximum bytes exceeded"]


def test_first_sequence(peer: Publisher, storage: str) -> None:
    name = peer.create(storage=storage, first_seq=100)
    state = peer.state(name)
    assert (state["first_seq"], state["last_seq"]) == (100, 99)
    assert b'"seq":100}' in peer.publish(f"{name.lower()}.1")


@pytest.mark.parametrize("purge", [{}, {"filter": "p.>"}, {"keep": 1}, {"seq": 1}])
def test_first_sequence_of_a_stream_without_messages(
    peer: Publisher, storage: str, purge: dict[str, object]
) -> None:
    """It is 0, and 1 once it was purged as a whole or somebody has asked for 1."""
    name = peer.create(storage=storage)
    assert peer.state(name)["first_seq"] == 0
    assert peer.api(f"STREAM.PURGE.{name}", purge)["purged"] == 0
    assert peer.state(name)["first_seq"] == (0 if purge else 1)
    asked = peer.create(storage=storage, first_seq=1)
    state = peer.state(asked)
    assert (state["first_seq"], state["last_seq"]) == (1, 0)
    for used in (name, asked):
        assert b'"seq":1}' in peer.publish(f"{used.lower()}.1")
        assert peer.state(used)["first_seq"] == 1


def test_wildcards_in_a_published_subject_are_ordinary_tokens(peer: Publisher) -> None:
    name = peer.create()
    prefix = name.lower()
    assert b'"seq":1}' in peer.publish(f"{prefix}.*")
    assert b'"seq":2}' in peer.publish(f"{prefix}.*.c")
    assert peer.publish(f"{prefix}..b").startswith(b"NATS/1.0 503\r\n")
    assert peer.state(name)["subjects"] == {f"{prefix}.*": 1, f"{prefix}.*.c": 1}
