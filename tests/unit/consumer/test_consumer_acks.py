"""Acknowledgements of every kind, redelivery, and what is kept of a consumer."""

from __future__ import annotations

import pytest

from consumer_kit import MS, SECOND, Client, Frame, World
from tradewind.consumer.consumer import ServerConsumer
from tradewind.consumer.consumer_document import consumer_document
from tradewind.store.format.ack_log import decode_with_trailer
from tradewind.store.format.consumer_file import encode_consumer_state


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    client = Client(world)
    client.subscribe("inbox")
    return client


def fetch(world: World, client: Client, consumer: ServerConsumer, count: int) -> list[Frame]:
    client.pull(consumer, batch=count, no_wait=True)
    return [frame for frame in client.take() if frame.reply]


def test_nak_delivers_at_once(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b")
    first, _ = fetch(world, client, consumer, 2)
    client.ack(first, b"-NAK")
    (again,) = fetch(world, client, consumer, 1)
    assert again.numbers == (2, 1, 3, 0)
    assert world.advisories == [
        ("nak", {"consumer_seq": 1, "stream_seq": 1, "deliveries": 1}),
    ]


@pytest.mark.parametrize("argument", [b'-NAK {"delay": 2000000000}', b"-NAK 2s", b"-NAK  2000ms"])
def test_nak_with_a_delay_delivers_later(world: World, client: Client, argument: bytes) -> None:
    consumer = world.consumer()
    world.store_messages("a")
    (frame,) = fetch(world, client, consumer, 1)
    client.ack(frame, argument)
    client.pull(consumer, expires=10 * SECOND)
    world.server.advance(1.9)
    assert client.take() == []
    world.server.advance(0.2)
    assert [frame.numbers for frame in client.take()] == [(2, 1, 2, 0)]


@pytest.mark.parametrize("argument", [b"-NAK soon", b"-NAK {bad", b"-NAK 5"])
def test_nak_with_a_bad_delay_delivers_at_once(
    world: World, client: Client, argument: bytes
) -> None:
    consumer = world.consumer()
    world.store_messages("a")
    (frame,) = fetch(world, client, consumer, 1)
    client.ack(frame, argument)
    assert len(fetch(world, client, consumer, 1)) == 1


def test_redelivery_comes_a_millisecond_after_the_wait(world: World, client: Client) -> None:
    consumer = world.consumer(ack_wait=SECOND)
    world.store_messages("a")
    client.pull(consumer, batch=2, expires=10 * SECOND)
    assert len(client.take()) == 1
    world.server.advance(1.000_999_999)
    assert client.take() == []
    world.server.advance(0.000_000_001)
    assert len(client.take()) == 1


def test_redelivery_comes_exactly_after_the_delay_of_a_nak(world: World, client: Client) -> None:
    consumer = world.consumer(ack_wait=SECOND)
    world.store_messages("a")
    (frame,) = fetch(world, client, consumer, 1)
    client.pull(consumer, expires=10 * SECOND)
    client.ack(frame, b'-NAK {"delay": 2000000000}')
    world.server.advance(1.999_999_999)
    assert client.take() == []
    world.server.advance(0.000_000_001)
    assert len(client.take()) == 1


def test_work_in_progress_puts_the_redelivery_off(world: World, client: Client) -> None:
    consumer = world.consumer(ack_wait=SECOND)
    world.store_messages("a")
    (frame,) = fetch(world, client, consumer, 1)
    client.pull(consumer, expires=10 * SECOND)
    world.server.advance(0.8)
    client.ack(frame, b"+WPI")
    world.server.advance(0.8)
    assert client.take() == []
    world.server.advance(0.3)
    assert len(client.take()) == 1


def test_term_ends_redelivery_and_gives_its_reason(world: World, client: Client) -> None:
    consumer = world.consumer(ack_wait=SECOND)
    world.store_messages("a")
    (frame,) = fetch(world, client, consumer, 1)
    client.ack(frame, b"+TERM no such order", "inbox")
    (answer,) = client.take()
    assert answer.payload == b""
    assert consumer_document(consumer).num_ack_pending == 0
    kind, fields = world.advisories[0]
    assert (kind, fields["reason"], fields["deliveries"]) == ("terminated", "no such order", 1)


def test_next_acknowledges_and_asks_for_more(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b", "c")
    (frame,) = fetch(world, client, consumer, 1)
    client.ack(frame, b"+NXT", "inbox")
    (following,) = client.take()
    assert following.subject == "b"
    client.ack(following, b'+NXT {"batch": 2, "no_wait": true}', "inbox")
    assert [frame.subject for frame in client.take()][:1] == ["c"]
    assert consumer_document(consumer).ack_floor.stream_seq == 2


def test_an_ack_of_what_was_never_sent_is_not_answered(world: World, client: Client) -> None:
    world.consumer()
    world.store_messages("a")
    client.publish("$JS.ACK.S.C.1.1.1.1.0", b"", "inbox")
    assert client.take() == []


@pytest.mark.parametrize(
    "subject", ["$JS.ACK.S.C.1.1", "$JS.ACK.S.C.x.1.1.1.0", "$JS.ACK.S.C.1.1.1.1.0.extra"]
)
def test_a_wrong_ack_subject_changes_nothing(world: World, client: Client, subject: str) -> None:
    consumer = world.consumer()
    world.store_messages("a")
    fetch(world, client, consumer, 1)
    client.publish(subject, b"", "inbox")
    assert [frame for frame in client.take() if frame.status != "503"] == []
    assert consumer_document(consumer).num_ack_pending == 1


def test_the_long_ack_subject_is_understood(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a")
    fetch(world, client, consumer, 1)
    client.publish("$JS.ACK._.HASH.S.C.1.1.1.1.0.random", b"", "inbox")
    assert [frame.payload for frame in client.take()] == [b""]
    assert consumer_document(consumer).num_ack_pending == 0


def test_ack_all_takes_everything_before_it(world: World, client: Client) -> None:
    consumer = world.consumer(ack_policy="all")
    world.store_messages("a", "a", "a", "a")
    frames = fetch(world, client, consumer, 4)
    client.ack(frames[2])
    info = consumer_document(consumer)
    assert (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) == (3, 3)
    assert info.num_ack_pending == 1


def test_backoff_waits_longer_each_time_and_max_deliver_gives_up(
    world: World, client: Client
) -> None:
    consumer = world.consumer(backoff=[SECOND, 3 * SECOND], ack_wait=SECOND, max_deliver=3)
    world.store_messages("a")
    client.pull(consumer, batch=10)
    client.take()
    deliveries = []
    for _ in range(12):
        world.server.advance(1.001)  # each wait is a millisecond longer than it is configured
        deliveries.append([frame.numbers[0] for frame in client.take()])
    assert deliveries == [[2], [], [], [3], [], [], [], [], [], [], [], []]
    assert world.advisories == [
        ("max_deliver", {"stream_seq": 1, "deliveries": 3}),
    ]
    info = consumer_document(consumer)
    assert (info.num_ack_pending, info.num_redelivered) == (0, 1)


def test_a_deleted_message_is_not_awaited_any_more(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b")
    fetch(world, client, consumer, 2)
    world.store.remove(1)
    world.wake()
    info = consumer_document(consumer)
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (1, 1)
    kind, fields = world.advisories[0]
    assert (kind, fields["reason"]) == ("terminated", "Unacknowledged message was deleted")


def test_a_purge_is_silent_and_moves_the_floors(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b", "c")
    fetch(world, client, consumer, 2)
    world.store.purge()
    world.wake()
    info = consumer_document(consumer)
    assert (info.num_ack_pending, info.num_pending) == (0, 0)
    assert (info.delivered.consumer_seq, info.delivered.stream_seq) == (2, 3)
    assert (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) == (2, 3)
    assert world.advisories == []


def test_a_purge_of_a_subject_is_silent_too(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b", "a")
    fetch(world, client, consumer, 2)
    world.store.purge(b"a")
    world.removals.purged()
    world.wake()
    info = consumer_document(consumer)
    assert (info.num_ack_pending, info.num_pending) == (1, 0)
    assert world.advisories == []


def test_acks_are_measured_as_often_as_configured(world: World, client: Client) -> None:
    consumer = world.consumer(sample_freq="50%")
    world.store_messages("a", "a", "a", "a")
    frames = fetch(world, client, consumer, 4)
    world.server.advance(0.25)
    for frame in frames:
        client.ack(frame)
    assert [kind for kind, _ in world.advisories] == ["consumer_ack"] * 2
    assert world.advisories[0][1]["ack_time"] == 250 * MS


def test_a_changed_state_is_saved_once_per_interval_and_restored(
    world: World, client: Client
) -> None:
    consumer = world.consumer(ack_wait=SECOND)
    world.store_messages("a", "b", "c")
    frames = fetch(world, client, consumer, 3)
    client.ack(frames[0])
    assert world.saved == []
    world.server.advance(0.2)
    assert len(world.saved) == 1
    now_ns = world.server.clock.wall_ns()
    state = decode_with_trailer(encode_consumer_state(world.saved[0], now_ns))[0]
    consumer.close()
    world.consumers.clear()
    again = world.consumer(state=state, ack_wait=SECOND)
    info = consumer_document(again)
    assert (info.delivered.consumer_seq, info.delivered.stream_seq) == (3, 3)
    assert (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) == (1, 1)
    assert (info.num_ack_pending, info.num_pending) == (2, 0)
    client.pull(again, batch=2)
    world.server.advance(2)
    assert [frame.numbers[:3] for frame in client.take()] == [(2, 2, 4), (2, 3, 5)]


def test_redelivery_after_a_restart_is_not_too_early(world: World, client: Client) -> None:
    world.server.advance(0.75)
    consumer = world.consumer(ack_wait=3 * SECOND)
    world.store_messages("a")
    fetch(world, client, consumer, 1)
    world.server.advance(0.2)
    # Files have whole seconds.
    state = decode_with_trailer(
        encode_consumer_state(world.saved[-1], world.server.clock.wall_ns())
    )[0]
    consumer.close()
    world.consumers.clear()
    client.pull(world.consumer(state=state, ack_wait=3 * SECOND))
    world.server.advance(2.8)
    assert client.take() == []
    world.server.advance(0.8)
    assert len(client.take()) == 1


def test_a_new_consumer_that_delivered_nothing_keeps_its_place(world: World) -> None:
    consumer = world.consumer(deliver_policy="new")
    state = consumer.state()
    consumer.close()
    world.store_messages("a")
    assert consumer_document(world.consumer(state=state, deliver_policy="new")).num_pending == 1


def test_a_state_ahead_of_the_stream_is_taken_back(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b", "c")
    client.ack(fetch(world, client, consumer, 3)[0])
    state = consumer.state()
    lost = World()
    lost.store_messages("a", "b")
    restored = lost.consumer(state=state)
    info = consumer_document(restored)
    assert (info.delivered.stream_seq, info.num_ack_pending) == (2, 1)
    lost.store_messages("c")
    assert consumer_document(restored).num_pending == 1


def test_a_reset_starts_over_behind_the_floor(world: World, client: Client) -> None:
    consumer = world.consumer()
    world.store_messages("a", "b", "c")
    frames = fetch(world, client, consumer, 3)
    client.ack(frames[0])
    assert consumer.reset() == 2
    info = consumer_document(consumer)
    assert (info.delivered.consumer_seq, info.delivered.stream_seq) == (0, 1)
    assert (info.num_ack_pending, info.num_pending) == (0, 2)
    assert [frame.numbers[:3] for frame in fetch(world, client, consumer, 2)] == [
        (1, 2, 1),
        (1, 3, 2),
    ]


def test_a_reset_below_the_start_is_refused(world: World) -> None:
    consumer = world.consumer(deliver_policy="by_start_sequence", opt_start_seq=5)
    with pytest.raises(ValueError, match="below start seq"):
        consumer.reset(4)
