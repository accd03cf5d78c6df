"""A delivery without its consumer: what it does by itself, and what it leaves to its owner."""

from __future__ import annotations

import pytest

from consumer_kit import Client, World
from tradewind.api.consumer_types import AckPolicy
from tradewind.consumer.cursor import Cursor
from tradewind.consumer.delivery import Delivery
from tradewind.consumer.pending import AckState
from tradewind.consumer.pulls import Pulls
from tradewind.consumer.taker import Taker, TakerPart

SECOND = 1_000_000_000


class Owner(Taker):
    """Notes what it is asked."""

    def __init__(self, world: World, pulls: Pulls | None = None) -> None:
        self.asked: list[tuple[object, ...]] = []
        acks = AckState(AckPolicy.EXPLICIT.value, 30 * SECOND, [], 0, start_seq=1)
        cursor = Cursor(world.store, (), 1, None)
        self.delivery = Delivery(
            self,
            world.broker.router,
            world.account,
            cursor,
            acks,
            pulls,
            b"$JS.ACK.S.C.",
            b"" if pulls is not None else b"to",
        )
        super().__init__(self.delivery)
        self.delivery.attach(world.removals, [b"$JS.ACK.S.C.>"], b"$JS.API.NEXT", b"$JS.FC.S.C.*")

    def fill(self, visible_seq: int) -> bool:
        return self.delivery.deliver(visible_seq)

    def other_ack(
        self,
        seq: int,
        consumer_seq: int,
        deliveries: int,
        payload: bytes,
        reply: bytes,
        header: bytes,
    ) -> bool:
        self.asked.append(("other_ack", seq, consumer_seq, deliveries, payload, reply, header))
        return False

    def sampled(self, seq: int, consumer_seq: int, deliveries: int) -> None:
        self.asked.append(("sampled", seq, consumer_seq, deliveries))

    def keep_acks(self) -> None:
        self.asked.append(("keep_acks",))

    def new_pin(self) -> bytes:
        self.asked.append(("new_pin",))
        return b"PIN"

    def flow_id(self) -> bytes:
        self.asked.append(("flow_id",))
        return b"ID"

    def flow_acknowledged(self, header: bytes) -> None:
        self.asked.append(("flow_acknowledged", header))

    def look_at_binding(self) -> None:
        self.delivery.check_binding()


@pytest.fixture
def world() -> World:
    world = World()
    world.store_messages("a", "b", "c")
    return world


def pull(world: World, owner: Owner, client: Client, batch: int) -> list[str]:
    """Ack subjects of the messages that a request gets."""
    client.subscribe("inbox")
    owner.delivery.add_request(b"inbox", batch, 0, 0, 0, False)
    owner.fill(world.store.last_seq)
    world.server.run_until_idle()
    return [frame.reply for frame in client.take()]


def test_plain_acks_are_no_concern_of_the_owner(world: World) -> None:
    owner, client = Owner(world, Pulls(10, False)), Client(world)
    for subject in pull(world, owner, client, 2):
        client.publish(subject, b"+ACK")
    assert owner.delivery.acks.floor_stream == 2
    assert owner.asked == []


def test_other_acks_go_to_the_owner_with_what_they_say(world: World) -> None:
    owner, client = Owner(world, Pulls(10, False)), Client(world)
    first, second = pull(world, owner, client, 2)
    header = b"NATS/1.0\r\nA: b\r\n\r\n"
    client.publish(second, b"-NAK now", "answer", header)
    assert owner.asked == [("other_ack", 2, 2, 1, b"-NAK now", b"answer", header)]
    owner.delivery.samples = True
    client.publish(first)
    assert owner.asked[1:] == [("sampled", 1, 1, 1)]


def test_answers_wait_until_the_owner_has_kept_the_acks(world: World) -> None:
    owner, client = Owner(world, Pulls(10, False)), Client(world)
    owner.delivery.keeps_acks = True
    first, second = pull(world, owner, client, 2)
    client.subscribe("answer")
    client.publish(first, b"", "answer")
    assert owner.asked == [("keep_acks",)]
    owner.fill(world.store.last_seq)
    assert client.take() == []
    owner.delivery.answer_acks(owner.delivery.answers_end)
    client.publish(second)
    owner.fill(world.store.last_seq)
    world.server.run_until_idle()
    assert [frame.subject for frame in client.take()] == ["answer"]


def test_pin_and_flow_id_are_those_of_the_owner(world: World) -> None:
    owner, client = Owner(world, Pulls(10, False)), Client(world)
    owner.delivery.set_priorities(overflow=False, pins=True)
    pull(world, owner, client, 2)
    assert owner.asked == [("new_pin",)]
    assert owner.delivery.pin_id == b"PIN"
    pushing = Owner(world)
    pushing.delivery.ask_flow()
    assert pushing.delivery.flow_subject == b"$JS.FC.S.C.ID"


def test_turn_wakes_the_owner_and_a_stream_asks_the_part(world: World) -> None:
    owner, client = Owner(world, Pulls(10, False)), Client(world)
    assert not owner.has_demand
    assert owner.limit_seq == 1
    (first,) = pull(world, owner, client, 1)
    assert owner.limit_seq == 2
    owner.delivery.add_request(b"inbox", 1, 0, 0, 0, False)
    assert owner.has_demand
    owner.delivery.max_ack_pending = 1
    client.take()
    client.publish(first)
    assert [frame.payload for frame in client.take()] == [b"x"]


def test_taker_without_a_part_needs_nothing_and_cannot_be_given_none() -> None:
    class Unmade(Taker):
        def __init__(self) -> None:
            pass

    unmade = Unmade()
    assert not unmade.has_demand
    assert unmade.limit_seq == 0
    with pytest.raises(TypeError, match="part"):
        Taker(None)  # type: ignore[arg-type]
    assert not Taker(TakerPart()).has_demand
