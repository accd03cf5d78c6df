"""Order per key, case by case; test_key_order_model.py has the rest."""

from __future__ import annotations

import msgspec
import pytest

from consumer_kit import SECOND, Client, Frame, World
from tradewind.api.consumer_types import PriorityPolicy
from tradewind.api.order_rules import OrderError
from tradewind.consumer.consumer import ServerConsumer
from tradewind.consumer.consumer_document import consumer_document
from tradewind.consumer.consumer_lag import ConsumerLag
from tradewind.store.format.consumer_file import (
    ConsumerState,
    PendingDelivery,
    SequencePair,
    encode_consumer_state,
    read_consumer_state,
)

ORDER = {"tradewind.order_by": "subject"}


class Ordered:
    """An ordered consumer and one client of it."""

    def __init__(self, *subjects: str, order: dict[str, str] | None = None, **config: object):
        self.world = World()
        self.client = Client(self.world)
        self.client.subscribe("inbox", "inbox")
        self.consumer: ServerConsumer = self.world.consumer(
            metadata=ORDER | (order or {}), **config
        )
        self.world.store_messages(*subjects)

    def pull(self, batch: int = 100) -> list[Frame]:
        self.client.pull(self.consumer, batch=batch, expires=60 * SECOND)
        return self.take()

    def take(self) -> list[Frame]:
        self.world.server.run_until_idle()
        return [frame for frame in self.client.take() if frame.reply]


def seqs(frames: list[Frame]) -> list[int]:
    return [frame.numbers[1] for frame in frames]


def test_one_message_of_each_key_is_in_flight() -> None:
    ordered = Ordered("a", "a", "b", "a", "c")
    first = ordered.pull()
    assert seqs(first) == [1, 3, 5]
    info = consumer_document(ordered.consumer)
    assert (info.num_ack_pending, info.num_pending) == (3, 2)
    assert [frame.numbers[3] for frame in first] == [4, 3, 2]
    ordered.client.ack(first[0])
    assert seqs(ordered.take()) == [2]


def test_a_refused_message_is_followed_by_its_key_only_when_it_is_done() -> None:
    ordered = Ordered("a", "a")
    [first] = ordered.pull()
    ordered.client.ack(first, b"-NAK 5s")
    assert ordered.take() == []
    ordered.world.server.advance(5.1)
    [again] = ordered.take()
    assert again.numbers[:2] == (2, 1)
    ordered.client.ack(again, b"+TERM")
    assert [frame.numbers[:2] for frame in ordered.take()] == [(1, 2)]


def test_a_message_that_is_given_up_frees_its_key() -> None:
    ordered = Ordered("a", "a", max_deliver=1, ack_wait=SECOND)
    assert seqs(ordered.pull()) == [1]
    ordered.world.server.advance(1.1)
    assert seqs(ordered.take()) == [2]


def test_the_messages_of_a_client_that_is_gone_free_their_keys_after_the_wait() -> None:
    ordered = Ordered("a", "a", ack_wait=SECOND)
    assert seqs(ordered.pull()) == [1]
    ordered.client.connection.close()
    other = ordered.client = Client(ordered.world)
    other.subscribe("inbox", "inbox")
    assert ordered.pull() == []
    ordered.world.server.advance(1.1)
    [again] = ordered.take()
    assert again.numbers[:2] == (2, 1)


def test_messages_without_a_key_wait_for_nothing() -> None:
    ordered = Ordered(order={"tradewind.order_by": "token:2"})
    ordered.world.store_messages("s", "s", "s.a", "s.a", "s")
    assert seqs(ordered.pull()) == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("header", "has_key"),
    [
        (b"NATS/1.0\r\nKey: 1\r\n\r\n", True),
        (b"NATS/1.0\r\nOther: 2\r\nKey:1\r\n\r\n", True),
        (b"NATS/1.0\r\nkey: 1\r\n\r\n", False),
        (b"NATS/1.0\r\nKey:\r\n\r\n", False),
        (b"NATS/1.0\r\nKeys: 1\r\n\r\n", False),
        (b"", False),
    ],
)
def test_the_key_may_be_a_header(header: bytes, has_key: bool) -> None:
    ordered = Ordered(order={"tradewind.order_by": "header:Key"})
    ordered.world.store_messages("s", "t", header=header)
    assert len(ordered.pull()) == (1 if has_key else 2)


def test_messages_that_were_never_sent_cannot_be_acknowledged() -> None:
    ordered = Ordered("a", "a", "a")
    [first] = ordered.pull()
    forged = first.reply.replace(".1.1.1.", ".1.2.2.")
    assert forged != first.reply
    for payload in (b"", b"-NAK", b"+TERM", b"+WPI"):
        ordered.client.publish(forged, payload)
    ordered.world.server.advance(1)
    assert consumer_document(ordered.consumer).num_pending == 2
    ordered.client.ack(first)
    assert seqs(ordered.take()) == [2]


def test_a_hot_key_does_not_hold_back_others() -> None:
    ordered = Ordered(*["hot"] * 500, "cold", *["hot"] * 500, max_ack_pending=2)
    served = ordered.pull(batch=1000)
    assert seqs(served) == [1, 501]


def test_keys_with_a_backlog_leave_room_for_new_ones() -> None:
    # There are always two keys with more, and three messages may be unacknowledged.
    ordered = Ordered(
        *["a", "b"] * 50, *(f"new.{number}" for number in range(50)), max_ack_pending=3
    )
    served: list[int] = []
    held = ordered.pull(batch=1000)
    for _ in range(40):
        served += seqs(held)
        for frame in held:
            ordered.client.ack(frame)
        held = ordered.take()
    assert sum(seq > 100 for seq in served) >= 20
    assert sum(seq <= 100 for seq in served) >= 20


def test_a_full_window_stops_the_reading_and_loses_nothing() -> None:
    ordered = Ordered(*["a"] * 10, "b", order={"tradewind.order_window": "4"})
    held = ordered.pull()
    assert seqs(held) == [1]
    assert ordered.consumer.acks.parked_count == 4
    assert ordered.consumer.delivery.waits_for == "keys"
    seen = []
    while held:
        seen += seqs(held)
        for frame in held:
            ordered.client.ack(frame)
        held = ordered.take()
    assert sorted(seen) == list(range(1, 12))
    assert [seq for seq in seen if seq <= 10] == list(range(1, 11))
    assert seen.index(11) < len(seen) - 1
    assert ordered.consumer.acks.count == 0


def test_a_request_that_does_not_wait_ends_if_all_keys_are_busy() -> None:
    ordered = Ordered("a", "a")
    ordered.pull(1)
    ordered.client.pull(ordered.consumer, batch=1, no_wait=True)
    ordered.world.server.run_until_idle()
    assert [frame.status for frame in ordered.client.take()] == ["404 No Messages"]


def test_a_push_group_keeps_the_order() -> None:
    ordered = Ordered(deliver_subject="work", deliver_group="g", max_waiting=0)
    members = [Client(ordered.world) for _ in range(3)]
    for member in members:
        member.subscribe("work", "work", "g")
    ordered.consumer.look_at_binding()
    ordered.world.store_messages(*["a", "b"] * 20)
    seen: list[int] = []
    for _ in range(40):
        for member in members:
            for frame in member.take():
                seen.append(frame.numbers[1])
                member.ack(frame)
        ordered.world.server.run_until_idle()
    for first in (1, 2):
        assert [seq for seq in seen if seq % 2 == first % 2] == list(range(first, 41, 2))


def test_a_pinned_group_keeps_the_order() -> None:
    ordered = Ordered(
        "a",
        "a",
        "b",
        priority_groups=["g"],
        priority_policy=PriorityPolicy.PINNED_CLIENT,
        priority_timeout=60 * SECOND,
    )
    ordered.client.pull(ordered.consumer, batch=10, expires=60 * SECOND, group="g")
    frames = ordered.take()
    assert seqs(frames) == [1, 3]
    assert "Nats-Pin-Id" in frames[0].lines


def test_removed_messages_leave_their_keys() -> None:
    ordered = Ordered("a", "a", "a", "a")
    assert seqs(ordered.pull()) == [1]
    ordered.world.advisories.clear()
    ordered.world.store.remove(2)  # parked
    ordered.world.store.remove(1)  # in flight
    ordered.world.wake()
    assert seqs(ordered.take()) == [3]
    terminated = [fields for kind, fields in ordered.world.advisories if kind == "terminated"]
    assert [fields["stream_seq"] for fields in terminated] == [1]


def test_a_message_that_is_revived_does_not_stop_its_key() -> None:
    ordered = Ordered("a", "a", "a")
    held = ordered.pull()
    ordered.client.ack(held[0])
    [second] = ordered.take()
    ordered.consumer.revive(1)
    assert seqs(ordered.take()) == [1]
    ordered.client.ack(second)
    assert ordered.take() == []
    ordered.client.ack(held[0])
    assert seqs(ordered.take()) == [3]


def test_a_larger_limit_applies_at_once() -> None:
    ordered = Ordered("a", "a", "a", "a")
    assert seqs(ordered.pull()) == [1]
    metadata = ORDER | {"tradewind.order_in_flight": "3"}
    ordered.consumer.update(msgspec.structs.replace(ordered.consumer.config, metadata=metadata))
    assert seqs(ordered.take()) == [2, 3]


def test_after_a_restart_parked_messages_are_delivered_for_the_first_time() -> None:
    ordered = Ordered("a", "a", "b")
    assert seqs(ordered.pull()) == [1, 3]
    state = ordered.consumer.state()
    data = encode_consumer_state(state, 1)
    state, _ = read_consumer_state(data, "o.dat")
    assert state.pending[2].consumer_seq == 0
    ordered.consumer.close()
    ordered.world.consumers.clear()
    ordered.consumer = ordered.world.consumer(state=state, metadata=ORDER)
    # Nothing of it is sent again before the wait is over.
    assert ordered.pull() == []
    assert consumer_document(ordered.consumer).num_pending == 1
    ordered.world.server.advance(32)
    again = ordered.take()
    assert [frame.numbers[:2] for frame in again] == [(2, 1), (2, 3)]
    ordered.client.ack(again[0])
    assert [frame.numbers[:2] for frame in ordered.take()] == [(1, 2)]


def test_a_state_without_order_is_continued_in_order() -> None:
    """As nats-server leaves it, which delivers several messages of a key at once."""
    world = World()
    world.store_messages("a", "a", "a")
    pending = {seq: PendingDelivery(seq, 0) for seq in (1, 2)}
    state = ConsumerState(SequencePair(2, 2), SequencePair(0, 0), pending)
    consumer = world.consumer(state=state, metadata=ORDER)
    client = Client(world)
    client.subscribe("inbox", "inbox")
    client.pull(consumer, batch=10, expires=90 * SECOND)
    world.server.advance(1)
    seen = []
    while again := [frame for frame in client.take() if frame.reply]:
        assert len(again) == 1
        seen += [frame.numbers[:2] for frame in again]
        client.ack(again[0])
        world.server.run_until_idle()
    assert seen == [(2, 1), (2, 2), (1, 3)]


def test_a_consumer_that_cannot_keep_order_does_not_start() -> None:
    """nats-server stores such a configuration."""
    world = World()
    with pytest.raises(OrderError, match="requires ack_policy explicit, not all"):
        world.consumer(ack_policy="all", metadata=ORDER)


def test_the_lag_knows_what_is_parked() -> None:
    ordered = Ordered("a", "a")
    ordered.pull()
    ordered.world.server.advance(3)
    lag = ConsumerLag()
    lag.look(ordered.consumer, ordered.world.server.clock.wall_ns())
    assert lag.undelivered_ns == lag.unacknowledged_ns == 3 * SECOND


def test_the_floor_is_below_all_that_is_left() -> None:
    ordered = Ordered("a", "b", "a", "c")
    a, b, c = ordered.pull()
    ordered.client.ack(c)
    ordered.client.ack(b)
    info = consumer_document(ordered.consumer)
    assert (info.ack_floor.stream_seq, info.ack_floor.consumer_seq) == (0, 0)
    ordered.client.ack(a)
    [second] = ordered.take()
    info = consumer_document(ordered.consumer)
    assert (info.ack_floor.stream_seq, info.ack_floor.consumer_seq) == (2, 3)
    ordered.client.ack(second)
    ordered.world.server.run_until_idle()
    info = consumer_document(ordered.consumer)
    assert (info.ack_floor.stream_seq, info.ack_floor.consumer_seq) == (4, 4)


def test_a_dead_letter_comes_before_the_next_message_of_its_key() -> None:
    ordered = Ordered("a", "a", max_deliver=1, ack_wait=SECOND)
    ordered.consumer.acks.keeps_exceeded = True
    assert seqs(ordered.pull()) == [1]
    ordered.world.server.advance(1.1)
    # Until its copy is stored, the message rests, and its key with it.
    assert ordered.consumer.acks.is_awaited(1)
    assert ordered.take() == []
    ordered.consumer.delivery.acknowledge(1, 0, 1, False)
    assert seqs(ordered.take()) == [2]


def test_a_message_sent_before_a_restart_can_be_acknowledged_while_it_waits_for_its_key() -> None:
    world = World()
    world.store_messages("a", "a", "a")
    pending = {seq: PendingDelivery(seq, 0) for seq in (1, 2)}
    state = ConsumerState(SequencePair(2, 2), SequencePair(0, 0), pending)
    consumer = world.consumer(state=state, metadata=ORDER)
    assert consumer.acks.parked_count == 1
    Client(world).publish("$JS.ACK.S.C.1.2.2.0.1", b"+ACK")
    assert consumer.acks.parked_count == 0
    assert sorted(consumer.acks.pending()) == [1]
