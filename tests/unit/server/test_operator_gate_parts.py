"""Parts of the gate in operator mode: times, addresses, templates, accounts to be fetched."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwt_kit import OPERATOR, account_jwt, account_key, user_key
from tradewind.jwt.claims import (
    ResponseClaims,
    ScopeTemplate,
    SubjectClaims,
    TimeRange,
    UserRestrictions,
    new_account,
    new_user,
)
from tradewind.route.permission_rules import PermissionRules, ResponseRule
from tradewind.server.auth.restrictions import (
    connection_types,
    may_come_from,
    permission_rules,
    seconds_left,
    smallest,
)
from tradewind.server.auth.scope_templates import SUBJECTS_MAX, fill_template
from tradewind.server.operators import lookups
from tradewind.server.operators.account_book import AccountBook, KnownAccount
from tradewind.server.operators.lookups import AccountLookups
from tradewind.server.operators.resolvers import ResolverError
from tradewind.server.operators.trust import Trust
from tradewind.testing.fake_clock import FakeClock

# ---------------------------------------------------------------- times and addresses


def at(text: str) -> int:
    return int(datetime.fromisoformat(f"2026-03-01T{text}+00:00").timestamp() * 10**9)


def left(now: str, *windows: tuple[str, str], zone: str = "UTC") -> float | None:
    times = [TimeRange(start=start, end=end) for start, end in windows]
    return seconds_left(UserRestrictions(times=times, times_location=zone), at(now))


def test_times_hold_inside_a_window_and_the_longest_counts() -> None:
    assert left("12:00:00") is None
    assert left("12:00:00", ("08:00:00", "13:00:00")) == 3600
    assert left("12:00:00", ("08:00:00", "13:00:00"), ("11:00:00", "14:00:00")) == 7200
    assert left("07:59:59", ("08:00:00", "13:00:00")) == 0
    assert left("13:00:00", ("08:00:00", "13:00:00")) == 0
    assert left("12:00:00", ("12:00:00", "12:00:00")) == 0


def test_a_window_may_cross_midnight_and_has_a_zone() -> None:
    night = ("22:00:00", "06:00:00")
    assert left("23:00:00", night) == 7 * 3600
    assert left("05:00:00", night) == 3600
    assert left("12:00:00", night) == 0
    assert left("23:00:00", ("00:30:00", "01:00:00"), zone="Europe/Berlin") == 0
    assert left("23:45:00", ("00:30:00", "01:00:00"), zone="Europe/Berlin") == 900


@given(st.integers(0, 86399), st.integers(0, 86399), st.integers(0, 86399))
def test_windows_agree_with_counting_seconds(start: int, end: int, now: int) -> None:
    def text(second: int) -> str:
        return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"

    inside = (now - start) % 86400 < (end - start) % 86400 and now != start
    found = left(text(now), (text(start), text(end)))
    assert found == ((end - now) % 86400 if inside else 0)


def test_addresses() -> None:
    inside = UserRestrictions(src=["10.0.0.0/8", "::1/128"])
    assert [may_come_from(inside, address) for address in ("10.1.2.3", "::1", "::ffff:10.0.0.9")]
    for address in ("11.0.0.1", "::2", "", "x"):
        assert not may_come_from(inside, address)
    assert may_come_from(UserRestrictions(), "x")


def test_connection_types_that_nobody_knows_leave_nothing() -> None:
    assert connection_types(None) == frozenset()
    assert connection_types(["websocket", "Foo"]) == {"WEBSOCKET"}
    assert connection_types(["Foo"]) is None


def test_permissions_and_limits() -> None:
    assert permission_rules(UserRestrictions(pub=SubjectClaims(allow=[], deny=[]))) is None
    answers = permission_rules(UserRestrictions(resp=ResponseClaims()))
    assert answers == PermissionRules(publish_allow=(), responses=ResponseRule())
    assert (smallest(-1, 5, 3), smallest(-1, -1), smallest(0, 7)) == (3, -1, 0)


# ---------------------------------------------------------------- templates

ACCOUNT = new_account(account_key(1).public, "acc")
ACCOUNT.nats.tags = ["dept:it", "dept:hr"]
USER = new_user(user_key(1).public, "ann")
USER.nats.tags = ["team:a", "team:b", "bad:x..y"]


def filled(**lists: list[str]) -> ScopeTemplate | None:
    rules = SubjectClaims(**lists)  # type: ignore[arg-type]
    return fill_template(ScopeTemplate(sub=rules), USER, ACCOUNT)


def allowed(*subjects: str) -> list[str] | None:
    template = filled(allow=list(subjects))
    assert template is not None
    return template.sub.allow


def test_templates_are_filled_in_for_the_user() -> None:
    assert allowed("{{name()}}.x.{{SUBJECT()}}") == [f"ann.x.{USER.sub}"]
    assert allowed("{{account-name()}}.{{ account-subject() }}") == [f"acc.{ACCOUNT.sub}"]
    assert allowed("{{tag(team)}}.{{account-tag(dept)}}") == ["a.it", "a.hr", "b.it", "b.hr"]
    assert allowed("plain", "plain queue") == ["plain", "plain queue"]


def test_what_cannot_be_filled_in_opens_nothing() -> None:
    assert allowed("{{tag(none)}}", "x") == ["x"]
    template = filled(allow=["{{tag(none)}}"])
    assert template is not None
    assert (template.sub.allow, template.sub.deny) == ([], [">"])
    assert allowed("{{tag(bad)}}", "x") == ["x"]
    assert filled(deny=["{{tag(none)}}"]) is None
    assert filled(deny=["{{tag(bad)}}"]) is None
    assert filled(allow=["{{secret()}}"]) is None


def test_templates_do_not_grow_without_bound() -> None:
    many = new_user(USER.sub, "many")
    many.nats.tags = [f"t:{number}" for number in range(100)]
    rules = SubjectClaims(allow=["{{tag(t)}}.{{tag(t)}}.{{tag(t)}}.{{tag(t)}}.{{tag(t)}}"])
    assert fill_template(ScopeTemplate(pub=rules), many, ACCOUNT) is None
    assert SUBJECTS_MAX < 100 * 100
    lists = SubjectClaims(allow=["{{tag(t)}}"] * 100)
    assert fill_template(ScopeTemplate(pub=lists), many, ACCOUNT) is None


# ---------------------------------------------------------------- accounts that are fetched

KEY = account_key(7)


class SlowResolver:
    """Answers when it is told to."""

    is_immediate = False

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = threading.Event()

    def fetch(self, key: str) -> str | None:
        self.asked.append(key)
        assert self.may_answer.wait(20)
        if key == account_key(8).public:
            raise ResolverError("could not fetch: timed out")
        return account_jwt(KEY) if key == KEY.public else None


def lookups_of(resolver: SlowResolver) -> tuple[AccountBook, AccountLookups, list[str]]:
    trust = Trust(frozenset({OPERATOR.public}))
    book = AccountBook(trust, FakeClock(), lambda _key: None)
    errors: list[str] = []
    return book, AccountLookups(book, resolver, errors.append), errors


async def test_an_account_is_fetched_once_for_all_who_wait() -> None:
    resolver = SlowResolver()
    book, lookup, errors = lookups_of(resolver)
    told = asyncio.Queue[int]()
    for number in range(5):
        assert lookup.fetch(KEY.public, "10.0.0.1", lambda number=number: told.put_nowait(number))
    assert lookup.fetch(account_key(8).public, "10.0.0.2", lambda: told.put_nowait(8))
    assert told.empty()
    resolver.may_answer.set()
    assert {await asyncio.wait_for(told.get(), 20) for _ in range(6)} == {0, 1, 2, 3, 4, 8}
    assert sorted(resolver.asked) == sorted((KEY.public, account_key(8).public))
    assert isinstance(book.find(KEY.public), KnownAccount)
    assert book.find(account_key(8).public) == "fetching jwt timed out"
    assert len(errors) == 1
    lookup.stop()


async def test_a_fault_of_one_who_waits_does_not_stop_the_others() -> None:
    resolver = SlowResolver()
    _, lookup, errors = lookups_of(resolver)
    told = asyncio.Queue[int]()

    def fail() -> None:
        raise ZeroDivisionError

    lookup.fetch(KEY.public, "10.0.0.1", fail)
    lookup.fetch(KEY.public, "10.0.0.1", lambda: told.put_nowait(1))
    turns = asyncio.Queue[None]()
    lookup.turn_needed = lambda: turns.put_nowait(None)
    resolver.may_answer.set()
    assert await asyncio.wait_for(told.get(), 20) == 1
    await asyncio.wait_for(turns.get(), 20)
    assert errors == [f"A login to account [{KEY.public}] has failed: ZeroDivisionError()"]
    lookup.stop()


async def test_a_resolver_that_fails_as_nobody_expects_has_not_found_the_account() -> None:
    class FaultyResolver(SlowResolver):
        def fetch(self, key: str) -> str | None:
            raise ZeroDivisionError(key)

    book, lookup, errors = lookups_of(FaultyResolver())
    told = asyncio.Queue[int]()
    lookup.fetch(KEY.public, "10.0.0.1", lambda: told.put_nowait(1))
    assert await asyncio.wait_for(told.get(), 20) == 1
    assert isinstance(book.find(KEY.public), str)
    assert len(errors) == 1
    lookup.stop()


async def test_names_of_accounts_that_nobody_has_wait_in_bounded_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "WAITING_MAX", 20)
    # Of several threads nobody knows which one is first.
    monkeypatch.setattr(lookups, "LOOKUP_THREADS", 1)
    resolver = SlowResolver()
    _, lookup, _ = lookups_of(resolver)
    told = asyncio.Queue[int]()
    taken = [
        lookup.fetch(f"A{number}", "10.0.0.1", lambda: told.put_nowait(1)) for number in range(30)
    ]
    assert taken == [True] * 20 + [False] * 10
    # Somebody else has the next turn but one all the same: addresses take turns.
    monkeypatch.setattr(lookups, "WAITING_MAX", 30)
    assert lookup.fetch(KEY.public, "10.0.0.2", lambda: told.put_nowait(2))
    resolver.may_answer.set()
    order = [await asyncio.wait_for(told.get(), 20) for _ in range(21)]
    assert order.index(2) == 2
    lookup.stop()


def test_the_clock_of_these_tests_is_in_utc() -> None:
    assert datetime.fromtimestamp(at("00:00:00") / 10**9, UTC).hour == 0
