"""Events of the system account: when they are published and what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from monitor_fakes import SECOND_NS, FakeAccount, FakeBroker, FakeClosedSession, FakeSession

from tradewind.monitor.system_answers import SystemServices
from tradewind.monitor.system_events import (
    ACCOUNT_INTERVAL_NS,
    ACCOUNTS_AT_ONCE_MAX,
    STATSZ_INTERVAL_NS,
    event_id,
)
from tradewind.options import ServerOptions


class Stage:
    """A broker and its services; `take` gives what was published since the last time."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.services = SystemServices(
            self.broker, lambda done: done(None), lambda _cid: False, lambda _cid: False
        )

    def take(self, account: str = "$SYS") -> list[tuple[str, dict[str, Any]]]:
        published = self.broker.accounts[account].published
        events = [(subject, json.loads(body)) for subject, body, _ in published]
        published.clear()
        return events

    def subjects(self, account: str = "$SYS") -> list[str]:
        return [subject for subject, _ in self.take(account)]

    def advance(self, duration_ns: int) -> int:
        self.broker.clock_ns += duration_ns
        return self.services.tick(self.broker.clock_ns)


@pytest.fixture
def stage() -> Stage:
    return Stage()


CONNS = ["$SYS.SERVER.ACCOUNT.A.CONNS", "$SYS.ACCOUNT.A.SERVER.CONNS"]


def closed_of(session: FakeSession, **figures: Any) -> FakeClosedSession:
    values = {
        name: getattr(session, name)
        for name in ("cid", "account", "name", "user", "lang", "version", "is_connected")
    }
    return FakeClosedSession(**{**values, **figures})


def test_a_connect_tells_the_account_and_then_the_client(stage: Stage) -> None:
    stage.services.on_connect(
        stage.broker.add_session(30, name="al", user="alice", lang="python3", version="2")
    )
    events = stage.take()
    assert [subject for subject, _ in events] == [*CONNS, "$SYS.ACCOUNT.A.CONNECT"]
    assert events[0][1]["conns"] == events[1][1]["conns"] == 1
    assert events[0][1]["id"] == events[1][1]["id"] != events[2][1]["id"]
    event = events[2][1]
    assert list(event) == ["type", "id", "timestamp", "server", "client"]
    assert event["type"] == "io.nats.server.advisory.v1.client_connect"
    assert event["client"] == {
        "start": "2026-11-15T19:15:44.583020414Z",
        "host": "127.0.0.1",
        "id": 30,
        "acc": "A",
        "user": "alice",
        "name": "al",
        "lang": "python3",
        "ver": "2",
        "name_tag": "A",
        "kind": "Client",
        "client_type": "nats",
    }


def test_a_disconnect_tells_what_the_client_had_sent(stage: Stage) -> None:
    session = stage.broker.add_session(30, user="alice")
    stage.broker.accounts["A"].session_count = 0
    stage.services.on_disconnect(
        closed_of(session, in_msgs=1, in_bytes=3, out_msgs=2, out_bytes=8, rtt_ns=246_999)
    )
    events = stage.take()
    assert [subject for subject, _ in events] == [*CONNS, "$SYS.ACCOUNT.A.DISCONNECT"]
    event = events[2][1]
    assert event["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert (event["sent"], event["received"]) == (
        {"msgs": 1, "bytes": 3},
        {"msgs": 2, "bytes": 8},
    )
    assert event["reason"] == "Client Closed"
    assert event["client"]["rtt"] == 246_000
    assert event["client"]["stop"] == "2026-11-15T19:15:49.583020414Z"


def test_a_refused_login_is_told_to_the_account_and_the_server(stage: Stage) -> None:
    session = FakeSession(31, stage.broker.accounts["$G"], user="bad", is_connected=False)
    stage.services.on_auth_error(session, "wrong password hunter2")
    (own,) = stage.take("$G")
    (event,) = stage.take()
    assert own[0] == "$SYS.ACCOUNT.CLIENT.AUTH.ERR"
    assert event[0] == f"$SYS.SERVER.{stage.broker.server_id}.CLIENT.AUTH.ERR"
    assert event[1]["reason"] == "Authentication Failure"
    assert (event[1]["client"]["acc"], event[1]["client"]["user"]) == ("$G", "bad")
    assert "hunter2" not in json.dumps([own, event])
    stage.services.on_disconnect(closed_of(session, reason="Authentication Failure"))
    assert stage.subjects() == ["$SYS.ACCOUNT.$G.DISCONNECT"]


def test_a_client_without_account_counts_as_global(stage: Stage) -> None:
    session = FakeSession(31, None, is_connected=False)
    stage.services.on_auth_error(session, "no")
    assert stage.take()[0][1]["client"]["acc"] == "$G"
    stage.services.on_disconnect(closed_of(session))
    assert stage.subjects() == ["$SYS.ACCOUNT.$G.DISCONNECT"]


def test_nothing_is_published_that_nobody_listens_to(stage: Stage) -> None:
    stage.broker.accounts["$SYS"].interest = ("$SYS.ACCOUNT.A.CONNECT",)
    stage.broker.accounts["$G"].interest = ()
    session = stage.broker.add_session(1)
    stage.services.on_connect(session)
    stage.services.on_auth_error(FakeSession(2, stage.broker.accounts["$G"]), "no")
    stage.services.on_disconnect(closed_of(session))
    stage.services.announce_shutdown()
    stage.services.announce_lame_duck()
    stage.advance(60 * SECOND_NS)
    assert stage.subjects() == ["$SYS.ACCOUNT.A.CONNECT"]
    assert stage.take("$G") == []


def test_without_a_system_account_there_are_no_events(stage: Stage) -> None:
    stage.broker.options = ServerOptions(system_account="")
    session = stage.broker.add_session(1)
    stage.services.on_connect(session)
    stage.services.on_auth_error(session, "no")
    stage.services.on_disconnect(closed_of(session))
    stage.services.announce_shutdown()
    stage.advance(60 * SECOND_NS)
    assert not any(account.published for account in stage.broker.accounts.values())


def test_statistics_come_every_ten_seconds(stage: Stage) -> None:
    subject = f"$SYS.SERVER.{stage.broker.server_id}.STATSZ"
    start_ns = stage.broker.clock_ns
    assert stage.advance(STATSZ_INTERVAL_NS - 1) == start_ns + STATSZ_INTERVAL_NS
    assert stage.take() == []
    assert stage.advance(1) == start_ns + 2 * STATSZ_INTERVAL_NS
    ((published, event),) = stage.take()
    assert published == subject
    assert list(event) == ["server", "statsz"]
    stage.advance(1)
    assert stage.take() == []


def test_statistics_are_not_repeated_after_a_long_pause(stage: Stage) -> None:
    stage.advance(100 * STATSZ_INTERVAL_NS)
    assert len(stage.take()) == 1


def test_an_account_in_use_is_told_again_half_a_minute_after_its_last_change(
    stage: Stage,
) -> None:
    stage.broker.accounts["$SYS"].interest = ("$SYS.SERVER.ACCOUNT.>", "$SYS.ACCOUNT.>")
    first, second = stage.broker.add_session(1), stage.broker.add_session(2)
    stage.services.on_connect(first)
    stage.advance(20 * SECOND_NS)
    stage.services.on_connect(second)
    stage.take()
    stage.advance(ACCOUNT_INTERVAL_NS - 1)
    assert stage.take() == []
    stage.advance(1)
    assert stage.subjects() == CONNS
    stage.advance(ACCOUNT_INTERVAL_NS)
    assert stage.subjects() == CONNS


def test_an_account_that_is_empty_or_gone_is_not_told_again(stage: Stage) -> None:
    stage.broker.accounts["$SYS"].interest = ("$SYS.SERVER.ACCOUNT.>", "$SYS.ACCOUNT.>")
    session = stage.broker.add_session(1)
    stage.services.on_connect(session)
    stage.broker.accounts["A"].session_count = 0
    stage.services.on_disconnect(closed_of(session))
    stage.take()
    stage.advance(10 * ACCOUNT_INTERVAL_NS)
    assert stage.take() == []
    stage.services.on_connect(stage.broker.add_session(2))
    del stage.broker.accounts["A"]
    stage.take()
    stage.advance(ACCOUNT_INTERVAL_NS)
    assert stage.take() == []


def test_the_next_call_is_never_in_the_past(stage: Stage) -> None:
    stage.services.on_connect(stage.broker.add_session(1))
    for _ in range(50):
        assert stage.advance(7 * SECOND_NS) > stage.broker.clock_ns


def test_many_accounts_are_told_in_parts(stage: Stage) -> None:
    stage.broker.accounts["$SYS"].interest = ("$SYS.SERVER.ACCOUNT.>",)
    count = 2 * ACCOUNTS_AT_ONCE_MAX + 10
    for number in range(count):
        stage.broker.accounts[f"B{number}"] = FakeAccount(f"B{number}")
        stage.services.on_connect(stage.broker.add_session(number, f"B{number}"))
    stage.take()
    parts = []
    next_ns = stage.advance(ACCOUNT_INTERVAL_NS)
    while subjects := stage.subjects():
        parts.append(len(subjects))
        if next_ns <= stage.broker.clock_ns:
            next_ns = stage.advance(0)
    assert parts == [ACCOUNTS_AT_ONCE_MAX, ACCOUNTS_AT_ONCE_MAX, 10]
    assert next_ns > stage.broker.clock_ns


@pytest.mark.parametrize("what", ["shutdown", "lame_duck"])
def test_leaving_is_announced_with_the_server_alone(stage: Stage, what: str) -> None:
    getattr(stage.services, f"announce_{what}")()
    ((subject, event),) = stage.take()
    name = what.replace("_", "").upper()
    assert subject == f"$SYS.SERVER.{stage.broker.server_id}.{name}"
    assert (event["name"], event["id"]) == ("s1", stage.broker.server_id)


def test_sequence_numbers_grow_over_all_events(stage: Stage) -> None:
    for cid in range(1, 4):
        stage.services.on_connect(stage.broker.add_session(cid))
    numbers = [event["server"]["seq"] for _, event in stage.take()]
    assert numbers == list(range(1, 10))


def test_event_ids_are_22_characters_and_differ() -> None:
    names = {event_id() for _ in range(1000)}
    assert len(names) == 1000
    assert all(len(name) == 22 and name.isalnum() and name.isascii() for name in names)
