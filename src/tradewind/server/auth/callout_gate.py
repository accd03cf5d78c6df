"""The gate of a server that is configured with an auth callout.

Owns the decision which logins go to the service, as in nats-server: all except those of
`auth_users`. With `allowed_accounts`, users of other accounts are checked as if there were no
service. The gate wraps the one for configured users, and like that gate never raises and never
blocks.
"""

from __future__ import annotations

from tradewind.broker.identity import (
    Consultation,
    Credentials,
    Decision,
    DeferredCheck,
    Identity,
    Rejection,
)
from tradewind.broker.proxies import proxy_required
from tradewind.durations import SECOND_NS
from tradewind.jwt import UserClaims
from tradewind.jwt.sharing_claims import quoted
from tradewind.options import GLOBAL_ACCOUNT, CalloutOptions, ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.server.auth.callout_client import (
    CalloutClient,
    CalloutService,
    shown_name,
    without_questions,
)
from tradewind.server.auth.callout_requests import ClaimedUser
from tradewind.server.auth.gate import TOKEN_USER, AuthorizeGate
from tradewind.server.auth.restrictions import (
    connection_types,
    may_come_from,
    permission_rules,
    seconds_left,
)


class CalloutGate:
    """Implements `broker.identity.Gate` around the gate of the configured users."""

    auth_required = True
    is_required = True

    def __init__(
        self,
        configured: AuthorizeGate,
        server_options: ServerOptions,
        options: CalloutOptions,
        client: CalloutClient,
    ) -> None:
        self._configured = configured
        self._options = options
        self._client = client
        self._service = CalloutService(options.account, options.issuer, options.xkey)
        self._users = frozenset(options.users)
        # The accounts that users can be put into, with the default permissions of their users.
        self._accounts: dict[str, PermissionRules | None] = {
            GLOBAL_ACCOUNT: None,
            **{one.name: one.default_permissions for one in server_options.accounts.values()},
        }
        if server_options.system_account:
            self._accounts.setdefault(server_options.system_account, None)
        # While these are unchanged, no login is sent to the service twice.
        self._key = options, self._accounts, server_options.trusted_proxies

    @property
    def nonce_required(self) -> bool:
        """Whether INFO carries a nonce to sign."""
        return self._configured.nonce_required

    def check(self, credentials: Credentials) -> Decision:
        """Decide who the client is."""
        claimed = credentials.nkey or credentials.user
        if (
            credentials.has_connected
            and claimed
            and claimed not in self._users
            and not self._options.allowed_accounts
            and not self._configured.maps_certificates
        ):
            return self._consultation(credentials)  # whatever its password
        if not self._configured.is_required:
            return self._consultation(credentials)  # no user is configured, so none is known
        decision = self._configured.check(credentials)
        if isinstance(decision, DeferredCheck):
            return self._deferred(decision, credentials)
        return self._with_verdict(decision, credentials)

    def _deferred(self, deferred: DeferredCheck, credentials: Credentials) -> DeferredCheck:
        def decide() -> Identity | Rejection | Consultation:
            decision = deferred.decide()
            assert not isinstance(decision, Consultation)
            return self._with_verdict(decision, credentials)

        identity = deferred.identity
        if identity is not None:
            judged = self._with_verdict(identity, credentials)
            identity = judged if isinstance(judged, Identity) else None
        return DeferredCheck(decide, deferred.user, identity, deferred.secret)

    def _with_verdict(
        self, decision: Identity | Rejection, credentials: Credentials
    ) -> Identity | Rejection | Consultation:
        """The decision, or a consultation if the configured users do not decide."""
        if isinstance(decision, Rejection):
            is_own = (credentials.nkey or credentials.user) in self._users
            return decision if is_own else self._consultation(credentials)
        if decision.user in self._users or not self._is_delegated(decision.account):
            return without_questions(decision, self._service.account)
        return self._consultation(credentials)

    def _is_delegated(self, account: str) -> bool:
        allowed = self._options.allowed_accounts
        return not allowed or account == GLOBAL_ACCOUNT or account in allowed

    def _consultation(self, credentials: Credentials) -> Consultation:
        # A JWT has no meaning here, so the service does not receive one, as in nats-server.
        user = credentials.nkey or credentials.user or (TOKEN_USER if credentials.token else "")
        return self._client.consultation(
            self._service, credentials, ClaimedUser(user), self._is_issuer, self._admit, self._key
        )

    def _is_issuer(self, issuer: str, _account: str) -> bool:
        return issuer == self._options.issuer

    def _admit(self, claims: UserClaims, credentials: Credentials) -> Identity | Rejection:
        """Whether a user that the service accepts may enter, and where."""
        name = self._service.account
        now_ns = self._client.now_ns()
        if claims.nats.proxy_required and not credentials.proxy_key:
            return proxy_required("Proxy connection required")
        left = seconds_left(claims.nats, now_ns)
        if left == 0:
            return Rejection(f'Authorized user on account "{name}" outside of valid connect times')
        types = connection_types(claims.nats.allowed_connection_types)
        if types is None or (types and credentials.connection_type not in types):
            return Rejection(f'Authorized user on account "{name}" using invalid connection type')
        if not may_come_from(claims.nats, credentials.address):
            return Rejection(f"Bad src Ip {credentials.address}")
        if claims.nats.issuer_account:
            return Rejection(
                f'Error non operator mode account "{name}": attempted to use issuer_account'
            )
        if claims.iss != self._options.issuer:
            return Rejection(
                f'Wrong issuer for auth callout response on account "{name}", '
                f'expected "{self._options.issuer}" got "{claims.iss}"'
            )
        if claims.aud not in self._accounts:
            return Rejection(
                f"No valid account {quoted(claims.aud)} for"
                f' auth callout response on account "{name}": account missing'
            )
        ends = [claims.exp * SECOND_NS] if claims.exp > 0 else []
        if left is not None:
            ends.append(now_ns + round(left * SECOND_NS))
        identity = Identity(
            account=claims.aud,
            user=shown_name(claims, credentials),
            permissions=permission_rules(claims.nats) or self._accounts[claims.aud],
            expires_ns=min(ends, default=0),
            is_called_out=True,
        )
        return without_questions(identity, self._service.account)
