"""Pull requests: who gets which message, and which status says that there is none."""

from __future__ import annotations

import pytest
from consumer_kit import MS, SECOND, Client, World

from tradewind.consumer.consumer_document import consumer_document

PENDING = {"Nats-Pending-Messages", "Nats-Pending-Bytes"}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    client = Client(world)
    client.subscribe("inbox")
    return client


def test_a_request_gets_the_next_message_with_its_ack_subject(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b")
    client.pull(consumer)
    (frame,) = client.take()
    assert frame.subject == "a"
    assert frame.payload == b"x"
    assert frame.numbers == (1, 1, 1, 1)
    time_ns = world.server.clock.wall_ns()
    assert frame.reply == f"$JS.ACK.S.C.1.1.1.{time_ns}.1"


def test_an_ack_moves_the_floor(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "a", "a")
    client.pull(consumer, batch=3)
    frames = client.take()
    client.ack(frames[1], b"+ACK")
    info = consumer_document(consumer)
    assert (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) == (0, 0)
    assert info.num_ack_pending == 2
    client.ack(frames[0])
    info = consumer_document(consumer)
    assert (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) == (2, 2)


def test_an_ack_with_a_reply_is_answered_empty(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a")
    client.pull(consumer)
    (frame,) = client.take()
    client.ack(frame, b"", "inbox")
    (answer,) = client.take()
    assert (answer.header, answer.payload) == (b"", b"")


def test_a_waiting_request_gets_a_message_when_it_comes(world: World, client: Client) -> None:
    consumer = world.consumer()
    client.pull(consumer)
    assert client.take() == []
    assert consumer_document(consumer).num_waiting == 1
    world.store_messages("a")
    assert [frame.subject for frame in client.take()] == ["a"]
    assert consumer_document(consumer).num_waiting == 0


def test_no_wait_without_messages_is_refused(world: World, client: Client) -> None:
    client.pull(world.consumer(), batch=1, no_wait=True)
    (frame,) = client.take()
    assert frame.header == b"NATS/1.0 404 No Messages\r\n\r\n"


def test_no_wait_ends_with_the_stream(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b")
    client.pull(consumer, batch=5, no_wait=True)
    assert [frame.subject for frame in client.take()][:2] == ["a", "b"]
    assert consumer_document(consumer).num_waiting == 0


def test_a_request_expires_with_what_it_did_not_get(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a")
    client.pull(consumer, batch=3, expires=2 * SECOND)
    assert len(client.take()) == 1
    world.server.advance(1.9)
    assert client.take() == []
    world.server.advance(0.2)
    (frame,) = client.take()
    assert frame.header == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2\r\nNats-Pending-Bytes: 0\r\n\r\n"
    )


def test_requests_share_messages_in_turn(world: World) -> None:
    consumer = world.consumer()
    clients = [Client(world), Client(world)]
    for number, client in enumerate(clients):
        client.subscribe(f"inbox{number}")
        client.pull(consumer, f"inbox{number}", batch=2)
    world.store_messages("a", "b", "c", "d")
    assert [[frame.subject for frame in client.take()] for client in clients] == [
        ["a", "c"],
        ["b", "d"],
    ]


def test_a_request_whose_receiver_is_gone_gets_nothing(world: World, client: Client) -> None:
    consumer = world.consumer()
    client.pull(consumer, "nobody", batch=10)
    client.pull(consumer)
    world.store_messages("a")
    assert [frame.numbers for frame in client.take()] == [(1, 1, 1, 0)]


def test_what_is_not_durable_is_not_sent(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.durable_seq = 0
    client.pull(consumer, batch=1, no_wait=True)
    assert client.take()[0].status == "404 No Messages"
    world.store_messages("a")
    client.pull(consumer, batch=1, no_wait=True)
    assert client.take() == []
    world.durable_seq = 1
    world.wake()
    assert [frame.subject for frame in client.take()] == ["a"]


def test_messages_come_again_when_the_ack_wait_is_over(world: World, client: Client) -> None:
    consumer = world.consumer(ack_wait=SECOND)
    world.store_messages("a", "b")
    client.pull(consumer, batch=4)
    assert len(client.take()) == 2
    world.server.advance(1.1)
    assert [frame.numbers for frame in client.take()] == [(2, 1, 3, 0), (2, 2, 4, 0)]
    assert consumer_document(consumer).num_redelivered == 2


def test_max_ack_pending_stalls_until_an_ack(world: World, client: Client) -> None:
    consumer = world.consumer(max_ack_pending=2)
    world.store_messages("a", "b", "c")
    client.pull(consumer, batch=3)
    frames = client.take()
    assert len(frames) == 2
    client.ack(frames[0])
    assert [frame.subject for frame in client.take()] == ["c"]


def test_max_bytes_ends_a_request(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b", payload=b"x" * 100)
    client.pull(consumer, batch=5, max_bytes=200)
    frames = client.take()
    assert [frame.status for frame in frames] == ["", "409 Message Size Exceeds MaxBytes"]
    size = 1 + len(frames[0].reply) + 100
    assert frames[1].lines == {
        "Nats-Pending-Messages": "4",
        "Nats-Pending-Bytes": str(200 - size),
    }


def test_a_full_batch_says_how_many_bytes_are_left(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a")
    client.pull(consumer, batch=1, max_bytes=1000)
    frames = client.take()
    assert frames[1].status == "409 Batch Completed"
    assert frames[1].lines["Nats-Pending-Messages"] == "0"


def test_heartbeats_come_while_nothing_else_does(world: World, client: Client) -> None:
    consumer = world.consumer()
    client.pull(consumer, batch=1, expires=SECOND, idle_heartbeat=400 * MS)
    world.server.advance(0.5)
    (frame,) = client.take()
    assert frame.header == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\nNats-Last-Stream: 0\r\n\r\n"
    )
    world.server.advance(0.6)
    assert [frame.status for frame in client.take()] == [
        "100 Idle Heartbeat",
        "408 Request Timeout",
    ]


@pytest.mark.parametrize(
    ("config", "request_fields", "status"),
    [
        ({"max_batch": 5}, {"batch": 6}, "409 Exceeded MaxRequestBatch of 5"),
        (
            {"max_expires": SECOND},
            {"batch": 1, "expires": 2 * SECOND},
            "409 Exceeded MaxRequestExpires of 1s",
        ),
        ({"max_bytes": 1000}, {"max_bytes": 2000}, "409 Exceeded MaxRequestMaxBytes of 1000"),
        (
            {},
            {"idle_heartbeat": SECOND, "expires": SECOND},
            "400 Bad Request - heartbeat value too large",
        ),
        ({}, {"priority": 11}, "400 Bad Request - Priority must be between 0 and 9"),
        ({}, {"id": "x"}, "400 Bad Request - Not a Pinned Client Priority consumer"),
        ({}, {"min_pending": 3}, "400 Bad Request - Not a Overflow Priority consumer"),
        (
            {},
            {"batch": "x"},
            (
                "400 Bad Request - json: cannot unmarshal string into Go struct field .batch"
                " of type int"
            ),
        ),
    ],
)
def test_a_request_beyond_the_limits_is_refused(
    world: World,
    client: Client,
    config: dict[str, object],
    request_fields: dict[str, object],
    status: str,
) -> None:
    client.pull(world.consumer(**config), **request_fields)
    assert [frame.status for frame in client.take()] == [status]


def test_too_many_requests_are_refused_unless_they_have_heartbeats(
    world: World, client: Client
) -> None:
    consumer = world.consumer(max_waiting=1)
    client.pull(consumer)
    client.pull(consumer)
    assert [frame.status for frame in client.take()] == ["409 Exceeded MaxWaiting"]
    client.pull(consumer, expires=SECOND, idle_heartbeat=100 * MS)
    assert client.take() == []


def test_a_deleted_consumer_tells_who_waits(world: World, client: Client) -> None:
    consumer = world.consumer()
    client.pull(consumer)
    consumer.close(b"409 Consumer Deleted")
    world.server.run_until_idle()
    assert [frame.header for frame in client.take()] == [b"NATS/1.0 409 Consumer Deleted\r\n\r\n"]
    client.pull(consumer)
    assert [frame.status for frame in client.take()] == ["503"]


def test_a_long_replay_is_cut_into_turns(world: World, client: Client) -> None:
    consumer = world.consumer(ack_policy="none")
    world.store_messages(*(["a"] * 2500))
    client.pull(consumer, batch=2500)
    assert len(client.take()) == 2500
    assert world.more_turns == 2


def test_a_receiver_that_does_not_read_is_given_time(world: World, client: Client) -> None:
    consumer = world.consumer(ack_policy="none")
    world.store_messages(*(["a"] * 300), payload=b"x" * 100_000)
    client.connection.stop_reading()
    client.pull(consumer, batch=300)
    world.server.advance(0.05)
    assert consumer.delivery.waits_for == "receiver"
    assert consumer_document(consumer).delivered.consumer_seq < 20
    client.connection.resume_reading()
    world.server.advance(1)
    assert len(client.take()) == 300
