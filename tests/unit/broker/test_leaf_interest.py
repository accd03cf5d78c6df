"""What leaf nodes are told, against a model that counts everything anew after each step."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from tradewind.options import LeafOptions, ServerOptions
from tradewind.testing.in_process import FakeConnection, InProcessServer
from tradewind.wire.leaf_parser import LeafParser

SUBJECTS = ["a", "b", "a.*", "a.b", ">", "c.>"]
QUEUES = ["", "", "q", "r"]
CONNECT = b'CONNECT {"verbose":false}\r\n'
Key = tuple[str, str]


def server_with_leafnodes() -> InProcessServer:
    return InProcessServer(ServerOptions(server_name="hub", leafnodes=LeafOptions(port=1)))


@dataclass
class Client:
    """A client, and what it has subscribed to."""

    connection: FakeConnection
    sids: dict[int, Key] = field(default_factory=dict)
    next_sid: int = 1


@dataclass
class Peer:
    """Another server: what it asks for, and what it has been told."""

    connection: FakeConnection
    cluster: str
    is_above: bool
    is_isolated: bool
    asked: dict[Key, int] = field(default_factory=dict)
    told: dict[Key, int] = field(default_factory=dict)
    parser: LeafParser = field(default_factory=LeafParser)

    def hear(self) -> None:
        for operation in self.parser.feed(self.connection.take()):
            if operation[0] not in ("LS+", "LS-") or operation[1].startswith(b"$"):
                continue
            key = (operation[1].decode(), operation[2].decode())
            if operation[0] == "LS+":
                assert self.told.get(key) != operation[3], f"told twice: {operation}"
                self.told[key] = operation[3]
            else:
                assert key in self.told, f"never told: {operation}"
                del self.told[key]


class World:
    """A server with clients and peers that do things at random."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = server_with_leafnodes()
        self.clients: list[Client] = []
        self.peers: list[Peer] = []
        self.names = 0

    def step(self) -> None:
        actions: list[tuple[int, Any]] = [
            (1, self.client_comes),
            (1, self.client_goes),
            (8, self.subscribe),
            (6, self.unsubscribe),
            (1, self.peer_comes),
            (1, self.peer_goes),
            (8, self.ask),
            (6, self.ask_no_more),
        ]
        weights = [weight for weight, _ in actions]
        self.chance.choices(actions, weights)[0][1]()
        for peer in self.peers:
            peer.hear()
            assert peer.told == self.expected(peer)

    def expected(self, peer: Peer) -> dict[Key, int]:
        total: Counter[Key] = Counter()
        for client in self.clients:
            total.update(client.sids.values())
        for other in self.peers:
            is_alike = bool(peer.cluster) and other.cluster == peer.cluster
            is_beside = peer.is_above and other.is_above
            if other is not peer and not (is_alike or is_beside or peer.is_isolated):
                total.update(other.asked)
        return {key: count if key[1] else 1 for key, count in total.items() if count}

    # ---------------------------------------------------------------- what happens

    def client_comes(self) -> None:
        self.clients.append(Client(self.server.connect(CONNECT)))

    def client_goes(self) -> None:
        if self.clients:
            client = self.clients.pop(self.chance.randrange(len(self.clients)))
            client.connection.close()

    def key(self) -> Key:
        return self.chance.choice(SUBJECTS), self.chance.choice(QUEUES)

    def subscribe(self) -> None:
        if not self.clients:
            return
        client, lines = self.chance.choice(self.clients), ""
        for _ in range(self.chance.randint(1, 3)):
            subject, queue = self.key()
            client.sids[client.next_sid] = (subject, queue)
            lines += f"SUB {subject} {queue} {client.next_sid}\r\n"
            client.next_sid += 1
        client.connection.send(lines.encode())

    def unsubscribe(self) -> None:
        client = self.chance.choice(self.clients) if self.clients else None
        if client is None or not client.sids:
            return
        lines = ""
        for sid in self.chance.sample(sorted(client.sids), min(len(client.sids), 2)):
            del client.sids[sid]
            lines += f"UNSUB {sid}\r\n"
        client.connection.send(lines.encode())

    def peer_comes(self) -> None:
        if len(self.peers) == 5:
            return
        self.names += 1
        cluster = self.chance.choice(["", "C", "D"])
        is_above = self.chance.random() < 0.3
        is_isolated = self.chance.random() < 0.2
        connection = self.server.connect_leaf(
            name=f"peer{self.names}", cluster=cluster, is_hub=is_above, isolate=is_isolated
        )
        self.peers.append(Peer(connection, cluster, is_above, is_isolated))

    def peer_goes(self) -> None:
        if self.peers:
            peer = self.peers.pop(self.chance.randrange(len(self.peers)))
            peer.connection.close()

    def ask(self) -> None:
        if not self.peers:
            return
        peer, (subject, queue) = self.chance.choice(self.peers), self.key()
        weight = self.chance.randint(1, 9) if queue else 1
        peer.asked[subject, queue] = weight
        peer.connection.send(f"LS+ {subject}{f' {queue} {weight}' if queue else ''}\r\n".encode())

    def ask_no_more(self) -> None:
        peer = self.chance.choice(self.peers) if self.peers else None
        if peer is None:
            return
        subject, queue = self.chance.choice(sorted(peer.asked)) if peer.asked else self.key()
        peer.asked.pop((subject, queue), None)
        peer.connection.send(f"LS- {subject} {queue}\r\n".encode())


@pytest.mark.parametrize("seed", range(40))
def test_everybody_knows_what_others_ask_for(seed: int) -> None:
    world = World(seed)
    for _ in range(150):
        world.step()
    for peer in [*world.peers]:
        world.peers.remove(peer)
        peer.connection.close()
    for client in world.clients:
        client.connection.close()
    account = world.server.broker.accounts["$G"]
    assert account.sublist.interest is not None
    left = [key for key in account.sublist.interest.counts() if not key.startswith(b"$")]
    assert left == []
    assert account.leaves is None


def test_very_much_interest_is_told_in_steps_and_nothing_is_missed() -> None:
    server = server_with_leafnodes()
    client = server.connect(CONNECT)
    count = 30_000
    client.send(b"".join(b"SUB s.%d %d\r\n" % (number, number) for number in range(count)))
    peer = server.connect_leaf(name="p")
    first = peer.take()
    told = first.count(b"LS+ s.")
    assert 0 < told <= 5000, "the first part comes at once, and is small"
    # What changes meanwhile is told once, wherever the rest is.
    client.send(b"UNSUB 29999\r\nUNSUB 1\r\nSUB new 90000\r\n")
    server.advance(1)
    lines = Counter((first + peer.take()).split(b"\r\n"))
    assert lines[b"LS+ new"] == 1
    assert lines[b"LS+ s.29999"] == lines[b"LS- s.29999"]
    names = {line for line in lines if line.startswith(b"LS+ s.")}
    assert len(names - {b"LS+ s.29999", b"LS+ s.1"}) == count - 2
    assert max(lines[name] for name in names) == 1
    assert lines[b"LS- s.1"] == lines[b"LS+ s.1"]


def subscription_times() -> list[float]:
    """Processor time to tell a connected peer of 4,000 more subjects each time."""
    server = server_with_leafnodes()
    client, peer = server.connect(CONNECT), server.connect_leaf(name="p")
    step, times = 4000, []
    for first in range(0, 15 * step, step):
        lines = b"".join(b"SUB s.%d.x %d\r\n" % (n, n + 1) for n in range(first, first + step))
        began = time.thread_time()
        client.send(lines)
        times.append(time.thread_time() - began)
        assert peer.take().count(b"LS+ s.") == step
    return times


def test_the_cost_of_a_subscription_does_not_grow_with_their_number() -> None:
    """The same beside few and beside many; work of others slows single rounds down."""
    rounds = []
    for _ in range(4):
        times = subscription_times()
        rounds.append(min(times[-5:]) / min(times[:5]))
        if rounds[-1] < 3:
            return
    raise AssertionError(f"beside many, it cost so many times as much: {rounds}")


def test_peer_that_does_not_read_is_told_no_more_than_fits() -> None:
    server = server_with_leafnodes()
    client = server.connect(CONNECT)
    name = b"x" * 200
    client.send(b"".join(b"SUB %b.%d %d\r\n" % (name, number, number) for number in range(20_000)))
    session = server.connect_leaf(name="p")
    session.stop_reading()
    server.advance(1)
    assert session.session.pending_bytes < 4 << 20
    session.resume_reading()
    server.advance(1)
    told = session.take().count(b"LS+ " + name)
    assert told >= 19_000
    assert not session.session.is_closed


def test_slow_leaf_node_is_closed_at_its_limit() -> None:
    options = ServerOptions(
        server_name="hub",
        leafnodes=LeafOptions(port=1),
        max_pending_bytes=1 << 20,
        no_fast_producer_stall=True,
    )
    server = InProcessServer(options)
    peer, client = server.connect_leaf(name="p"), server.connect(CONNECT)
    peer.send(b"LS+ t\r\n")
    peer.stop_reading()
    payload = b"x" * 100_000
    for _ in range(12):
        client.send(b"PUB t 100000\r\n" + payload + b"\r\n")
    assert peer.session.is_closed
    assert peer.session.close_reason == "Slow Consumer (Pending Bytes)"
    assert server.broker.totals.slow_leaves == 1
    assert server.broker.accounts["$G"].leaves is None


def test_message_meets_a_leaf_node_once_and_names_its_groups() -> None:
    server = server_with_leafnodes()
    peer, client = server.connect_leaf(name="p"), server.connect(CONNECT)
    peer.send(b"LS+ t.>\r\nLS+ t.a\r\nLS+ t.* g 2\r\nLS+ t.a h 1\r\n")
    peer.take()
    client.send(b"PUB t.a re 1\r\nx\r\n")
    parser = LeafParser()
    (message,) = parser.feed(peer.take())
    assert (message[:3], sorted(message[3])) == (("LMSG", b"t.a", b"re"), [b"g", b"h"])
