"""Mirrors and sources of streams of another account of the same server, through its exports."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import Peer

from tradewind.options import AccountOptions, JetStreamOptions, ServerOptions
from tradewind.route.sharing import ServiceExport, ServiceImport, StreamExport, StreamImport
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk
from tradewind.testing.gates import User, UserGate

EXTERNAL = {"api": "js", "deliver": "deliver.I"}
API = "$JS.API.>"
CONSUMERS = "$JS.API.CONSUMER.CREATE.>"
# A consumer is given up after ten seconds of silence, and tried again after one.
SILENCE_SECONDS = 12


class World:
    """Account E exports streams, I copies them, and T may use a service of E."""

    def __init__(self, exported: str) -> None:
        accounts = {
            "E": AccountOptions(
                "E",
                exports=(
                    ServiceExport(exported),
                    ServiceExport("$JS.FC.>"),
                    ServiceExport("deliver.>"),
                    StreamExport("deliver.>"),
                ),
                jetstream=True,
            ),
            "I": AccountOptions(
                "I",
                imports=(
                    ServiceImport("E", exported, to=exported.replace("$JS.API", "js")),
                    ServiceImport("E", "$JS.FC.>"),
                    StreamImport("E", "deliver.>"),
                ),
                jetstream=True,
            ),
            "T": AccountOptions("T", imports=(ServiceImport("E", "deliver.>"),)),
        }
        self.server = InProcessServer(
            ServerOptions(accounts=accounts, jetstream=JetStreamOptions(enabled=True)),
            disk=SimulatedDisk(),
            gate=UserGate([User(name.lower(), account=name) for name in accounts]),
            accounts=list(accounts),
        )
        self.owner = Peer(self.server, "e", inbox="to.e")
        self.client = Peer(self.server, "i", inbox="to.i")

    def origin(self, *payloads: str) -> None:
        self.owner.create("O")
        self.fill(*payloads)

    def fill(self, *payloads: str) -> None:
        for payload in payloads:
            assert self.owner.publish("O.a", payload.encode()) is not None

    def copy(self, name: str, **config: Any) -> None:
        answer = self.client.create(name, subjects=[], **config)
        assert "error" not in answer, answer
        self.server.advance(0.01)

    def payloads(self, name: str) -> list[str]:
        self.client.take()
        engine = self.server.engine
        assert engine is not None
        store = engine.accounts["I"].streams[name].stream.store
        return [
            store.get(seq).payload.decode() for seq in range(store.first_seq, store.last_seq + 1)
        ]

    def problem(self, name: str) -> str:
        self.client.take()
        info = self.client.api(f"STREAM.INFO.{name}")
        shown = info.get("mirror") or info["sources"][0]
        return str(shown.get("error", {}).get("description", ""))

    def hidden(self) -> list[Any]:
        """The consumers of the origin."""
        engine = self.server.engine
        assert engine is not None
        return list(engine.accounts["E"].streams["O"].consumers.values())

    def silence(self) -> None:
        """End the consumer of a copy without a word."""
        (consumer,) = self.hidden()
        assert self.owner.api(f"CONSUMER.DELETE.O.{consumer.name}")["success"]

    def subscriptions(self) -> list[int]:
        """How many the server and its clients have, in both accounts."""
        return [self.server.broker.accounts[name].sublist.count for name in "EI"]


SOURCE = {"sources": [{"name": "O", "external": EXTERNAL}]}
MIRROR = {"mirror": {"name": "O", "external": EXTERNAL}}


@pytest.mark.parametrize("exported", [API, CONSUMERS])
def test_a_source_starts_over_with_a_stream_that_was_created_again(exported: str) -> None:
    world = World(exported)
    world.origin("1", "2")
    world.copy("S", **SOURCE)
    assert world.payloads("S") == ["1", "2"]
    world.owner.api("STREAM.DELETE.O")
    world.server.advance(1)
    world.origin("3", "4", "5")
    world.server.advance(SILENCE_SECONDS)
    assert world.payloads("S") == ["1", "2", "3", "4", "5"]
    world.fill("6")
    assert world.payloads("S")[-1] == "6"
    assert world.problem("S") == ""


@pytest.mark.parametrize("exported", [API, CONSUMERS])
@pytest.mark.parametrize("count", [1, 4])
def test_a_mirror_does_not_continue_with_another_stream(exported: str, count: int) -> None:
    world = World(exported)
    world.origin("1", "2")
    world.copy("M", **MIRROR)
    assert world.payloads("M") == ["1", "2"]
    world.owner.api("STREAM.DELETE.O")
    world.server.advance(1)
    world.origin(*["other"] * count)
    world.server.advance(SILENCE_SECONDS)
    world.fill("another")  # with this one there is a message for each that was mirrored
    world.server.advance(SILENCE_SECONDS)
    assert "is not the one that was mirrored" in world.problem("M")
    assert world.payloads("M") == ["1", "2"]
    assert len([text for text in world.server.log.texts("warn") if "mirrored" in text]) == 1


@pytest.mark.parametrize("exported", [API, CONSUMERS])
def test_a_mirror_continues_with_the_same_stream(exported: str) -> None:
    world = World(exported)
    world.origin("1", "2")
    world.copy("M", **MIRROR)
    world.silence()
    world.fill("3", "4")
    assert world.payloads("M") == ["1", "2"]
    world.server.advance(SILENCE_SECONDS)
    assert world.payloads("M") == ["1", "2", "3", "4"]
    assert world.problem("M") == ""


def test_nothing_is_left_of_a_copy_that_is_deleted() -> None:
    world = World(API)
    world.origin("1")
    before = [0, 0]
    for _ in range(2):
        world.copy("M", **MIRROR)
        world.copy("S", **SOURCE)
        assert world.server.broker.accounts["E"].shadow_count == 2
        for name in "MS":
            world.client.api(f"STREAM.DELETE.{name}")
        world.server.advance(SILENCE_SECONDS)  # hidden consumers go when nobody listens to them
        assert world.server.broker.accounts["E"].shadow_count == 0
        assert not world.hidden()
        # The first request of all makes a place where answers arrive, for good.
        assert before in ([0, 0], world.subscriptions())
        before = world.subscriptions()


def test_requests_that_are_heard_and_not_answered_leave_nothing_behind() -> None:
    world = World("js.>")
    world.owner.connection.send(b"SUB js.> 9\r\n")
    world.copy("M", **MIRROR)
    world.server.advance(SILENCE_SECONDS)
    before = world.subscriptions()
    assert world.problem("M") == "remote 'js' does not answer"
    world.owner.take()
    world.server.advance(100)
    assert 3 <= len(world.owner.take()) <= 20  # later and later
    assert world.subscriptions() == before


def test_nobody_can_send_in_the_name_of_the_consumer() -> None:
    world = World(API)
    world.origin("1")
    world.copy("M", **MIRROR)
    (consumer,) = world.hidden()
    frame = f"PUB {consumer.config.deliver_subject} $JS.ACK.O.{consumer.name}.1.2.2.1.0 1\r\n!\r\n"
    stranger = Peer(world.server, "t", inbox="to.t")
    for peer in (world.owner, world.client, stranger):
        peer.connection.send(frame.encode())
        assert b"Permissions Violation" in peer.connection.take()
    world.fill("2")
    assert world.payloads("M") == ["1", "2"]
