"""The accounts of a server in operator mode: which JWTs it believes, and when it asks again."""

from __future__ import annotations

from jwt_kit import OPERATOR, OPERATOR_SIGNER, STRANGER, account_jwt, account_key
from tradewind.jwt.claims import Export
from tradewind.server.operators.account_book import (
    FAILURES_MAX,
    INVALID,
    MISSING,
    RETRY_NS,
    AccountBook,
    KnownAccount,
)
from tradewind.server.operators.trust import Trust
from tradewind.testing.fake_clock import FakeClock

KEY, OTHER = account_key(1), account_key(2)
TRUST = Trust(frozenset({OPERATOR.public, OPERATOR_SIGNER.public}))
SECOND_NS = 10**9


def book() -> tuple[AccountBook, FakeClock, list[str]]:
    clock = FakeClock()
    changes: list[str] = []
    return AccountBook(TRUST, clock, changes.append), clock, changes


def seconds(clock: FakeClock) -> int:
    return clock.wall_ns() // SECOND_NS


def test_an_account_is_fetched_once_and_kept() -> None:
    accounts, _, changes = book()
    assert accounts.find(KEY.public) is None
    accounts.fetched(KEY.public, account_jwt(KEY, OPERATOR_SIGNER))
    assert isinstance(accounts.find(KEY.public), KnownAccount)
    assert changes == [KEY.public]


def test_a_jwt_of_another_account_is_not_believed() -> None:
    accounts, _, changes = book()
    accounts.fetched(KEY.public, account_jwt(OTHER))
    assert accounts.find(KEY.public) == INVALID
    assert accounts.find(OTHER.public) is None
    assert changes == []


def test_only_trusted_operators_make_accounts() -> None:
    for signer in (STRANGER, KEY):
        accounts, _, _ = book()
        accounts.fetched(KEY.public, account_jwt(KEY, signer))
        assert accounts.find(KEY.public) == INVALID


def test_invalid_claims_and_times_are_refused_with_their_reasons() -> None:
    accounts, clock, _ = book()
    wrong = account_jwt(KEY, exports=[Export(subject="a b", type="stream")])
    assert accounts.learn(KEY.public, wrong) == (
        'validation errors: [subject "a b" cannot have spaces]'
    )
    expired = account_jwt(KEY, top={"exp": seconds(clock) - 1})
    assert accounts.learn(KEY.public, expired) == "validation errors: [claim is expired]"
    assert accounts.learn(KEY.public, "x") == "expected 3 chunks"


def test_a_failure_is_remembered_for_a_second() -> None:
    accounts, clock, _ = book()
    accounts.fetched(KEY.public, None)
    assert accounts.find(KEY.public) == MISSING
    clock.advance_ns(SECOND_NS)
    assert accounts.find(KEY.public) is None


def test_a_failure_is_forgotten_when_the_account_is_pushed() -> None:
    accounts, _, _ = book()
    accounts.fetched(KEY.public, None)
    accounts.ask_again(KEY.public)
    assert accounts.find(KEY.public) is None


def test_failures_of_accounts_that_nobody_has_take_bounded_memory() -> None:
    accounts, _, _ = book()
    for number in range(FAILURES_MAX + 10):
        accounts.fetched(f"A{number}", None)
    assert len(accounts._failures) == FAILURES_MAX


def test_an_expired_account_is_fetched_again_and_may_come_back() -> None:
    accounts, clock, _ = book()
    first = account_jwt(KEY, top={"exp": seconds(clock) + 10})
    accounts.fetched(KEY.public, first)
    clock.advance_ns(11 * SECOND_NS)
    assert accounts.find(KEY.public) is None, "asked for again"
    accounts.fetched(KEY.public, first)
    known = accounts.find(KEY.public)
    assert isinstance(known, KnownAccount), "not asked for again at once"
    assert known.is_expired(clock.wall_ns())
    clock.advance_ns(SECOND_NS)
    assert accounts.find(KEY.public) is None
    accounts.fetched(KEY.public, account_jwt(KEY))
    known = accounts.find(KEY.public)
    assert isinstance(known, KnownAccount)
    assert not known.is_expired(clock.wall_ns())


def test_the_same_bytes_change_nothing_and_do_not_bring_back_a_deleted_account() -> None:
    accounts, clock, changes = book()
    token = account_jwt(KEY, issued_at=1)
    accounts.learn(KEY.public, token)
    accounts.learn(KEY.public, token)
    assert changes == [KEY.public]
    assert accounts.delete(KEY.public)
    accounts.learn(KEY.public, token)
    assert accounts.accounts[KEY.public].is_expired(clock.wall_ns())
    accounts.learn(KEY.public, account_jwt(KEY, issued_at=2))
    assert not accounts.accounts[KEY.public].is_expired(clock.wall_ns())
    assert not accounts.delete(OTHER.public)


def test_revocations_count_for_jwts_that_were_issued_before() -> None:
    accounts, _, _ = book()
    accounts.learn(KEY.public, account_jwt(KEY, revocations={"U1": 10, "*": 5}))
    known = accounts.accounts[KEY.public]
    assert [known.is_revoked("U1", at) for at in (9, 10, 11)] == [True, True, False]
    assert [known.is_revoked("U2", at) for at in (-9, 5, 6)] == [True, True, False]


def test_a_clock_that_is_set_back_does_not_prolong_the_wait_for_an_account() -> None:
    accounts, clock, _ = book()
    accounts.fetched(KEY.public, None)
    assert accounts.find(KEY.public) == MISSING
    clock.jump_ns(-365 * 86_400 * SECOND_NS)
    clock.advance_ns(RETRY_NS)
    assert accounts.find(KEY.public) is None
