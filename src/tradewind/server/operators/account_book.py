"""The accounts that a server in operator mode knows, each with its newest JWT.

Owns the checks of an account JWT (its signer, its account, its validity), and how long a failed
lookup is cached. It never fetches a JWT, which is up to `resolvers`. It is used in the event loop
only.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tradewind.clock import Clock
from tradewind.durations import SECOND_NS
from tradewind.jwt import AccountClaims, JwtError, decode_as
from tradewind.jwt.claim_rules import blocking_texts
from tradewind.jwt.claims import EVERYBODY, UserScope
from tradewind.server.operators.trust import Trust

# For this long, a missing or expired account is not fetched again.
RETRY_NS = 1_000_000_000
FAILURES_MAX = 4096

MISSING = "account missing"
INVALID = "account validation failed"
TIMED_OUT = "fetching jwt timed out"


class KnownAccount(msgspec.Struct):
    """An account in use, with its current JWT."""

    claims: AccountClaims
    token: str
    scopes: dict[str, UserScope | None]
    fetched_ns: int
    is_deleted: bool = False

    def is_expired(self, now_ns: int) -> bool:
        """Whether the account has expired or was deleted."""
        return self.is_deleted or 0 < self.claims.exp * SECOND_NS <= now_ns

    def is_revoked(self, user: str, issued_at: int) -> bool:
        """Whether a user's JWTs that were issued at that time have been revoked."""
        revocations = self.claims.nats.revocations
        times = (revocations.get(user), revocations.get(EVERYBODY))
        return any(time is not None and time >= issued_at for time in times)


class AccountBook:
    """The known accounts; `changed(key)` is called after an account was added or changed."""

    def __init__(self, trust: Trust, clock: Clock, changed: Callable[[str], None]) -> None:
        self.trust = trust
        self._clock = clock
        self._changed = changed
        self.accounts: dict[str, KnownAccount] = {}
        self._failures: dict[str, tuple[str, int]] = {}

    def find(self, key: str) -> KnownAccount | str | None:
        """The account, a text that says why there is none, or None if it must be fetched."""
        now_ns = self._clock.monotonic_ns()
        known = self.accounts.get(key)
        if known is not None:
            is_expired = known.is_expired(self._clock.wall_ns())
            may_be_renewed = is_expired and now_ns >= known.fetched_ns + RETRY_NS
            if not may_be_renewed:
                return known
        failure = self._failures.get(key)
        if failure is not None and now_ns < failure[1]:
            return known or failure[0]
        return None

    def fetched(self, key: str, token: str | None, reason: str = MISSING) -> None:
        """Called with a resolver's result for an account that was unknown or has expired."""
        known = self.accounts.get(key)
        if known is not None:
            known.fetched_ns = self._clock.monotonic_ns()
        if token is None:
            self._fail(key, reason)
        elif known is None or token != known.token:
            problem = self.learn(key, token)
            if problem:
                self._fail(key, INVALID)

    def ask_again(self, key: str) -> None:
        """Called when the source of accounts has something new for this account."""
        self._failures.pop(key, None)

    def learn(self, key: str, token: str) -> str:
        """Apply a received JWT of an account; returns why it cannot be used, or an empty text."""
        known = self.accounts.get(key)
        if known is not None and known.token == token:
            return ""
        claims, problem = self.checked(key, token)
        if claims is None:
            return problem
        self._failures.pop(key, None)
        self.accounts[key] = KnownAccount(
            claims, token, claims.scopes(), self._clock.monotonic_ns()
        )
        self._changed(key)
        return ""

    def checked(self, key: str, token: str) -> tuple[AccountClaims | None, str]:
        """The claims of a JWT that this server may use for an account, or the reason against it."""
        try:
            claims = decode_as(AccountClaims, token)
        except JwtError as error:
            return None, str(error)
        if claims.sub != key:
            return None, "subject does not match jwt content"
        if claims.iss not in self.trust.keys:
            return None, INVALID
        texts = blocking_texts(claims, self._clock.wall_ns() // SECOND_NS)
        if texts:
            return None, f"validation errors: [{' '.join(texts)}]"
        return claims, ""

    def delete(self, key: str) -> bool:
        """Mark an account as deleted; False if it was not in use."""
        known = self.accounts.get(key)
        if known is None:
            return False
        known.is_deleted = True
        self._changed(key)
        return True

    def _fail(self, key: str, reason: str) -> None:
        if len(self._failures) >= FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = reason, self._clock.monotonic_ns() + RETRY_NS
