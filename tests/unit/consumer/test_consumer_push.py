"""Consumers that push: interest, flow control, heartbeats, pace, pause and the end of life."""

from __future__ import annotations

import msgspec
import pytest

from consumer_kit import SECOND, Client, World
from tradewind.api.times import format_time
from tradewind.consumer.consumer_document import consumer_document


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)


def subjects(client: Client) -> list[str]:
    return [frame.subject for frame in client.take()]


def test_messages_are_pushed_once_somebody_is_there(world: World, client: Client) -> None:
    consumer = world.consumer(deliver_subject="out")
    world.store_messages("a", "b")
    assert not consumer_document(consumer).push_bound
    client.subscribe("out")
    world.wake()
    assert [(frame.subject, frame.numbers) for frame in client.take()] == [
        ("a", (1, 1, 1, 1)),
        ("b", (1, 2, 2, 0)),
    ]
    assert consumer_document(consumer).push_bound


@pytest.mark.parametrize(
    ("group", "subject", "queue", "bound"),
    [
        ("", "out", "", True),
        ("", "*", "", False),
        ("", "out", "q", False),
        ("q", "out", "q", True),
        ("q", "out", "other", False),
        ("q", "out", "", False),
    ],
)
def test_only_a_subscription_of_exactly_the_subject_and_group_binds(
    world: World, client: Client, group: str, subject: str, queue: str, bound: bool
) -> None:
    consumer = world.consumer(deliver_subject="out", deliver_group=group)
    client.subscribe(subject, queue=queue)
    world.wake()
    assert consumer_document(consumer).push_bound is bound


def test_delivery_stops_when_the_receiver_leaves(world: World, client: Client) -> None:
    consumer = world.consumer(deliver_subject="out")
    sid = client.subscribe("out")
    world.wake()
    client.unsubscribe(sid)
    world.store_messages("a")
    assert consumer.delivery.waits_for == "demand"
    assert consumer_document(consumer).delivered.consumer_seq == 0


def test_headers_only_says_how_large_the_message_is(world: World, client: Client) -> None:
    world.consumer(deliver_subject="out", headers_only=True)
    client.subscribe("out")
    world.store_messages("a", payload=b"12345")
    world.store_messages("a", header=b"NATS/1.0\r\nA: b\r\n\r\n", payload=b"123")
    assert [(frame.header, frame.payload) for frame in client.take()] == [
        (b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b""),
        (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 3\r\n\r\n", b""),
    ]


def test_heartbeats_say_how_far_it_has_come(world: World, client: Client) -> None:
    world.consumer(deliver_subject="out", idle_heartbeat=SECOND)
    client.subscribe("out")
    world.store_messages("a")
    client.take()
    world.server.advance(2.5)
    expected = (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    )
    assert [frame.header for frame in client.take()] == [expected, expected]


def test_flow_control_asks_at_half_of_the_window_and_stops_at_all_of_it(
    world: World, client: Client
) -> None:
    consumer = world.consumer(deliver_subject="out", flow_control=True, idle_heartbeat=SECOND)
    client.subscribe("out")
    world.store_messages(*(["a"] * 40), payload=b"x" * 100_000)
    world.server.advance(0.9)
    frames = client.take()
    messages = [frame for frame in frames if frame.payload]
    (question,) = [frame for frame in frames if frame.status]
    assert question.header == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    assert question.reply.startswith("$JS.FC.S.C.")
    assert frames.index(question) == 11
    # One is sent while the window (2 MiB) is not full, however large it is.
    assert len(messages) == 21
    assert consumer.delivery.waits_for == "flow"
    world.server.advance(0.2)
    (beat,) = client.take()
    assert beat.lines["Nats-Consumer-Stalled"] == question.reply
    client.publish(question.reply)
    world.server.advance(0.5)
    assert len([frame for frame in client.take() if frame.payload]) == 19
    assert consumer_document(consumer).num_pending == 0


def test_rate_limit_spreads_messages_over_time(world: World, client: Client) -> None:
    consumer = world.consumer(deliver_subject="out", rate_limit_bps=8 * 1024 * 1024)
    client.subscribe("out")
    world.store_messages(*(["a"] * 32), payload=b"x" * 100_000)
    at_once = len(client.take())
    assert at_once == 10
    assert consumer.delivery.waits_for == "pace"
    world.server.advance(1)
    assert len(client.take()) in (10, 11)
    world.server.advance(3)
    assert consumer_document(consumer).num_pending == 0


def test_replay_keeps_the_distances_in_time(world: World, client: Client) -> None:
    world.store_messages("a")
    world.server.advance(2)
    world.store_messages("b")
    world.server.advance(1)
    world.store_messages("c")
    world.consumer(deliver_subject="out", replay_policy="original")
    client.subscribe("out")
    world.wake()
    assert subjects(client) == ["a"]
    world.server.advance(1.9)
    assert subjects(client) == []
    world.server.advance(0.2)
    assert subjects(client) == ["b"]
    world.server.advance(1)
    assert subjects(client) == ["c"]
    world.server.advance(5)
    world.store_messages("d")
    assert subjects(client) == ["d"]


def test_a_paused_consumer_sends_nothing_until_its_time(world: World, client: Client) -> None:
    until = format_time(world.server.clock.wall_ns() + 5 * SECOND)
    consumer = world.consumer(deliver_subject="out", pause_until=until)
    client.subscribe("out")
    world.store_messages("a")
    assert subjects(client) == []
    info = consumer_document(consumer)
    assert (info.paused, info.pause_remaining) == (True, 5 * SECOND)
    world.server.advance(5.1)
    assert subjects(client) == ["a"]
    assert not consumer_document(consumer).paused
    assert [kind for kind, _ in world.advisories] == ["consumer_pause"]


def test_an_ephemeral_without_receiver_goes_after_five_seconds(
    world: World, client: Client
) -> None:
    consumer = world.consumer(durable_name="", deliver_subject="out")
    sid = client.subscribe("out")
    world.wake()
    world.server.advance(20)
    assert world.inactive == []
    client.unsubscribe(sid)
    world.server.advance(4.9)
    assert world.inactive == []
    world.server.advance(0.2)
    assert world.inactive == [consumer]


def test_a_pull_consumer_lives_while_it_is_used(world: World, client: Client) -> None:
    consumer = world.consumer(inactive_threshold=SECOND, ack_wait=3 * SECOND)
    client.subscribe("inbox")
    world.store_messages("a")
    for _ in range(3):
        world.server.advance(0.9)
        client.pull(consumer, no_wait=True, batch=1)
    (frame, *_) = client.take()
    # Somebody may be working on the message: its ack wait counts.
    world.server.advance(4)
    assert world.inactive == []
    client.ack(frame)
    world.server.advance(1.2)
    assert world.inactive == [consumer]


def test_a_waiting_request_keeps_a_consumer_alive(world: World, client: Client) -> None:
    consumer = world.consumer(inactive_threshold=SECOND)
    client.subscribe("inbox")
    client.pull(consumer)
    world.server.advance(10)
    assert world.inactive == []
    client.unsubscribe("1")
    world.server.advance(3)
    assert world.inactive == [consumer]


def test_an_update_of_the_deliver_subject_sends_again_what_is_pending(
    world: World, client: Client
) -> None:
    consumer = world.consumer(deliver_subject="out")
    client.subscribe("out")
    world.store_messages("a", "b")
    client.take()
    client.subscribe("elsewhere", "9")
    consumer.update(msgspec.structs.replace(consumer.config, deliver_subject="elsewhere"))
    world.wake()
    assert [(frame.sid, frame.numbers[0]) for frame in client.take()] == [("9", 2), ("9", 2)]


def test_an_update_of_the_filter_changes_what_comes(world: World, client: Client) -> None:
    consumer = world.consumer(filter_subject="a")
    client.subscribe("inbox")
    world.store_messages("a", "b", "a", "b")
    assert consumer_document(consumer).num_pending == 2
    consumer.update(msgspec.structs.replace(consumer.config, filter_subject="b"))
    assert consumer_document(consumer).num_pending == 2
    client.pull(consumer, batch=2)
    assert subjects(client) == ["b", "b"]


def test_pinned_client_gets_everything_until_it_is_silent(world: World) -> None:
    consumer = world.consumer(
        priority_groups=["g"], priority_policy="pinned_client", priority_timeout=5 * SECOND
    )
    first, second = Client(world), Client(world)
    first.subscribe("one")
    second.subscribe("two")
    first.pull(consumer, "one", batch=10, group="g", expires=60 * SECOND)
    second.pull(consumer, "two", batch=10, group="g", expires=60 * SECOND)
    world.store_messages("a", "b")
    frames = first.take()
    assert [frame.lines["Nats-Pin-Id"] for frame in frames] == ["PIN1", "PIN1"]
    assert second.take() == []
    assert consumer_document(consumer).priority_groups[0].pinned_client_id == "PIN1"
    second.pull(consumer, "two", batch=1, group="g", id="WRONG")
    assert [frame.status for frame in second.take()] == ["423 Nats-Pin-Id mismatch"]
    world.server.advance(6)
    world.store_messages("c", "d")
    assert [frame.lines["Nats-Pin-Id"] for frame in second.take()] == ["PIN2", "PIN2"]
    assert [frame.status for frame in first.take()] == ["423 Nats-Wrong-Pin-Id"]
    assert [kind for kind, _ in world.advisories] == [
        "consumer_group_pinned",
        "consumer_group_unpinned",
        "consumer_group_pinned",
    ]


def test_an_overflow_request_is_served_only_when_much_is_left(world: World, client: Client) -> None:
    consumer = world.consumer(priority_groups=["g"], priority_policy="overflow")
    client.subscribe("inbox")
    client.pull(consumer, batch=10, group="g", min_pending=3)
    world.store_messages("a", "b")
    assert subjects(client) == []
    world.store_messages("c", "d")
    assert subjects(client) == ["a", "b"]


def test_prioritized_requests_are_served_by_number(world: World, client: Client) -> None:
    consumer = world.consumer(priority_groups=["g"], priority_policy="prioritized")
    for inbox in ("low", "high"):
        client.subscribe(inbox, inbox)
    client.pull(consumer, "low", batch=2, group="g", priority=5)
    client.pull(consumer, "high", batch=2, group="g", priority=1)
    world.store_messages("a", "b", "c")
    assert [frame.sid for frame in client.take()] == ["high", "high", "low"]
