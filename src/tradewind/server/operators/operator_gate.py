"""The gate in operator mode: a user logs in with a JWT signed by its account.

Owns the order of the checks, which is that of nats-server, in one function. The details of each
check are elsewhere: accounts in `server.operators`, restrictions and templates in the modules of
this package. Like the other gate, it never raises and never blocks: if an account must be fetched
first, it returns a `PendingLogin`.

A JWT that cannot be parsed or verified is treated as missing. Verifying its signature is the
expensive part and its result never changes, so the most recent results are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from msgspec.structs import replace

from tradewind import nkeys
from tradewind.broker.identity import (
    Consultation,
    Credentials,
    Identity,
    PendingLogin,
    Rejection,
    UserLimits,
)
from tradewind.broker.proxies import proxy_required
from tradewind.clock import Clock
from tradewind.durations import SECOND_NS
from tradewind.jwt import JwtError, UserClaims
from tradewind.jwt.claim_rules import blocking_texts
from tradewind.jwt.claims import EVERYBODY, UserFields, UserRestrictions, UserScope
from tradewind.jwt.codec import reader
from tradewind.options import OperatorOptions
from tradewind.server.auth.callout_client import (
    CalloutClient,
    CalloutService,
    shown_name,
    without_questions,
)
from tradewind.server.auth.callout_requests import ClaimedUser
from tradewind.server.auth.restrictions import (
    connection_types,
    may_come_from,
    permission_rules,
    seconds_left,
    smallest,
)
from tradewind.server.auth.scope_templates import fill_template
from tradewind.server.operators.account_book import AccountBook, KnownAccount
from tradewind.wire import ops

REMEMBERED_MAX = 4096
REMEMBERED_BYTES_MAX = 8192

NEEDS_JWT = "Authentication requires a user JWT"
_OWN_FIELDS = ("issuer_account", "tags", "type", "version")


class Lookup(Protocol):
    """Fetches accounts that are not in the book."""

    def fetch(self, key: str, address: str, resume: Callable[[], None]) -> bool:
        """Call `resume` once the book has an answer; False if too many callers wait already."""


class OperatorGate:
    """Implements `broker.identity.Gate`; a single gate serves all listeners."""

    auth_required = True
    is_required = True
    nonce_required = True

    def __init__(
        self,
        options: OperatorOptions,
        system_account: str,
        book: AccountBook,
        lookup: Lookup,
        clock: Clock,
        callouts: CalloutClient,
    ) -> None:
        self._callouts = callouts
        self._book = book
        self._lookup = lookup
        self._clock = clock
        self._sentinel = options.default_sentinel
        self._pinned = options.pinned_accounts
        if self._pinned:
            self._pinned |= {system_account}
        self._read = reader(UserClaims, REMEMBERED_MAX, REMEMBERED_BYTES_MAX)

    def check(self, credentials: Credentials) -> Identity | Rejection | PendingLogin | Consultation:
        """Decide who the client is."""
        claims = None
        if credentials.has_connected:
            claims = self._claims(credentials.jwt) or self._claims(self._sentinel)
        if claims is None:
            return Rejection(NEEDS_JWT)
        if claims.nats.proxy_required and not credentials.proxy_key:
            return proxy_required("Proxy is required")
        problems = blocking_texts(claims, self._clock.wall_ns() // SECOND_NS)
        if problems:
            return Rejection(f"User JWT no longer valid: &{{Issues:[{' '.join(problems)}]}}")
        key = claims.account
        if self._pinned and key not in self._pinned:
            return Rejection(f"Account {key} not listed as operator pinned account")
        known = self._book.find(key)
        if isinstance(known, str):
            return Rejection(f"Account JWT lookup error: {known}")
        if known is None:
            return self._fetch(key, credentials.address)
        decision = self._member(credentials, claims, known, is_signed=False)
        asks = known.claims.nats.authorization.auth_users
        if isinstance(decision, Rejection) or not asks or claims.sub in asks:
            return decision
        return self._consultation(credentials, claims, known)

    def check_again(
        self, identity: Identity, credentials: Credentials
    ) -> Identity | Rejection | None:
        """Decide again about a connection that has logged in, after its account has changed.

        Its signature was valid and is not checked again. None if there is nothing to decide.
        """
        claims = identity.claims
        if claims is None:
            return None
        known = self._book.accounts.get(claims.account)
        if known is None:
            return Rejection("Account JWT lookup error: account missing")
        scope = known.scopes.get(claims.iss)
        if identity.scope != scope:
            return Rejection("User JWT issuer is not known", live_error="")
        decision = self._member(credentials, claims, known, is_signed=True)
        if isinstance(decision, Identity) and identity.is_called_out:
            return _called_out(decision, known, identity.user)
        return decision

    # ---------------------------------------------------------------- auth callout

    def _consultation(
        self, credentials: Credentials, claims: UserClaims, known: KnownAccount
    ) -> Consultation:
        """The consultation for an account whose users are decided by a service."""
        key = known.claims.sub
        service = CalloutService(key, key, known.claims.nats.authorization.xkey)

        def is_issuer(issuer: str, account: str) -> bool:
            # The account that the user claims to sign for proves nothing: its key has to be one of
            # this account.
            return account in ("", key) and (issuer == key or issuer in self._scopes_of(key))

        def admit(user: UserClaims, shown: Credentials) -> Identity | Rejection | PendingLogin:
            return self._admit(key, user, shown)

        claimed = ClaimedUser(
            credentials.nkey or credentials.user or claims.sub,
            # The decoded token: what does not decode is not passed on.
            credentials.jwt if self._claims(credentials.jwt) is not None else self._sentinel,
            claims.name,
            tuple(claims.nats.tags or ()),
        )
        return self._callouts.consultation(service, credentials, claimed, is_issuer, admit, service)

    def _scopes_of(self, key: str) -> dict[str, UserScope | None]:
        known = self._book.accounts.get(key)
        return known.scopes if known is not None else {}

    def _admit(
        self, asked: str, claims: UserClaims, credentials: Credentials
    ) -> Identity | Rejection | PendingLogin:
        """Whether a user that the service of the account `asked` accepts may enter, and where."""
        if claims.nats.proxy_required and not credentials.proxy_key:
            return proxy_required("Proxy connection required")
        target = claims.account
        service = self._book.accounts.get(asked)
        allowed = service.claims.nats.authorization.allowed_accounts if service is not None else ()
        if target != asked and target not in (allowed or ()) and EVERYBODY not in (allowed or ()):
            return Rejection(
                f'Account "{claims.iss}" not permitted as valid account option for auth callout '
                f'for account "{asked}"'
            )
        known = self._book.find(target)
        if known is None:
            return self._fetch(target, credentials.address)
        if isinstance(known, str):
            return Rejection(
                f'No valid account "{target}" for auth callout response on account "{asked}": '
                f"{known}"
            )
        decision = self._member(credentials, claims, known, is_signed=True)
        if isinstance(decision, Rejection):
            return decision
        return _called_out(decision, known, shown_name(claims, credentials))

    def _claims(self, token: str) -> UserClaims | None:
        if not token:
            return None
        try:
            return self._read(token)
        except JwtError:
            return None

    def _fetch(self, key: str, address: str) -> Rejection | PendingLogin:
        if not nkeys.is_public(key, nkeys.ACCOUNT):
            return Rejection("Account JWT lookup error: account missing")

        def start(resume: Callable[[], None]) -> bool:
            return self._lookup.fetch(key, address, resume)

        return PendingLogin(start)

    def _member(
        self, credentials: Credentials, claims: UserClaims, known: KnownAccount, *, is_signed: bool
    ) -> Identity | Rejection:
        """Run the sixth check and all later ones, for an account whose JWT is valid."""
        now_ns = self._clock.wall_ns()
        issuer = known.claims.iss
        if issuer not in self._book.trust.keys:
            return Rejection("Account JWT not signed by trusted operator")
        is_own_key = claims.iss == known.claims.sub and not self._book.trust.is_strict(issuer)
        if not is_own_key and claims.iss not in known.scopes:
            return Rejection("User JWT issuer is not known", live_error="")
        scope = known.scopes.get(claims.iss)
        restrictions: UserRestrictions = claims.nats
        if scope is not None:
            if not _is_bare(claims.nats):
                text = "scoped users require no permissions or limits set"
                return Rejection(f"User JWT is not valid: {text}")
            template = fill_template(scope.template, claims, known.claims)
            if template is None:
                return Rejection("User JWT generated invalid permissions")
            restrictions = template
        if known.is_expired(now_ns):
            return Rejection(
                "Account JWT has expired",
                live_error=ops.ERROR_ACCOUNT_EXPIRED,
                live_reason=ops.CLOSED_AUTHENTICATION_EXPIRED,
            )
        if restrictions.bearer_token and known.claims.nats.limits.disallow_bearer:
            return Rejection("Account does not allow bearer tokens")
        types = connection_types(restrictions.allowed_connection_types)
        if types is None or (types and credentials.connection_type not in types):
            return Rejection("Connection type not allowed")
        if not restrictions.bearer_token and not is_signed:
            problem = signature_problem(claims.sub, credentials)
            if problem:
                return Rejection(problem)
        if known.is_revoked(claims.sub, claims.iat):
            return Rejection(
                "User authentication revoked",
                live_error=ops.ERROR_REVOKED,
                live_reason=ops.CLOSED_REVOKED,
            )
        if not may_come_from(restrictions, credentials.address):
            return Rejection(f"Bad src Ip {credentials.address}")
        left = seconds_left(restrictions, now_ns)
        if left == 0:
            return Rejection("Outside connect times")
        ends_ns = _ends_ns(claims, left, now_ns)
        identity = _identity(claims, known, scope, restrictions, ends_ns)
        if known.claims.nats.authorization.auth_users:
            return without_questions(identity, identity.account)
        return identity


def _called_out(identity: Identity, known: KnownAccount, name: str) -> Identity:
    """The identity of a user that a service has accepted; the limits are those of its account, not
    its own.
    """
    account = known.claims.nats.limits
    limits = UserLimits(subscriptions_max=account.subs, payload_bytes_max=account.payload)
    return replace(identity, user=name, limits=limits, is_called_out=True)


def _identity(
    claims: UserClaims,
    known: KnownAccount,
    scope: UserScope | None,
    restrictions: UserRestrictions,
    ends_ns: int,
) -> Identity:
    account = known.claims.nats
    permissions = permission_rules(restrictions) or permission_rules(account.default_permissions)
    limits = UserLimits(
        subscriptions_max=smallest(restrictions.subs, account.limits.subs),
        payload_bytes_max=smallest(restrictions.payload, account.limits.payload),
    )
    return Identity(
        account=known.claims.sub,
        user=claims.sub,
        permissions=permissions,
        limits=limits,
        expires_ns=ends_ns,
        account_expires_ns=known.claims.exp * SECOND_NS,
        claims=claims,
        scope=scope,
        account_title=known.claims.name,
    )


def _is_bare(fields: UserFields) -> bool:
    """Whether a user has none of the fields that its scope decides, not even an empty list."""
    plain = UserFields(**{name: getattr(fields, name) for name in _OWN_FIELDS})
    return fields == plain


def _ends_ns(claims: UserClaims, left: float | None, now_ns: int) -> int:
    """When the connection must end, by the wall clock; 0: never."""
    ends = [claims.exp * SECOND_NS] if claims.exp > 0 else []
    if left is not None:
        ends.append(now_ns + round(left * SECOND_NS))
    return min(ends, default=0)


@lru_cache(maxsize=REMEMBERED_MAX)
def _public_key(text: str) -> bytes:
    return nkeys.decode_public(text)[1]


def signature_problem(user: str, credentials: Credentials) -> str:
    """Why the nonce was not signed by this user; empty if the signature is valid."""
    if not credentials.signature:
        return "Signature missing"
    try:
        key = _public_key(user)
    except nkeys.NkeyError as error:
        return f"User nkey not valid: {error}"
    signature = nkeys.decode_signature(credentials.signature)
    if signature is None:
        return "Signature not valid base64"
    if not credentials.nonce or not nkeys.verify(key, credentials.nonce, signature):
        return "Signature not verified"
    return ""
