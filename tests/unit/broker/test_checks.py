"""Password checks that wait: who is next, and what the time of an answer tells."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.broker.identity import DeferredCheck, Identity, Rejection
from tradewind.broker.password_checks import CheckQueue, FairQueue
from tradewind.broker.room import source_of
from tradewind.options import Secret
from tradewind.testing import InProcessServer
from tradewind.testing.gates import User, UserGate

THREADS = 2
GRANTED, REFUSED = Identity("A"), Rejection("no")


def login(user: str | None, *, good: bool = False) -> DeferredCheck:
    return DeferredCheck(lambda: GRANTED if good else REFUSED, user)


@dataclass
class Arrival:
    """A connection that comes at a time, and perhaps gives up later."""

    at: int
    address: str
    user: str | None
    good: bool = False
    leaves: int = 1 << 30


def answered(arrivals: list[Arrival], threads: int = THREADS) -> dict[int, int]:
    """When each connection is answered, if every check takes the time 10."""
    queue, answers, free = CheckQueue(), {}, threads
    events: list[tuple[int, int, int, object]] = []
    for cid, arrival in enumerate(arrivals):
        heapq.heappush(events, (arrival.at, 1, cid, "comes"))
        heapq.heappush(events, (arrival.leaves, 2, cid, "leaves"))
    order = len(arrivals)
    while events:
        now, _, cid, event = heapq.heappop(events)
        if event == "comes":
            arrival = arrivals[cid]
            queue.add(cid, arrival.address, login(arrival.user, good=arrival.good))
        elif event == "leaves":
            queue.remove(cid)
        else:
            free += 1
            told = queue.finished(event, event.decide())  # type: ignore[arg-type, attr-defined]
            if told is not None:
                answers[told] = now
        while free and (check := queue.take()) is not None:
            free -= 1
            order += 1
            heapq.heappush(events, (now + 10, 0, order, check))
    assert queue.places.count == 0
    return answers


# ---------------------------------------------------------------------- who is next

paths = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))


@pytest.mark.slow
@given(st.lists(st.one_of(paths, st.none(), st.integers(0, 20)), max_size=60), st.booleans())
def test_lanes_take_turns_like_those_of_a_simple_model(
    steps: list[tuple[str, str] | int | None], newest_first: bool
) -> None:
    queue: FairQueue[int] = FairQueue(newest_first=newest_first)
    model: OrderedDict[str, OrderedDict[str, list[int]]] = OrderedDict()
    places: dict[int, tuple[str, str]] = {}
    for key, step in enumerate(steps):
        if isinstance(step, tuple):
            queue.push(step, key, key)
            model.setdefault(step[0], OrderedDict()).setdefault(step[1], []).append(key)
            places[key] = step
        elif isinstance(step, int):
            path = places.pop(step, None)
            assert queue.remove(path or ("a", "x"), step) == (path is not None)
            if path is not None:
                model[path[0]][path[1]].remove(step)
        elif places:
            end = -1 if newest_first else 0
            outer = list(model)[end]
            inner = list(model[outer])[end]
            wanted = model[outer][inner].pop(end)
            model[outer].move_to_end(inner, last=not newest_first)
            model.move_to_end(outer, last=not newest_first)
            assert queue.pop() == wanted
            del places[wanted]
        for lanes in model.values():
            for name in [name for name, lane in lanes.items() if not lane]:
                del lanes[name]
        for name in [name for name, lanes in model.items() if not lanes]:
            del model[name]
        assert len(queue) == len(places)


def test_flood_of_unknown_names_does_not_delay_a_good_password() -> None:
    flood = [Arrival(0, "1.1.1.1", None) for _ in range(500)]
    answers = answered([*flood, Arrival(5, "1.1.1.1", "alice", good=True)])
    assert answers[500] == 15


def test_flood_of_one_name_does_not_delay_another() -> None:
    flood = [Arrival(0, "1.1.1.1", "bob") for _ in range(500)]
    answers = answered([*flood, Arrival(5, "1.1.1.1", "alice", good=True)])
    assert answers[500] <= 30


def test_flood_of_many_names_does_not_delay_another_address() -> None:
    flood = [Arrival(0, "1.1.1.1", f"user{number}") for number in range(500)]
    answers = answered([*flood, Arrival(5, "1.1.1.2", "user1", good=True)])
    assert answers[500] <= 30


def test_flood_of_unknown_names_from_many_addresses_does_not_delay_a_good_password() -> None:
    flood = [Arrival(0, f"1.1.{number}.1", None) for number in range(250)]
    answers = answered([*flood, Arrival(5, "1.1.1.1", "alice", good=True)])
    assert answers[250] == 15


def test_addresses_take_turns_also_when_they_are_refused() -> None:
    flood = [Arrival(0, "1.1.1.1", None) for _ in range(100)]
    answers = answered([*flood, Arrival(1, "1.1.1.2", None)])
    assert answers[100] <= 30


@pytest.mark.parametrize("names", [1, 7, 60])
def test_everybody_is_answered_and_good_passwords_are_checked_once(names: int) -> None:
    arrivals = [Arrival(0, f"1.1.1.{n % 3}", f"user{n % names}", good=True) for n in range(60)]
    answers = answered(arrivals)
    assert len(answers) == 60
    # Two threads, ten a check: nobody was checked twice, but perhaps where they met.
    assert max(answers.values()) <= 320


def test_who_leaves_costs_no_check() -> None:
    gone = [Arrival(0, "1.1.1.1", None, leaves=1) for _ in range(1000)]
    answers = answered([*gone, Arrival(2, "1.1.1.1", None)])
    assert answers == {1000: 20}


# ---------------------------------------------------------------------- what the time tells

arrivals = st.builds(
    Arrival,
    at=st.integers(0, 40),
    address=st.sampled_from(["1.1.1.1", "1.1.1.2"]),
    user=st.sampled_from([None, None, "bob", "eve"]),
    good=st.just(False),
    leaves=st.integers(20, 200),
)


@pytest.mark.slow
@given(st.lists(arrivals, max_size=12), arrivals, st.integers(1, 3))
def test_time_of_a_refusal_does_not_tell_whether_the_name_exists(
    others: list[Arrival], probe: Arrival, threads: int
) -> None:
    answers = []
    for name in (None, "alice", "bob"):
        asked = Arrival(probe.at, probe.address, name, leaves=probe.leaves)
        answers.append(answered([*others, asked], threads).get(len(others)))
    assert answers[0] == answers[1] == answers[2]


# ---------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("not:an:address", "not:an:address", True),
    ],
)
def test_one_network_of_ipv6_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (source_of(one) == source_of(other)) == same


# ---------------------------------------------------------------------- in a server


class HashedGate(UserGate):
    """Passwords that take long; counts how often one is checked."""

    def __init__(self, *users: User) -> None:
        super().__init__(users, deferred=True)
        self.checks = 0

    def check(self, credentials):  # type: ignore[no-untyped-def]
        decision = super().check(credentials)
        if not isinstance(decision, DeferredCheck) or decision.user is None:
            return decision

        def decide() -> Identity | Rejection:
            self.checks += 1
            return decision.decide()

        user = self._users[decision.user]
        return DeferredCheck(decide, user.name, self._identity(user), Secret(user.password))


def reload(server: InProcessServer, gate: UserGate) -> None:
    broker = server.broker
    broker.reload(broker.options, {"STANDARD": gate}, {}, identities_changed=True)
    server.run_until_idle()


def connected(server: InProcessServer, password: str = "pw"):  # type: ignore[no-untyped-def]
    return server.connect(b'CONNECT {"user":"alice","pass":"%b"}\r\nPING\r\n' % password.encode())


def test_reload_does_not_check_a_password_again_whose_hash_is_the_same() -> None:
    server = InProcessServer(gate=HashedGate(User("alice", "pw")))
    alice = connected(server)
    server.run_deferred()
    assert alice.take().endswith(b"PONG\r\n")
    changed = HashedGate(User("alice", "pw"), User("bob", "pw"))
    reload(server, changed)
    assert alice.ask(b"PING\r\n") == b"PONG\r\n"
    assert changed.checks == 0


def test_reload_checks_a_password_again_whose_hash_has_changed() -> None:
    server = InProcessServer(gate=HashedGate(User("alice", "pw")))
    alice = connected(server)
    server.run_deferred()
    alice.take()
    changed = HashedGate(User("alice", "other"))
    reload(server, changed)
    assert alice.ask(b"PING\r\n") == b""
    server.run_deferred()
    assert alice.take() == b"-ERR 'Authorization Violation'\r\n"
    assert changed.checks > 0


def test_password_that_was_changed_while_it_waited_does_not_let_in() -> None:
    server = InProcessServer(gate=HashedGate(User("alice", "pw")))
    alice = connected(server)
    check = server.broker.deferred.take()
    assert check is not None
    reload(server, HashedGate(User("alice", "other")))
    server.broker.authenticated(check, check.decide())
    server.run_until_idle()
    assert alice.take() == b""
    server.run_deferred()
    assert alice.take() == b"-ERR 'Authorization Violation'\r\n"


def test_second_connect_is_checked_although_the_first_was_right() -> None:
    server = InProcessServer(gate=HashedGate(User("alice", "pw")))
    alice = connected(server)
    server.run_deferred()
    alice.take()
    alice.send(b'CONNECT {"user":"alice","pass":"wrong"}\r\nPING\r\n')
    server.run_deferred()
    assert alice.take() == b"-ERR 'Authorization Violation'\r\n"
