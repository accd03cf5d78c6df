"""Places in front of the gate and of handshakes: no address can have them all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.broker import admission
from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.room import Guests, Room
from tradewind.testing import InProcessServer
from tradewind.testing.gates import User, UserGate


@pytest.mark.parametrize("floods", [1, 2, 5, 20])
def test_there_is_room_for_another_address_beside_floods(floods: int) -> None:
    room = Room(1000)
    guests: Guests[int] = Guests(room)
    for number in range(2000):
        ip = f"1.1.1.{number % floods}"
        if room.has_place_for(ip):
            guests.add(number, ip)
    assert 1000 - len(room) == 1000 // (floods + 1)
    assert room.has_place_for("2.2.2.2")


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.booleans())))
def test_places_are_given_back(steps: list[tuple[int, str, bool]]) -> None:
    room = Room(6)
    kinds: tuple[Guests[int], Guests[int]] = Guests(room), Guests(room)
    model: dict[tuple[int, int], str] = {}
    for guest, ip, comes in steps:
        kind = guest % 2
        if comes:
            kinds[kind].add(guest, ip)
            model.setdefault((kind, guest), ip)
        else:
            kinds[kind].discard(guest)
            model.pop((kind, guest), None)
        assert len(room) == len(model)
        assert {(kind, guest) for kind in (0, 1) for guest in kinds[kind]} == set(model)
        for source in "abc":
            own = list(model.values()).count(source)
            assert room.has_place_for(source) == (own < 6 - len(model))


def test_flood_in_front_of_the_gate_leaves_places_for_other_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "UNAUTHENTICATED_MAX", 20)
    server = InProcessServer(gate=UserGate([User("alice", "pw")]))
    broker = server.broker
    sessions = [broker.open_session(RemoteAddress("10.0.0.1", port)) for port in range(30)]
    waiting = [session for session in sessions if not session.is_closed]
    assert len(waiting) == 10
    assert sessions[-1].close_reason == "Maximum Connections Exceeded"
    other = broker.open_session(RemoteAddress("10.0.0.2", 1))
    assert not other.is_closed
    # Places are free again when connections end.
    for session in waiting:
        session.close("Client Closed")
    assert not broker.open_session(RemoteAddress("10.0.0.1", 99)).is_closed
    server.run_until_idle()
