"""Markers that take the place of the last message of a subject when it expires."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from typing import Any

import pytest

from conformance.helpers_publish import Publisher
from conformance.helpers_replicas import wait_for_last
from harness import RawClient, ServerProcess, wait_for

SECOND = 1_000_000_000


def marker(ttl: str) -> str:
    return f"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: {ttl}\r\nNats-Rollup: sub\r\n\r\n"


def last(peer: Publisher, name: str, key: str) -> tuple[int, str, bytes]:
    """Sequence, header block and payload of the last message; (0, "", b"") if there is none."""
    answer = peer.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": f"{name.lower()}.{key}"})
    if "error" in answer:
        return 0, "", b""
    message = answer["message"]
    header = b64decode(message.get("hdrs", "")).decode()
    return message["seq"], header, b64decode(message.get("data", ""))


def until_seq(peer: Publisher, name: str, key: str, seq: int) -> tuple[int, str, bytes]:
    """The last message of a subject as soon as it is this one; 0: as soon as there is none."""
    wait_for(lambda: last(peer, name, key)[0] == seq, lambda: last(peer, name, key))
    return last(peer, name, key)


def put(peer: Publisher, name: str, key: str, *header: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        peer.publish(f"{name.lower()}.{key}", b"x", "\r\n".join(header).encode())
    )
    return answer


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_expired_messages_leave_markers_that_expire_too(
    peer: Publisher, js_server: ServerProcess, storage: str
) -> None:
    name = peer.create(storage=storage, subject_delete_marker_ttl=1 * SECOND)
    config = peer.api(f"STREAM.INFO.{name}")["config"]
    assert config["allow_msg_ttl"]
    assert config["allow_rollup_hdrs"]
    # Whoever asks for the marker may come when it has expired; it is sent to a consumer at once.
    with RawClient(js_server.port).connect() as watcher:
        watcher.send(f"SUB watch.{name} 1\r\n")
        watcher.ping()
        request = {"stream_name": name, "config": {"name": "W", "deliver_subject": f"watch.{name}"}}
        assert "error" not in peer.api(f"CONSUMER.CREATE.{name}.W", request)
        put(peer, name, "kept")
        put(peer, name, "gone", "Nats-TTL: 1s")
        line, header, payload = [watcher.read_message() for _ in range(3)][2]
    assert line.startswith(f"HMSG {name.lower()}.gone 1 $JS.ACK.{name}.W.1.3.3.")
    assert (header.decode(), payload) == (marker("1s"), b"")
    until_seq(peer, name, "gone", 0)
    state = peer.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})["state"]
    assert state["subjects"] == {f"{name.lower()}.kept": 1}
    assert (state["messages"], state["last_seq"]) == (1, 3)


def test_age_leaves_one_marker_for_each_subject(peer: Publisher) -> None:
    name = peer.create(max_age=1 * SECOND, subject_delete_marker_ttl=90 * SECOND + SECOND // 2)
    for key in ("a", "b", "a"):  # all before the first one expires
        peer.send(f"{name.lower()}.{key}", b"x")
    for _ in range(3):
        peer.client.read_message()
    wait_for(lambda: {last(peer, name, key)[0] for key in "ab"} == {4, 5})
    assert {last(peer, name, key)[1] for key in "ab"} == {marker("1m30s")}
    wait_for(lambda: peer.api(f"STREAM.INFO.{name}")["state"]["messages"] == 2)


def test_only_the_last_message_of_a_subject_leaves_one(peer: Publisher) -> None:
    name = peer.create(subject_delete_marker_ttl=1 * SECOND)
    put(peer, name, "a")
    put(peer, name, "a", "Nats-TTL: 1s")
    assert until_seq(peer, name, "a", 1)[2] == b"x"
    assert peer.api(f"STREAM.INFO.{name}")["state"]["last_seq"] == 2


@pytest.mark.parametrize(
    ("header", "leaves_marker"),
    [
        ("Nats-Marker-Reason: Purge", False),
        ("KV-Operation: PURGE", False),
        ("KV-Operation: DEL", True),
        ("KV-Operation: PUR", True),
        ("Nats-Marker-Reason:", True),
    ],
)
def test_what_says_itself_that_something_is_gone_leaves_none(
    peer: Publisher, header: str, leaves_marker: bool
) -> None:
    name = peer.create(subject_delete_marker_ttl=1 * SECOND)
    put(peer, name, "a", header, "Nats-TTL: 1s")
    # A marker soon expires, its number remains.
    if leaves_marker:
        wait_for_last(peer, name, 2)
    until_seq(peer, name, "a", 0)
    assert peer.state(name)["last_seq"] == (2 if leaves_marker else 1)


def test_removals_and_limits_leave_none(peer: Publisher) -> None:
    name = peer.create(subject_delete_marker_ttl=60 * SECOND, max_msgs=2)
    for key in ("a", "b", "c", "d"):
        put(peer, name, key)
    peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 4})
    peer.api(f"STREAM.PURGE.{name}", {"filter": f"{name.lower()}.c"})
    state = peer.api(f"STREAM.INFO.{name}")["state"]
    assert (state["messages"], state["last_seq"]) == (0, 4)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1s", "A: b\r\nNats-TTL: 60"),
        ("59s", "A: b\r\nNats-TTL: 60"),
        ("60", "Nats-TTL: 60\r\nA: b"),
        ("2m", "Nats-TTL: 2m\r\nA: b"),
        ("never", "Nats-TTL: never\r\nA: b"),
    ],
)
def test_shorter_times_to_live_are_raised(peer: Publisher, given: str, stored: str) -> None:
    name = peer.create(subject_delete_marker_ttl=60 * SECOND)
    put(peer, name, "a", f"Nats-TTL: {given}", "A: b")
    assert last(peer, name, "a")[1] == f"NATS/1.0\r\n{stored}\r\n\r\n"


def test_they_stay_where_each_subject_has_one_message(peer: Publisher) -> None:
    name = peer.create(subject_delete_marker_ttl=60 * SECOND, max_msgs_per_subject=1)
    put(peer, name, "b", "Nats-TTL: 59s", "A: b")
    assert last(peer, name, "b")[1] == "NATS/1.0\r\nNats-TTL: 59s\r\nA: b\r\n\r\n"
    put(peer, name, "a", "Nats-TTL: 1s", "A: b")
    until_seq(peer, name, "a", 3)
    wait_for(lambda: peer.api(f"STREAM.INFO.{name}")["state"]["messages"] == 2)


def test_times_to_live_in_a_batch_are_raised(peer: Publisher) -> None:
    name = peer.create(subject_delete_marker_ttl=60 * SECOND, allow_atomic=True)
    batch = ("Nats-Batch-Id: b", "Nats-Batch-Sequence: 1", "Nats-Batch-Commit: 1")
    assert put(peer, name, "a", "Nats-TTL: 1s", *batch)["count"] == 1
    assert last(peer, name, "a")[1].endswith("Nats-Batch-Commit: 1\r\nNats-TTL: 60\r\n\r\n")


def test_markers_are_published_again_and_delivered(peer: Publisher) -> None:
    name = peer.create(
        subject_delete_marker_ttl=5 * SECOND,
        republish={"src": ">", "dest": "copies.>"},
        max_msgs_per_subject=1,
    )
    peer.client.send("SUB copies.> 9\r\n")
    peer.send(f"{name.lower()}.a", b"x", b"Nats-TTL: 1s")
    blocks = [peer.client.read_message()[1] for _ in range(3)]
    copies = [block for block in blocks if b"Nats-Sequence" in block]
    assert b"Nats-Marker-Reason: MaxAge\r\nNats-TTL: 5s\r\nNats-Rollup: sub" in copies[1]
    assert b"Nats-Sequence: 2\r\n" in copies[1]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {"subject_delete_marker_ttl": -1},
            "subject delete marker TTL must not be negative",
        ),
        (
            {"subject_delete_marker_ttl": SECOND - 1},
            "subject delete marker TTL must be at least 1 second",
        ),
    ],
)
def test_markers_that_cannot_be(peer: Publisher, config: dict[str, Any], text: str) -> None:
    error = peer.api("STREAM.CREATE.NOT", {"name": "NOT", **config})["error"]
    assert (error["err_code"], error["description"]) == (10052, text)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_sealed_stream_keeps_what_would_leave_a_marker_and_nothing_else(
    peer: Publisher, storage: str
) -> None:
    while True:
        name = peer.create(storage=storage, subject_delete_marker_ttl=1 * SECOND)
        begin = time.monotonic()
        for key in ("first", "twice", "twice", "other"):
            put(peer, name, key, "Nats-TTL: 1s")
        put(peer, name, "purged", "Nats-TTL: 2s", "KV-Operation: PURGE")
        peer.update(name, sealed=True)
        if time.monotonic() - begin < 1:
            break
        # It took so long that some may have expired before.
    until_seq(peer, name, "purged", 0)
    state = peer.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})["state"]
    subject = name.lower()
    assert state["subjects"] == {f"{subject}.{key}": 1 for key in ("first", "twice", "other")}
    assert (state["first_seq"], state["last_seq"]) == (1, 5)
