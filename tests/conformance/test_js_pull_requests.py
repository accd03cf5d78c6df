"""Pull requests: batches, expiry, limits, heartbeats, and the exact bytes of every status."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from client_frames import Frame
from conformance.helpers_consumer import MS, SECOND, Peer, counts, floors
from conformance.helpers_js import ApiClient
from harness import ServerProcess


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    peer = Peer(js_server, js)
    peer.subscribe("inbox")
    yield peer
    peer.raw.close()


def status(peer: Peer) -> Frame:
    frame = peer.next()
    assert (frame.reply, frame.payload) == ("", b"")
    return frame


def test_a_request_without_body_gets_one_message(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer()
    peer.pull("inbox")
    frame = peer.next()
    assert (frame.subject, frame.sid, frame.payload) == ("s.a", "1", b"x")
    assert frame.reply.startswith("$JS.ACK.S.C.1.1.1.")
    assert frame.numbers == (1, 1, 1, 1)
    assert peer.nothing_came()


def test_a_number_as_body_is_the_size_of_the_batch(peer: Peer) -> None:
    peer.stream("a", "b", "c")
    peer.consumer()
    peer.pull("inbox", body=b"2")
    assert [frame.numbers for frame in peer.take(2)] == [(1, 1, 1, 2), (1, 2, 2, 1)]
    assert peer.nothing_came()


def test_names_in_other_letters_and_unknown_ones_are_read(peer: Peer) -> None:
    peer.stream("a", "b", "c")
    peer.consumer()
    peer.pull("inbox", body=b'{"BATCH":2,"no_such_name":[1.5,{"batch":3}]}')
    assert [frame.numbers for frame in peer.take(2)] == [(1, 1, 1, 2), (1, 2, 2, 1)]
    assert peer.nothing_came()


def test_any_other_text_asks_for_one_message(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer()
    peer.pull("inbox", body=b"many")
    assert peer.next().subject == "s.a"
    assert peer.nothing_came()


def test_a_waiting_request_gets_what_is_stored_later(peer: Peer) -> None:
    peer.stream()
    peer.consumer()
    peer.pull("inbox", batch=2)
    peer.wait_info(lambda info: info["num_waiting"] == 1)
    peer.store("a")
    assert peer.next().subject == "s.a"
    peer.wait_info(lambda info: info["num_waiting"] == 1)
    peer.store("b")
    assert peer.next().subject == "s.b"
    peer.wait_info(lambda info: info["num_waiting"] == 0)


def test_no_wait_without_messages(peer: Peer) -> None:
    peer.stream()
    peer.consumer()
    peer.pull("inbox", batch=1, no_wait=True)
    assert status(peer).header == b"NATS/1.0 404 No Messages\r\n\r\n"


def test_no_wait_with_an_expiry_that_is_over_has_waited(peer: Peer) -> None:
    peer.stream()
    peer.consumer()
    peer.pull("inbox", batch=2, no_wait=True, expires=-1)
    assert status(peer).header.split(b"\r\n")[:2] == [
        b"NATS/1.0 408 Request Timeout",
        b"Nats-Pending-Messages: 2",
    ]


def test_no_wait_with_too_few_messages_ends_with_no_messages(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer()
    peer.pull("inbox", batch=5, no_wait=True)
    assert [frame.subject for frame in peer.take(2)] == ["s.a", "s.b"]
    assert status(peer).header == b"NATS/1.0 404 No Messages\r\n\r\n"


def test_no_wait_with_expiry_waits_for_the_first_message(peer: Peer) -> None:
    peer.stream()
    peer.consumer()
    peer.pull("inbox", batch=5, no_wait=True, expires=60 * SECOND)
    peer.wait_info(lambda info: info["num_waiting"] == 1)
    peer.store("a")
    assert peer.next().subject == "s.a"
    assert status(peer).header == b"NATS/1.0 404 No Messages\r\n\r\n"


def test_no_wait_behind_a_larger_request(peer: Peer) -> None:
    peer.stream()
    peer.consumer(max_ack_pending=1)
    peer.pull("inbox", batch=10)
    peer.store("a", "b")
    peer.next()
    peer.wait_counts((1, 0, 1))
    peer.pull("inbox", batch=1, no_wait=True)
    assert status(peer).header == b"NATS/1.0 408 Requests Pending\r\n\r\n"


def test_an_expired_request_says_what_it_did_not_get(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer()
    begin = time.monotonic()
    peer.pull("inbox", batch=3, max_bytes=100_000, expires=1000 * MS)
    frame = peer.next()
    left = 100_000 - len(frame.subject) - len(frame.reply) - 1
    assert status(peer).header == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2\r\n"
        b"Nats-Pending-Bytes: %d\r\n\r\n" % left
    )
    assert time.monotonic() - begin >= 1


def test_a_message_that_does_not_fit_ends_the_request(peer: Peer) -> None:
    peer.stream()
    peer.store("a", "b", payload=b"x" * 100)
    peer.consumer()
    peer.pull("inbox", batch=5, max_bytes=200)
    frame = peer.next()
    left = 200 - len(frame.subject) - len(frame.reply) - 100
    assert status(peer).header == (
        b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 4\r\n"
        b"Nats-Pending-Bytes: %d\r\n\r\n" % left
    )
    assert counts(peer.info()) == (1, 0, 1)


def test_a_full_batch_with_bytes_left(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer()
    peer.pull("inbox", batch=1, max_bytes=1000)
    frame = peer.next()
    left = 1000 - len(frame.subject) - len(frame.reply) - 1
    assert status(peer).header == (
        b"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\n"
        b"Nats-Pending-Bytes: %d\r\n\r\n" % left
    )


def test_heartbeats_of_a_waiting_request(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer()
    peer.fetch(1)
    begin = time.monotonic()
    peer.pull("inbox", batch=1, expires=60 * SECOND, idle_heartbeat=100 * MS)
    expected = (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    )
    assert [frame.header for frame in peer.take(2)] == [expected, expected]
    assert time.monotonic() - begin >= 0.2
    peer.store("b")
    while (frame := peer.next()).status:
        assert frame.header == expected
    assert frame.subject == "s.b"


@pytest.mark.parametrize(
    ("config", "body", "expected"),
    [
        ({"max_batch": 5}, b'{"batch":6}', "409 Exceeded MaxRequestBatch of 5"),
        ({"max_batch": 5}, b"6", "409 Exceeded MaxRequestBatch of 5"),
        (
            {"max_expires": 1_500_000_000},
            b'{"expires":2000000000}',
            "409 Exceeded MaxRequestExpires of 1.5s",
        ),
        ({"max_bytes": 1000}, b'{"max_bytes":2000}', "409 Exceeded MaxRequestMaxBytes of 1000"),
        (
            {},
            b'{"idle_heartbeat":600000000,"expires":1000000000}',
            "400 Bad Request - heartbeat value too large",
        ),
        ({}, b'{"priority":10}', "400 Bad Request - Priority must be between 0 and 9"),
        ({}, b'{"id":"x"}', "400 Bad Request - Not a Pinned Client Priority consumer"),
        ({}, b'{"min_pending":3}', "400 Bad Request - Not a Overflow Priority consumer"),
        (
            {},
            b"{bad",
            "400 Bad Request - invalid character 'b' looking for beginning of object key string",
        ),
        (
            {"priority_policy": "overflow", "priority_groups": ["g"]},
            b'{"batch":1}',
            "400 Bad Request - Priority Group missing",
        ),
        (
            {"priority_policy": "overflow", "priority_groups": ["g"]},
            b'{"batch":1,"group":"h"}',
            "400 Bad Request - Invalid Priority Group",
        ),
    ],
)
def test_a_request_that_is_refused(
    peer: Peer, config: dict[str, object], body: bytes, expected: str
) -> None:
    peer.stream("a")
    peer.consumer(**config)
    peer.pull("inbox", body=body)
    assert status(peer).header == f"NATS/1.0 {expected}\r\n\r\n".encode()


def test_unknown_members_of_a_request_are_ignored(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer()
    peer.pull("inbox", batch=1, future=True)
    assert peer.next().subject == "s.a"


def test_too_many_waiting_requests(peer: Peer) -> None:
    peer.stream()
    peer.consumer(max_waiting=2)
    for _ in range(3):
        peer.pull("inbox")
    assert status(peer).header == b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
    assert peer.info()["num_waiting"] == 2


def test_requests_are_served_in_turn(peer: Peer) -> None:
    peer.stream()
    peer.consumer()
    for inbox in ("one", "two"):
        peer.subscribe(inbox, inbox)
        peer.pull(inbox, batch=2)
    peer.wait_info(lambda info: info["num_waiting"] == 2)
    peer.store("a", "b", "c", "d")
    assert [(frame.sid, frame.subject) for frame in peer.take(4)] == [
        ("one", "s.a"),
        ("two", "s.b"),
        ("one", "s.c"),
        ("two", "s.d"),
    ]


def test_a_request_nobody_listens_to_is_dropped(peer: Peer) -> None:
    peer.stream()
    peer.consumer()
    peer.pull("nobody", batch=5)
    peer.pull("inbox")
    peer.wait_info(lambda info: info["num_waiting"] == 1)
    peer.store("a")
    assert peer.next().numbers == (1, 1, 1, 0)


def test_deleting_the_consumer_ends_requests(peer: Peer, js: ApiClient) -> None:
    peer.stream()
    peer.consumer()
    peer.pull("inbox", batch=3)
    peer.wait_info(lambda info: info["num_waiting"] == 1)
    js.done("CONSUMER.DELETE.S.C")
    assert status(peer).header == b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
    peer.pull("inbox")
    assert status(peer).status == "503"


def test_a_consumer_that_pushes_cannot_be_pulled_from(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(deliver_subject="elsewhere")
    peer.pull("inbox")
    assert status(peer).header == b"NATS/1.0 409 Consumer is push based\r\n\r\n"


def test_max_ack_pending_stalls_delivery_until_an_ack(peer: Peer) -> None:
    peer.stream("a", "b", "c")
    peer.consumer(max_ack_pending=2)
    peer.pull("inbox", batch=3)
    first, _ = peer.take(2)
    assert peer.nothing_came()
    peer.publish(first.reply)
    assert peer.next().numbers == (1, 3, 3, 0)


def test_redelivery_comes_before_new_messages_and_in_spite_of_max_ack_pending(peer: Peer) -> None:
    peer.stream("a", "b", "c")
    peer.consumer(max_ack_pending=2)
    first, second = peer.fetch(2)
    peer.publish(second.reply, b"-NAK")
    peer.publish(first.reply, b"-NAK")
    assert [frame.numbers[:3] for frame in peer.fetch(2)] == [(2, 2, 3), (2, 1, 4)]


def test_ack_none_moves_the_floor_with_every_message(peer: Peer) -> None:
    peer.stream("a", "b", "c")
    peer.consumer(ack_policy="none")
    assert len(peer.fetch(2)) == 2
    info = peer.info()
    assert floors(info) == ((2, 2), (2, 2))
    assert counts(info) == (0, 0, 1)


def test_a_paused_consumer_keeps_requests_waiting(peer: Peer, js: ApiClient) -> None:
    peer.stream("a")
    peer.consumer(pause_until="2099-01-01T00:00:00Z")
    peer.pull("inbox", batch=1, expires=300 * MS)
    assert status(peer).status == "408 Request Timeout"
    assert peer.info()["paused"] is True
    answer = js.done("CONSUMER.PAUSE.S.C")
    assert answer["paused"] is False
    peer.pull("inbox", batch=1)
    assert peer.next().subject == "s.a"
