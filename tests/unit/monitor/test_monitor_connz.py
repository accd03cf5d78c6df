"""/connz: choosing, sorting, cutting and describing connections."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_fakes import SECOND_NS, START_NS, FakeBroker, FakeSession, FakeSubscription

from tradewind.monitor import connz
from tradewind.monitor.connz import SORTS, build_connz
from tradewind.monitor.formats import compact_json
from tradewind.monitor.page_options import STATE_ANY, STATE_CLOSED, ConnzOptions
from tradewind.monitor.parameters import PageError
from tradewind.monitor.stepping import at_once


def page(broker: FakeBroker, **options: Any) -> Any:
    return at_once(build_connz(broker, ConnzOptions(**options), broker.now_ns()))


def cids(broker: FakeBroker, **options: Any) -> list[int]:
    return [connection.cid for connection in page(broker, **options).connections]


@pytest.fixture
def broker() -> FakeBroker:
    """Three open connections and two closed ones whose figures all differ."""
    broker = FakeBroker()
    broker.add_session(
        8, name="A", user="alice", in_msgs=1, out_msgs=5, in_bytes=1, out_bytes=15, rtt_ns=412_000,
        start_ns=START_NS, last_activity_ns=START_NS + 30 * SECOND_NS, pending_bytes=3,
        subscription_list=[FakeSubscription("a", cid=8, account="A", msgs=5)],
    )  # fmt: skip
    broker.add_session(
        9, name="B", user="bob", in_msgs=2, out_msgs=2, in_bytes=200, out_bytes=200,
        rtt_ns=416_000, start_ns=START_NS + SECOND_NS, last_activity_ns=START_NS + 20 * SECOND_NS,
        pending_bytes=9,
        subscription_list=[
            FakeSubscription("b", cid=9, account="A"),
            FakeSubscription("b.*", queue="q", sid="2", cid=9, account="A", max_msgs=7),
        ],
    )  # fmt: skip
    broker.add_session(
        10, "$G", name="C", in_msgs=5, out_msgs=0, in_bytes=15, out_bytes=0, rtt_ns=407_000,
        start_ns=START_NS + 2 * SECOND_NS, last_activity_ns=START_NS + 10 * SECOND_NS,
    )  # fmt: skip
    broker.add_closed(
        5, user="alice", reason="Read Error", start_ns=START_NS - 90 * SECOND_NS,
        stop_ns=START_NS + 40 * SECOND_NS, last_activity_ns=START_NS + 39 * SECOND_NS,
    )  # fmt: skip
    broker.add_closed(
        4, "$G", reason="Authentication Timeout", start_ns=START_NS, last_activity_ns=START_NS,
        stop_ns=START_NS + 50 * SECOND_NS,
    )  # fmt: skip
    return broker


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("", [8, 9, 10]),
        ("cid", [8, 9, 10]),
        ("start", [8, 9, 10]),
        ("subs", [9, 8, 10]),
        ("pending", [9, 8, 10]),
        ("msgs_to", [8, 9, 10]),
        ("msgs_from", [10, 9, 8]),
        ("bytes_to", [9, 8, 10]),
        ("bytes_from", [9, 10, 8]),
        ("last", [8, 9, 10]),
        ("idle", [10, 9, 8]),
        ("uptime", [10, 9, 8]),
        ("rtt", [9, 8, 10]),
    ],
)
def test_open_connections_sort_in_the_official_direction(
    broker: FakeBroker, sort: str, expected: list[int]
) -> None:
    assert cids(broker, sort=sort) == expected


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("stop", [4, 5]), ("reason", [4, 5]), ("uptime", [4, 5]), ("idle", [4, 5]), ("last", [5, 4])],
)
def test_closed_connections_sort_by_their_own_end(
    broker: FakeBroker, sort: str, expected: list[int]
) -> None:
    assert cids(broker, sort=sort, state=STATE_CLOSED) == expected


FIGURES = st.fixed_dictionaries(
    {
        "in_msgs": st.integers(0, 3),
        "out_msgs": st.integers(0, 3),
        "in_bytes": st.integers(0, 3),
        "out_bytes": st.integers(0, 3),
        "pending_bytes": st.integers(0, 3),
        "rtt_ns": st.integers(0, 3),
        "start_ns": st.integers(START_NS, START_NS + 3),
        "last_activity_ns": st.integers(START_NS + 3, START_NS + 6),
    }
)
# Written down apart from the code: what is compared, and whether the largest comes first.
NAIVE = {
    "cid": (lambda s, now: s.cid, False),
    "start": (lambda s, now: s.start_ns, False),
    "subs": (lambda s, now: len(s.subscription_list), True),
    "pending": (lambda s, now: s.pending_bytes, True),
    "msgs_to": (lambda s, now: s.out_msgs, True),
    "msgs_from": (lambda s, now: s.in_msgs, True),
    "bytes_to": (lambda s, now: s.out_bytes, True),
    "bytes_from": (lambda s, now: s.in_bytes, True),
    "last": (lambda s, now: s.last_activity_ns, True),
    "idle": (lambda s, now: now - s.last_activity_ns, True),
    "uptime": (lambda s, now: now - s.start_ns, False),
    "rtt": (lambda s, now: s.rtt_ns, True),
}


@given(
    st.lists(FIGURES, max_size=12),
    st.permutations(range(1, 13)),
    st.sampled_from(sorted(NAIVE)),
    st.integers(0, 14),
    st.integers(1, 14),
)
def test_every_page_is_the_slice_of_a_naive_sort(
    figures: list[dict[str, int]], order: list[int], sort: str, offset: int, limit: int
) -> None:
    broker = FakeBroker()
    for cid, values in zip(order, figures, strict=False):
        broker.add_session(cid, **values)
    key, largest_first = NAIVE[sort]
    now_ns = broker.now_ns()
    expected: list[int] = []
    left = sorted(broker.sessions)
    while left:  # selection sort: the best value, and among equals the lowest id
        values = {cid: key(broker.sessions[cid], now_ns) for cid in left}
        best = max(values.values()) if largest_first else min(values.values())
        chosen = min(cid for cid in left if values[cid] == best)
        expected.append(chosen)
        left.remove(chosen)
    result = page(broker, sort=sort, offset=offset, limit=limit)
    assert [c.cid for c in result.connections] == expected[offset : offset + limit]
    assert (result.total, result.num_connections) == (len(figures), len(result.connections))


def test_the_naive_table_knows_every_sort_of_open_connections() -> None:
    assert set(SORTS) - {"stop", "reason"} == set(NAIVE)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sort": "xx"}, "invalid sorting option: xx"),
        ({"sort": "stop"}, "sort by stop only valid on closed connections"),
        ({"sort": "reason", "state": STATE_ANY}, "sort by reason only valid on closed connections"),
        ({"filter_subject": "a"}, "filter by subject only valid with account filtering"),
    ],
)
def test_contradictions_are_refused(broker: FakeBroker, options: dict, text: str) -> None:
    with pytest.raises(PageError) as caught:
        page(broker, **options)
    assert str(caught.value) == text


def test_no_connection_is_in_a_state_that_does_not_exist(broker: FakeBroker) -> None:
    found = page(broker, state=7)
    assert (found.total, found.connections) == (0, [])


def test_states_choose_open_closed_or_both(broker: FakeBroker) -> None:
    assert cids(broker) == [8, 9, 10]
    assert cids(broker, state=STATE_CLOSED) == [4, 5]
    assert cids(broker, state=STATE_ANY) == [4, 5, 8, 9, 10]


def test_a_connection_id_gives_a_page_of_one(broker: FakeBroker) -> None:
    result = page(broker, cid=9, limit=50, offset=3)
    assert [c.cid for c in result.connections] == [9]
    assert (result.limit, result.offset, result.total) == (1, 0, 3)
    assert cids(broker, cid=5) == []
    assert cids(broker, cid=5, state=STATE_ANY) == [5]


def test_filters_by_user_and_account_differ_in_what_they_call_total(broker: FakeBroker) -> None:
    by_user = page(broker, user="alice", state=STATE_ANY)
    assert ([c.cid for c in by_user.connections], by_user.total) == ([5, 8], 5)
    by_account = page(broker, acc="A", state=STATE_ANY)
    assert ([c.cid for c in by_account.connections], by_account.total) == ([5, 8, 9], 3)


def test_an_unknown_account_has_no_list_at_all(broker: FakeBroker) -> None:
    result = page(broker, acc="NOPE")
    assert (result.server_id, result.connections, result.total) == ("", None, 0)


def test_subjects_filter_within_an_account(broker: FakeBroker) -> None:
    assert cids(broker, acc="A", filter_subject="a") == [8]
    assert cids(broker, acc="A", filter_subject="b.>") == [9]
    assert cids(broker, acc="A", filter_subject="*") == [8, 9]
    assert cids(broker, acc="A", filter_subject="zz") == []
    assert page(broker, acc="A", filter_subject="zz").total == 2


def test_there_are_no_mqtt_clients(broker: FakeBroker) -> None:
    result = page(broker, mqtt_client="x")
    assert (result.connections, result.total) == ([], 3)


def test_subscriptions_are_listed_only_on_request(broker: FakeBroker) -> None:
    plain = page(broker).connections[1]
    assert b"subscriptions_list" not in compact_json(plain)
    assert page(broker, subscriptions=True).connections[1].subscriptions_list == ["b", "b.*"]
    detail = page(broker, subscriptions_detail=True).connections[1].subscriptions_list_detail
    assert compact_json(detail) == (
        b'[{"subject":"b","sid":"1","msgs":0,"cid":9},'
        b'{"subject":"b.*","qgroup":"q","sid":"2","msgs":0,"max":7,"cid":9}]'
    )


def test_identity_is_shown_only_on_request(broker: FakeBroker) -> None:
    assert b"alice" not in compact_json(page(broker))
    shown = page(broker, auth=True).connections
    assert (shown[0].authorized_user, shown[0].account, shown[0].name_tag) == ("alice", "A", "A")
    global_member = compact_json(shown[2])
    assert b'"name_tag":"$G"' in global_member
    assert b'"account"' not in global_member
    assert b'"authorized_user"' not in global_member


def test_a_closed_connection_counts_until_its_end(broker: FakeBroker) -> None:
    closed = page(broker, cid=5, state=STATE_CLOSED).connections[0]
    assert (closed.uptime, closed.idle, closed.reason) == ("2m10s", "1s", "Read Error")
    assert closed.stop == "2026-11-15T19:16:24.583020414Z"
    opened = page(broker, cid=8).connections[0]
    assert (opened.uptime, opened.idle, opened.rtt) == ("1m2s", "32s", "412µs")
    assert not {"stop", "reason"} & set(_fields(opened))


def _fields(document: Any) -> list[str]:
    return list(json.loads(compact_json(document)))


def test_only_the_page_is_described() -> None:
    broker = FakeBroker()
    for cid in range(1, 101):
        broker.add_session(cid, subscription_list=[FakeSubscription("s")])
    page(broker, limit=10, offset=20, subscriptions=True)
    described = [cid for cid, session in broker.sessions.items() if session.described]
    assert described == list(range(21, 31))


def test_a_page_ends_early_when_it_lists_very_many_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connz, "SUBSCRIPTIONS_LISTED_MAX", 10)
    broker = FakeBroker()
    for cid in range(1, 6):
        many = [FakeSubscription(f"s.{n}") for n in range(6)]
        broker.add_session(cid, subscription_list=many)
    result = page(broker, subscriptions=True)
    assert [c.cid for c in result.connections] == [1, 2]
    assert (result.num_connections, result.total) == (2, 5)
    assert cids(broker, subscriptions=True, offset=2) == [3, 4]
    assert cids(broker) == [1, 2, 3, 4, 5]


class CountedSession(FakeSession):
    """Counts how often any of them is asked for the figure that they are sorted by."""

    asked = 0

    @property
    def sent(self) -> int:
        CountedSession.asked += 1
        return self.cid * 7919 % 10_007


def test_ten_thousand_connections_do_not_stall_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step asks many of them, and none of them is asked often."""
    monkeypatch.setattr(CountedSession, "asked", 0)
    monkeypatch.setitem(SORTS, "msgs_to", lambda session, _now_ns: session.sent)
    count = 10_000
    broker = FakeBroker()
    broker.sessions.update({cid: CountedSession(cid) for cid in range(1, count + 1)})
    steps = build_connz(broker, ConnzOptions(sort="msgs_to"), broker.now_ns())
    asked = [CountedSession.asked for _ in steps]
    assert max(after - before for before, after in pairwise(asked)) <= connz.CONNECTIONS_STEP
    assert asked[-1] == count
