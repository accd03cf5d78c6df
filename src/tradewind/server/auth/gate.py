"""The gate: the only place that decides whether a connection may log in, for every listener.

Owns the order in which credentials are checked, which is that of nats-server:

    1. a JWT is ignored: operator mode has a gate of its own (`operator_gate`)
    2. an nkey, if any nkey user is configured: it must be known and must have signed the nonce
    3. users, if any is configured: by certificate with `verify_and_map`, otherwise by name and
       password; a client without credentials becomes `no_auth_user`
    4. the token, if one is configured
    5. the single user and password
    6. everything else is refused; a server is open only if none of the above is configured

With an auth callout, another gate (`callout_gate`) wraps this one and asks a service.

The gate is immutable, and a reload replaces it as a whole. It never raises and never blocks: bcrypt
checks are returned as `DeferredCheck`. It never tells a client why it was refused; the reason is
logged and contains no secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from tradewind import nkeys
from tradewind.broker.identity import Credentials, DeferredCheck, Gate, Identity, Rejection
from tradewind.errors import ConfigError
from tradewind.options import (
    GLOBAL_ACCOUNT,
    AuthorizationOptions,
    LeafOptions,
    Secret,
    ServerOptions,
    TlsOptions,
    WebsocketOptions,
)
from tradewind.server.auth.configured_users import Member, Members, collect_members
from tradewind.server.auth.passwords import is_hashed, matches_hash, matches_plain

if TYPE_CHECKING:
    from tradewind.server.auth.callout_client import CalloutClient
    from tradewind.server.auth.certificate_users import CertificateMap

Listener = Literal["standard", "websocket", "leafnode"]

# The name that monitoring shows instead of a token.
TOKEN_USER = "[REDACTED]"  # noqa: S105 - the placeholder, not a token
_SHOWN_NAME_MAX = 64


class _Settings(msgspec.Struct, frozen=True):
    """The options that apply to one listener."""

    authorization: AuthorizationOptions
    no_auth_user: str
    map_certificates: bool
    # Only the system account is configured, and nothing says who may enter: then clients without
    # credentials enter the global account, so that giving the system account users locks out no one
    # else.
    strangers_enter: bool


def build_gate(
    options: ServerOptions, listener: Listener = "standard", client: CalloutClient | None = None
) -> Gate:
    """The gate of one listener. Raises ConfigError when the options contradict themselves.

    `client` asks the service that decides about logins, if one is configured.
    """
    members = collect_members(options)
    settings = _settings(options, listener)
    _check_settings(options, members)
    if listener == "leafnode":
        gate = _leaf_gate(options, members, settings)
        is_decided_here = bool(options.leafnodes and options.leafnodes.authorization.users)
    else:
        gate = AuthorizeGate(members, settings, listener)
        is_decided_here = False
    if options.authorization.callout is None or is_decided_here:
        return gate
    assert client is not None, "a callout needs a client"
    # Loaded when it is needed: servers without a callout start sooner.
    from tradewind.server.auth.callout_gate import CalloutGate

    return CalloutGate(gate, options, options.authorization.callout, client)


def _leaf_gate(options: ServerOptions, members: Members, settings: _Settings) -> AuthorizeGate:
    """The gate of leaf nodes: if they have users of their own, no other login is accepted."""
    authorization = (options.leafnodes or LeafOptions()).authorization
    own = Members()
    for entry in authorization.users:
        own.add(entry.user, entry.account or GLOBAL_ACCOUNT, None)
    if authorization.users:
        leaf_tls = options.leafnodes.tls if options.leafnodes is not None else None
        alone = _Settings(
            AuthorizationOptions(), "", _maps_certificates(leaf_tls), strangers_enter=False
        )
        return AuthorizeGate(own, alone, "leafnode")
    settings = replace(settings, map_certificates=False)
    return AuthorizeGate(members, settings, "leafnode", authorization.account or GLOBAL_ACCOUNT)


def gate_notices(options: ServerOptions) -> tuple[str, ...]:
    """Notes for the administrator about who may enter: lines to log at the start."""
    notices = []
    authorization = options.authorization
    members = collect_members(options)
    maps = _maps_certificates(options.tls)
    passwords = [authorization.password] if authorization.password else []
    passwords += [
        member.password for member in members.users.values() if member.password or not maps
    ]
    if not all(is_hashed(password) for password in passwords):
        notices.append("Plaintext passwords detected, use nkeys or bcrypt")
    if _system_account_only(options):
        notices.append(
            "Only the system account is configured: clients without credentials enter the global "
            "account; add an authorization block to keep them out"
        )
    if _requires_proxies(options, members) and not options.trusted_proxies:
        notices.append(
            "proxy_required is set, but the proxies block names no trusted proxy: those users can"
            " not log in"
        )
    for name in sorted(
        {options.no_auth_user, (options.websocket or WebsocketOptions()).no_auth_user}
    ):
        member = members.users.get(name)
        if member is not None and is_hashed(member.password):
            notices.append(f"no_auth_user {name!r} has a hashed password, so it lets nobody in")
    return tuple(notices)


def _requires_proxies(options: ServerOptions, members: Members) -> bool:
    """Whether a configured login must come through a proxy."""
    leaf = (options.leafnodes or LeafOptions()).authorization.users
    known = (*members.users.values(), *members.nkeys.values())
    return (
        options.authorization.proxy_required
        or any(member.proxy_required for member in known)
        or any(entry.user.proxy_required for entry in leaf)
    )


class AuthorizeGate:
    """Implements `broker.identity.Gate` for one listener."""

    def __init__(
        self,
        members: Members,
        settings: _Settings,
        listener: Listener,
        open_account: str = GLOBAL_ACCOUNT,
    ) -> None:
        self._open_account = open_account
        authorization = settings.authorization
        self._users = members.users
        self._nkeys = members.nkeys
        self._single_user = authorization.user
        self._single_password = authorization.password
        self._token = authorization.token
        # Applies to the single user and the token; each of the others has its own.
        self._proxy_required = authorization.proxy_required
        self._no_auth_user = settings.no_auth_user
        self._strangers_enter = settings.strangers_enter
        self._certificates: CertificateMap | None = None
        if settings.map_certificates:
            # Loaded when it is needed: other servers start sooner without it.
            from tradewind.server.auth.certificate_users import CertificateMap

            self._certificates = CertificateMap(self._users)
        self._has_users = bool(self._users) or settings.strangers_enter
        self._required = bool(self._nkeys or self._has_users or self._single_user or self._token)
        self._decoy = _costliest(
            [member.password for member in self._users.values()] + [self._single_password]
        )
        # nats-server tells websocket clients that they need credentials even when they do not.
        self._auth_required = self._required and (
            listener == "websocket" or not self._no_auth_user_usable("STANDARD")
        )

    @property
    def auth_required(self) -> bool:
        """Whether INFO says `auth_required`."""
        return self._auth_required

    @property
    def nonce_required(self) -> bool:
        """Whether INFO carries a nonce to sign."""
        return bool(self._nkeys)

    @property
    def is_required(self) -> bool:
        """Whether any credentials are configured."""
        return self._required

    @property
    def maps_certificates(self) -> bool:
        """Whether a user is identified by its certificate."""
        return self._certificates is not None

    def check(self, credentials: Credentials) -> Identity | Rejection | DeferredCheck:
        """Decide who the client is."""
        if not self._required:
            return Identity(self._open_account, _claimed_name(credentials))
        stranger = not (credentials.user or credentials.password or credentials.token)
        if self._nkeys:
            if credentials.nkey:
                return self._check_nkey(credentials)
            if stranger and self._no_auth_user in self._nkeys:
                return self._admit_stranger(self._nkeys[self._no_auth_user], credentials)
        if self._has_users:
            if self._certificates is not None:
                return self._check_certificate(self._certificates, credentials)
            if stranger and self._strangers_enter:
                return Identity(GLOBAL_ACCOUNT)
            if stranger and self._no_auth_user in self._users:
                return self._admit_stranger(self._users[self._no_auth_user], credentials)
            if credentials.user:
                return self._check_user(credentials)
        if self._token:
            if self._proxy_required and not credentials.proxy_key:
                return _needs_proxy("the token")
            return _compare(
                self._token,
                credentials.token,
                Identity(GLOBAL_ACCOUNT, TOKEN_USER),
                Rejection("the token is wrong" if credentials.token else "a token is required"),
            )
        if self._single_user:
            return self._check_single_user(credentials)
        return Rejection("credentials are required")

    def _check_nkey(self, credentials: Credentials) -> Identity | Rejection:
        name = _shown(credentials.nkey)
        member = self._nkeys.get(credentials.nkey)
        if member is None:
            return Rejection(f"nkey {name} is not configured")
        if not member.may_use(credentials.connection_type):
            return Rejection(f"nkey {name} may not use a {credentials.connection_type} connection")
        if member.proxy_required and not credentials.proxy_key:
            return _needs_proxy(f"nkey {name}")
        if credentials.nkey == self._no_auth_user:
            return member.identity  # the same identity as without any credentials
        if not credentials.nonce:
            return Rejection(f"nkey {name} had no nonce to sign")
        signature = nkeys.decode_signature(credentials.signature)
        if signature is None:
            return Rejection(f"nkey {name}: the signature is missing or not 64 bytes of base64")
        if not nkeys.verify(member.key, credentials.nonce, signature):
            return Rejection(f"nkey {name}: the signature of the nonce is wrong")
        return member.identity

    def _check_certificate(
        self, certificates: CertificateMap, credentials: Credentials
    ) -> Identity | Rejection | DeferredCheck:
        if credentials.certificate is None:
            return Rejection("a client certificate is required")
        from tradewind.server.auth.certificate_users import read_names

        names = read_names(credentials.certificate)
        if names is None:
            return Rejection("the client certificate cannot be read")
        kind = credentials.connection_type
        user = certificates.find(names, lambda name: self._users[name].may_use(kind))
        if user is None:
            return Rejection("no name in the client certificate is a user's")
        member = self._users[user]
        return self._check_member(member, credentials)

    def _check_user(self, credentials: Credentials) -> Identity | Rejection | DeferredCheck:
        member = self._users.get(credentials.user)
        if member is None:
            return self._refuse(credentials, "is not configured")
        if not member.may_use(credentials.connection_type):
            return self._refuse(
                credentials, f"may not use a {credentials.connection_type} connection"
            )
        return self._check_member(member, credentials)

    def _check_member(
        self, member: Member, credentials: Credentials
    ) -> Identity | Rejection | DeferredCheck:
        if member.proxy_required and not credentials.proxy_key:
            return self._slowly(_needs_proxy(f"user {_shown(member.identity.user)}"), credentials)
        return self._check_password(member.password, member.identity, credentials)

    def _check_single_user(self, credentials: Credentials) -> Identity | Rejection | DeferredCheck:
        if credentials.user != self._single_user:
            return self._refuse(credentials, "is not configured")
        if self._proxy_required and not credentials.proxy_key:
            return self._slowly(_needs_proxy(f"user {_shown(self._single_user)}"), credentials)
        identity = Identity(GLOBAL_ACCOUNT, self._single_user)
        return self._check_password(self._single_password, identity, credentials)

    def _check_password(
        self, configured: Secret, identity: Identity, credentials: Credentials
    ) -> Identity | Rejection | DeferredCheck:
        rejection = Rejection(f"user {_shown(identity.user)}: the password is wrong")
        answer = _compare(configured, credentials.password, identity, rejection)
        return self._slowly(rejection, credentials) if answer is rejection else answer

    def _admit_stranger(self, member: Member, credentials: Credentials) -> Identity | Rejection:
        if self._no_auth_user_usable(credentials.connection_type):
            if member.proxy_required and not credentials.proxy_key:
                return _needs_proxy(f"no_auth_user {_shown(member.identity.user)}")
            return member.identity
        return Rejection(
            f"no_auth_user {_shown(member.identity.user)} cannot stand in: its password is hashed, "
            f"or it may not use a {credentials.connection_type} connection"
        )

    def _no_auth_user_usable(self, connection_type: str) -> bool:
        """Whether `no_auth_user` can be used; not with a hashed password: nats-server fills in the
        hash, which does not match itself.
        """
        if self._no_auth_user in self._nkeys:
            return self._nkeys[self._no_auth_user].may_use(connection_type)
        member = self._users.get(self._no_auth_user)
        return (
            member is not None
            and self._certificates is None
            and not is_hashed(member.password)
            and member.may_use(connection_type)
        )

    def _refuse(self, credentials: Credentials, why: str) -> Rejection | DeferredCheck:
        return self._slowly(Rejection(f"user {_shown(credentials.user)} {why}"), credentials)

    def _slowly(self, rejection: Rejection, credentials: Credentials) -> Rejection | DeferredCheck:
        """Refuse no faster than a hash is checked: the time must not reveal which names exist."""
        decoy, password = self._decoy, credentials.password
        if decoy is None:
            return rejection

        def decide() -> Rejection:
            matches_hash(decoy, password)
            return rejection

        return DeferredCheck(decide)


def _needs_proxy(who: str) -> Rejection:
    # Loaded when it is needed: other servers start sooner without it.
    from tradewind.broker.proxies import proxy_required

    return proxy_required(f"{who} must come through a trusted proxy (proxy_required)")


def _compare(
    configured: Secret, presented: str, identity: Identity, rejection: Rejection
) -> Identity | Rejection | DeferredCheck:
    """`identity` if the secrets match; a closure, unlike a partial, keeps them out of reprs."""
    if not is_hashed(configured):
        return identity if matches_plain(configured, presented) else rejection

    def decide() -> Identity | Rejection:
        return identity if matches_hash(configured, presented) else rejection

    return DeferredCheck(decide, identity.user, identity, configured)


def _settings(options: ServerOptions, listener: Listener) -> _Settings:
    """The server's settings, or those of the websocket block if it has credentials."""
    standard = _Settings(
        authorization=options.authorization,
        no_auth_user=options.no_auth_user,
        map_certificates=_maps_certificates(options.tls),
        strangers_enter=_system_account_only(options),
    )
    if listener != "websocket":
        return standard
    websocket = options.websocket or WebsocketOptions()
    own = websocket.authorization or AuthorizationOptions()
    map_certificates = _maps_certificates(websocket.tls)
    if not (own.user or own.token or websocket.no_auth_user):
        return replace(standard, map_certificates=map_certificates)
    # Its own credentials replace all of the server's, including free entry for everyone else.
    return _Settings(own, websocket.no_auth_user, map_certificates, strangers_enter=False)


def _maps_certificates(tls: TlsOptions | None) -> bool:
    return tls is not None and tls.verify_and_map


def _system_account_only(options: ServerOptions) -> bool:
    return (
        options.accounts.keys() == {options.system_account}
        and options.authorization == AuthorizationOptions()
        and not options.no_auth_user
    )


def _check_settings(options: ServerOptions, members: Members) -> None:
    """Refuse settings that nats-server refuses: they would lock out or admit users by accident."""
    websocket = options.websocket or WebsocketOptions()
    own = websocket.authorization or AuthorizationOptions()
    for place, name in (("", options.no_auth_user), ("websocket ", websocket.no_auth_user)):
        if name and name not in members.users and name not in members.nkeys:
            raise ConfigError(
                f"{place}no_auth_user {name!r} is not a user or nkey of the authorization block "
                "or of an account"
            )
    if own.users:
        raise ConfigError(
            "websocket authorization takes no users: list them in authorization or accounts"
        )
    if (own.user or own.token) and (members.users or members.nkeys):
        raise ConfigError(
            "websocket authorization takes no user or token when users or nkeys are configured"
        )


def _costliest(secrets: list[Secret]) -> Secret | None:
    """The hash that takes longest to check (its cost is the number after `$2b$`); None without
    hashes.
    """
    hashed = [secret for secret in secrets if is_hashed(secret)]
    return max(hashed, key=lambda secret: secret.reveal()[4:6], default=None)


def _claimed_name(credentials: Credentials) -> str:
    """The unverified name of a client of an open server, as monitoring shows it; never a token."""
    return credentials.nkey or credentials.user or (TOKEN_USER if credentials.token else "")


def _shown(name: str) -> str:
    """A name from the network, safe for one log line."""
    return ascii(name[:_SHOWN_NAME_MAX])
