"""Pull requests: who gets which message, and which status says that there is none."""

from __future__ import annotations

import pytest

from consumer_kit import MS, SECOND, Client, World
from tradewind.consumer.consumer_document import consumer_document
from tradewind.consumer.pull_requests import RefusedRequestError, decode_pull

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


PLAIN = [
    b'{"batch":1}',
    b'{"batch":1,"expires":5000000000}',
    b'{"expires":5000000000,"batch":250}',
    b'{"batch": 1, "expires": 5000000000}',
    b'{"batch":999999999999999999,"expires":999999999999999999}',
]
NOT_PLAIN = [
    b"",
    b"1",
    b"{}",
    b"{",
    b'{"batch":1',
    b'{"batch":1,',
    b'{"batch":1,}',
    b'{"batch":}',
    b'{"batch":0}',
    b'{"batch":01}',
    b'{"batch":-1}',
    b'{"batch":1.5}',
    b'{"batch":1e3}',
    b'{"batch":"1"}',
    b'{"batch":1}x',
    b'{"batch":1} ',
    b'{"Batch":1}',
    b'{"batch":1,"batch":2}',
    b'{"expires":5}',
    b'{"expires":5,"expires":6,"batch":1}',
    b'{"batch":1,"no_wait":true}',
    b'{"batch":1,"max_bytes":7}',
    b'{"batch":9999999999999999999}',
    b'{"batch":1,"expires":5000000000,"idle_heartbeat":1}',
]


@pytest.mark.parametrize("payload", PLAIN)
def test_a_plain_request_means_what_its_json_says(world: World, payload: bytes) -> None:
    delivery = world.consumer().delivery
    assert delivery.add_plain_request(b"inbox", payload)
    request, has_group = decode_pull(b"", payload)
    assert has_group
    assert delivery.pulls is not None
    due_ns = delivery.pulls.due_ns
    assert due_ns == (world.turn.monotonic_ns + request.expires if request.expires else 0)
    client = Client(world)
    client.subscribe("inbox")  # without a receiver it would be swept
    assert delivery.sweep() == request.batch
    assert type(request)(batch=request.batch, expires=request.expires) == request


@pytest.mark.parametrize("payload", NOT_PLAIN)
def test_any_other_request_is_left_to_those_who_can_say_what_is_wrong(
    world: World, client: Client, payload: bytes
) -> None:
    consumer = world.consumer()
    assert not consumer.delivery.add_plain_request(b"inbox", payload)
    assert consumer.delivery.pulls is not None
    assert consumer.delivery.pulls.count == 0
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", payload, "inbox")
    try:
        decode_pull(b"", payload)
        is_refused = False
    except RefusedRequestError:
        is_refused = True
    codes = [frame.status[:3] for frame in client.take()]
    assert (codes == ["400"]) == is_refused


def test_a_plain_request_obeys_the_limits_of_the_consumer(world: World, client: Client) -> None:
    consumer = world.consumer(max_batch=5, max_waiting=1)
    client.pull(consumer, batch=6)
    assert [frame.status for frame in client.take()] == ["409 Exceeded MaxRequestBatch of 5"]
    client.pull(consumer, batch=5, expires=SECOND)
    client.pull(consumer, batch=5, expires=SECOND)
    assert [frame.status for frame in client.take()] == ["409 Exceeded MaxWaiting"]
    assert consumer.delivery.pulls is not None
    assert consumer.delivery.pulls.count == 1
