"""The answers of servers in words and sums, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.client.api_errors import make_api_error
from tradewind.client.errors import (
    ConnectionClosedError,
    NoRespondersError,
    OperationTimeoutError,
    PermissionsError,
)
from tradewind.dashboard.data.advisories import EVENTS_KEPT_MAX, Advisories, in_words
from tradewind.dashboard.data.connection_data import read_clients
from tradewind.dashboard.data.load_and_usage import add_up
from tradewind.dashboard.data.problems import problem_of

TYPE = "io.nats.jetstream.advisory.v1."
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def answer(name: str, sent: int) -> dict[str, Any]:
    part = {"conns": 2, "num_subscriptions": 3, "slow_consumers": 1}
    counted = {"sent": {"msgs": sent, "bytes": 10}, "received": {"msgs": 1, "bytes": 2}}
    return {"server": {"name": name}, "data": {"account_statz": [part | counted]}}


def test_the_answers_of_all_servers_are_added_up() -> None:
    load = add_up([answer("b", 5), answer("a", 7)], is_whole=False)
    assert [machine.name for machine in load.machines] == ["a", "b"]
    assert (load.messages_out, load.messages_in, load.bytes_out) == (12, 2, 20)
    assert (load.connections, load.subscriptions, load.slow_consumers) == (4, 6, 2)


def test_a_login_of_the_system_account_sees_whole_servers() -> None:
    statsz = {"connections": 9, "subscriptions": 4, "mem": 1000, "cpu": 12.5}
    load = add_up([{"server": {"name": "a"}, "statsz": statsz}], is_whole=True)
    assert (load.connections, load.memory, load.processor) == (9, 1000, 12.5)


@given(st.dictionaries(st.sampled_from(["server", "data", "statsz", "x"]), JSON), st.booleans())
def test_any_answer_is_a_load(document: dict[str, Any], is_whole: bool) -> None:
    add_up([document], is_whole=is_whole)


@pytest.mark.parametrize(
    ("kind", "more", "text"),
    [
        ("stream_action", {"action": "create"}, "Stream S was created."),
        ("consumer_action", {"action": "delete"}, "Consumer C of S was deleted."),
        ("max_deliver", {"stream_seq": 7, "deliveries": 3}, "gave up on message 7"),
        ("terminated", {"stream_seq": 7, "reason": "bad"}, "rejected message 7 permanently: bad."),
        ("consumer_pause", {"paused": True, "pause_until": "T"}, "was paused until T."),
        ("stream_quorum_lost", {}, "has lost its quorum"),
    ],
)
def test_events_are_told_in_plain_words(kind: str, more: dict[str, Any], text: str) -> None:
    document = {"type": TYPE + kind, "stream": "S", "timestamp": "T"}
    if not kind.startswith("stream"):
        document["consumer"] = "C"
    happening = in_words(document | more)
    assert happening is not None
    assert text in happening.text


def test_requests_to_the_api_are_no_events() -> None:
    assert in_words({"type": TYPE + "api_audit"}) is None


def test_repeated_events_are_counted_and_all_are_bounded() -> None:
    events = Advisories()
    told: list[str] = []
    events.on_streams_changed(told.append)
    document = {"type": TYPE + "stream_action", "stream": "S", "action": "modify"}
    for number in range(1000):
        events.add(json.dumps(document | {"timestamp": str(number)}).encode())
    assert [(item.count, item.time) for item in events.newest()] == [(1000, "999")]
    for number in range(500):
        events.add(json.dumps(document | {"stream": f"S{number}"}).encode())
    assert len(events.newest()) == EVENTS_KEPT_MAX
    assert events.newest()[0].stream == "S499"
    assert told[-1] == "S499"


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_may_be_told(data: bytes) -> None:
    Advisories().add(data)


@given(st.dictionaries(st.sampled_from(["type", "stream", "consumer", "action", "reason"]), JSON))
def test_any_event_is_words_or_nothing(document: dict[str, Any]) -> None:
    in_words(document)
    in_words(document | {"type": TYPE + "max_deliver"})


def test_what_a_login_may_not_do_is_no_failure() -> None:
    text = 'Permissions Violation for Publish to "$JS.API.INFO"'
    problem = problem_of(PermissionsError(text, text))
    assert problem.kind == "denied"
    assert "$JS.API.INFO" in problem.text


def test_every_error_of_the_client_has_its_kind() -> None:
    assert problem_of(make_api_error(404, 10059, "stream not found")).kind == "missing"
    assert problem_of(make_api_error(400, 10052, "no")).kind == "refused"
    assert problem_of(ConnectionClosedError("x")).kind == "away"
    assert problem_of(OperationTimeoutError("x")).kind == "away"
    assert problem_of(NoRespondersError("x")).kind == "missing"


def test_errors_of_ours_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        problem_of(ZeroDivisionError())


def test_connections_of_all_servers_are_one_list_and_rubbish_is_passed_over() -> None:
    one = {"server": {"name": "a"}, "data": {"total": 7, "connections": [{"cid": 1, "new": []}]}}
    found = read_clients([json.dumps(one).encode(), b"{", b"[]"])
    assert found.total == 7
    assert [(server, client.cid) for server, client in found.clients] == [("a", 1)]


def consumer_event(action: str, name: str, stream: str = "S") -> bytes:
    document = {"type": TYPE + "consumer_action", "stream": stream, "consumer": name}
    return json.dumps(document | {"action": action, "timestamp": "T"}).encode()


def test_consumers_that_come_and_go_are_counted_in_one_line() -> None:
    events = Advisories()
    events.add(consumer_event("create", "durable"))
    for number in range(500):
        events.add(consumer_event("create", f"brief{number}"))
        events.add(consumer_event("delete", f"brief{number}"))
    assert [(item.text, item.count) for item in events.newest()] == [
        ("A consumer of S was created and deleted again.", 500),
        ("Consumer durable of S was created.", 1),
    ]


def test_many_consumers_at_a_time_do_not_displace_other_events() -> None:
    events = Advisories()
    for action in ("create", "delete"):
        for number in range(500):
            events.add(consumer_event(action, f"c{number}"))
            events.add(consumer_event(action, f"d{number}", "OTHER"))
    assert len(events.newest()) <= 12
    assert sum(item.count for item in events.newest()) <= 2000


def test_rejected_messages_of_a_consumer_are_one_line_with_the_newest() -> None:
    events = Advisories()
    document = {"type": TYPE + "terminated", "stream": "S", "timestamp": "T"}
    for number in range(9):
        for consumer in ("a", "b"):
            more = {"consumer": consumer, "stream_seq": number, "reason": "bad"}
            events.add(json.dumps(document | more).encode())
    assert [(item.consumer, item.count) for item in events.newest()] == [("b", 9), ("a", 9)]
    assert "message 8" in events.newest()[0].text
