"""Logins: from CONNECT to membership of an account.

Owns the path of a connection through the gate: nonce, CONNECT, decision (immediate or from a worker
thread), account, permissions, and the same again after a reload. It is the only caller of the gate,
and never looks at a password itself.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from tradewind.broker.connect import ConnectRequest, parse_connect
from tradewind.broker.contracts import label, printable
from tradewind.broker.identity import (
    Consultation,
    Credentials,
    DeferredCheck,
    Gate,
    Identity,
    PendingLogin,
    Rejection,
)
from tradewind.broker.room import Guests, Room
from tradewind.broker.session import BLOCKED_AUTHENTICATION_FLAG, Session
from tradewind.errors import JSON_ERRORS, ProtocolError
from tradewind.options import ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.route.permissions import Permissions
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.broker import Broker

# The limit for unauthenticated connections, and half of it is the limit for one address: they cost
# memory and have proved nothing yet.
UNAUTHENTICATED_MAX = 8192
NONCE_RANDOM_BYTES = 11
# How often the dependencies of a login may be there at once while the gate wants another one.
FETCHED_AT_ONCE_MAX = 8
# No deadline is later than this, in 64 bits.
DEADLINE_NS_MAX = 2**62
# Login expiry is checked at least this often: the clock may have been set meanwhile.
EXPIRY_LOOK_NS = 600_000_000_000
# The options of a connection before its first CONNECT.
NOTHING_SAID = ConnectRequest()
_SECRET_FIELDS = frozenset(("pass", "auth_token", "sig", "jwt", "proxy_sig"))


@lru_cache(maxsize=1024)
def compiled(rules: PermissionRules, seed: int) -> Permissions:
    """The compiled form of rules, which sessions of one user share."""
    return Permissions(rules, seed)


class ConsultedConnection(msgspec.Struct, eq=False, frozen=True):
    """A connection about which a service was asked; `take_back` cancels the request."""

    consultation: Consultation
    accepted: Callable[[Identity], None]
    take_back: Callable[[], None]
    due_ns: int


class Admission:
    """The decisions about logins in a broker."""

    def __init__(self, broker: Broker, gates: dict[str, Gate]) -> None:
        self._broker = broker
        self.gates = gates
        self._room = Room(UNAUTHENTICATED_MAX)
        self._unauthenticated: Guests[int] = Guests(self._room)
        self._strangers: dict[int, Identity] = {}
        # Connections whose CONNECT was not accepted yet. Its content is not for the account that
        # the connection is in without a login, or was in before.
        self._undecided: set[int] = set()
        # The check of a worker thread, and what to do if it accepts, by cid.
        self._asked: dict[int, tuple[DeferredCheck, Callable[[Identity], None]]] = {}
        # The configured secret that a connection has matched, or the user that the server has asked
        # about, by cid.
        self._matched: dict[int, object] = {}
        # Connections that wait for something that is fetched: what to do if accepted, by cid.
        self._pending: dict[int, Callable[[Identity], None]] = {}
        # Connections that wait for the response of a service, by cid.
        self._consulted: dict[int, ConsultedConnection] = {}
        # Connections with a JWT, and the monotonic time of their next check, by cid.
        self._identities: dict[int, Identity] = {}
        # The signature of a trusted proxy, and its key, by cid.
        self._proxies: dict[int, tuple[str, str]] = {}
        self._looked_at_ns: dict[int, int] = {}

    def gate(self, session: Session) -> Gate:
        """The gate of the listener that accepted the connection."""
        return self.gates[session.connection_type]

    def auth_required(self, session: Session) -> bool:
        """The `auth_required` of the first INFO."""
        return self.gate(session).auth_required

    @property
    def has_logins(self) -> bool:
        """The `auth_required` of later INFOs, for every listener: nats-server ignores
        `no_auth_user` there.
        """
        return self.gates["STANDARD"].is_required

    # ---------------------------------------------------------------- before CONNECT

    def opened(self, session: Session) -> None:
        """Called for a new connection: it is a member at once if the gate admits clients without
        credentials, else it has to authenticate.
        """
        gate = self.gate(session)
        session.options = NOTHING_SAID
        if gate.nonce_required or self._broker.options.trusted_proxies:
            random_bytes = os.urandom(NONCE_RANDOM_BYTES)
            session.nonce = base64.urlsafe_b64encode(random_bytes).rstrip(b"=")
        # Checked even if INFO says auth_required: only the gate knows whom it admits.
        stranger = gate.check(
            Credentials(connection_type=session.connection_type, has_connected=False)
        )
        if isinstance(stranger, Identity):
            self._strangers[session.cid] = stranger
            return
        self.await_login(session, self._broker.options.auth_timeout_ns)

    def await_login(self, session: Session, timeout_ns: int) -> bool:
        """Require a login from a connection; False if too many are unauthenticated."""
        session.require_auth()
        if not self._room.has_place_for(session.remote_ip):
            return False
        self._unauthenticated.add(session.cid, session.remote_ip)
        broker = self._broker
        broker.deadlines.add(broker.monotonic_ns() + timeout_ns, session.cid, "auth")
        return True

    def enter_without_connect(self, session: Session) -> None:
        """Let a connection that sends operations before CONNECT act as the user without
        credentials.
        """
        stranger = self._strangers.pop(session.cid, None)
        if stranger is not None:
            self._join(session, stranger, connected=False)

    def has_no_place(self, session: Session) -> bool:
        """Whether a new connection was refused because too many are unauthenticated."""
        return session.must_authenticate and session.cid not in self._unauthenticated

    def closed(self, session: Session) -> None:
        """Called when the connection has closed."""
        self._unauthenticated.discard(session.cid)
        self._strangers.pop(session.cid, None)
        self._undecided.discard(session.cid)
        self._matched.pop(session.cid, None)
        self._identities.pop(session.cid, None)
        self._proxies.pop(session.cid, None)
        self._looked_at_ns.pop(session.cid, None)
        self._withdraw(session)

    def is_undecided(self, cid: int) -> bool:
        """Whether a connection has sent a CONNECT that was not accepted."""
        return cid in self._undecided

    # ---------------------------------------------------------------- CONNECT

    def connect(self, session: Session, argument: bytes) -> None:
        """Called when a CONNECT has arrived, the first or a further one."""
        if not session.rtt_ns:
            # An estimate until the first PING is answered.
            session.rtt_ns = max(self._broker.now_ns() - session.start_ns, 1)
        try:
            options = parse_connect(argument, session.options)
        except ProtocolError as error:
            session.close(ops.CLOSED_PROTOCOL)
            self._broker.log.error(f"{label(session)} - {error}")
            return
        if session.is_connected:
            session.drop_subscriptions()
        self._matched.pop(session.cid, None)
        self._undecided.add(session.cid)
        headers = options.headers and not self._broker.options.no_header_support
        session.configure(options, headers, self._broker.log.trace_enabled)
        self._ask(session, lambda identity: self._accept(session, identity))

    def credentials(self, session: Session) -> Credentials:
        """All credentials that a connection has presented."""
        options: ConnectRequest = session.options
        credentials = Credentials(
            user=options.user,
            password=options.password,
            token=options.token,
            nkey=options.nkey,
            signature=options.signature,
            jwt=options.jwt,
            nonce=session.nonce,
            connection_type=session.connection_type,
            certificate=session.tls.certificate if session.tls else None,
            address=session.remote_ip,
            proxy_key=self._checked_proxy(session, options),
        )
        return (
            credentials
            if session.complete_credentials is None
            else session.complete_credentials(credentials)
        )

    def login(self, session: Session, accepted: Callable[[Identity], None]) -> None:
        """Ask the gate about the credentials in `session.options`; `accepted` is called if they are
        valid.
        """
        self._ask(session, accepted)

    def enter_leaf(self, session: Session, account: Account, identity: Identity) -> None:
        """Make another server a member of its account."""
        self._unauthenticated.discard(session.cid)
        broker = self._broker
        permissions = None
        if identity.permissions is not None:
            permissions = compiled(identity.permissions, broker.hash_seed)
        if identity.claims is not None or identity.is_called_out:
            self._identities[session.cid] = identity
            self._watch_expiry(session, identity)
        session.enter(account, identity.user, permissions, self.limits_of(session))

    def _ask(self, session: Session, accepted: Callable[[Identity], None]) -> None:
        """Ask the gate; `accepted` is called now, or when a worker thread has the result. A result
        for an earlier request no longer counts.
        """
        for _ in range(FETCHED_AT_ONCE_MAX):
            self._withdraw(session)
            credentials = self.credentials(session)
            if self._is_untrusted(session, credentials):
                from tradewind.broker.proxies import not_trusted

                self._conclude(session, not_trusted(), accepted)
                return
            decision = self.gate(session).check(credentials)
            if not isinstance(decision, PendingLogin):
                self._follow(session, decision, accepted)
                return
            if not self._wait(session, decision, accepted):
                return
        self.reject(session, "what its login depends on is fetched, but never there")

    def _follow(
        self,
        session: Session,
        decision: Identity | Rejection | DeferredCheck | Consultation,
        accepted: Callable[[Identity], None],
    ) -> None:
        """Act on the gate's decision."""
        if (
            isinstance(decision, DeferredCheck)
            and decision.identity is not None
            and self._matched.get(session.cid) == decision.secret
        ):
            # A reload: the same password still matches the same secret.
            decision = decision.identity
        if isinstance(decision, Consultation):
            self._consult(session, decision, accepted)
        elif isinstance(decision, DeferredCheck):
            self._asked[session.cid] = decision, accepted
            self._broker.deferred.add(session.cid, session.remote_ip, decision)
            session.block(BLOCKED_AUTHENTICATION_FLAG)
        else:
            self._conclude(session, decision, accepted)

    def _conclude(
        self,
        session: Session,
        decision: Identity | Rejection,
        accepted: Callable[[Identity], None],
    ) -> None:
        if isinstance(decision, Rejection):
            self.reject(session, decision.reason, decision.told_account, decision.closed_reason)
        else:
            accepted(decision)
        session.unblock(BLOCKED_AUTHENTICATION_FLAG)

    def _wait(
        self, session: Session, pending: PendingLogin, accepted: Callable[[Identity], None]
    ) -> bool:
        """Fetch the dependency of a login, and ask the gate again when it is there; True if it is
        there at once, so that the gate is not asked inside the fetching code.
        """
        has_come, has_started = False, False

        def resume() -> None:
            nonlocal has_come
            has_come = True
            if not has_started or self._pending.get(session.cid) is not accepted:
                return
            try:
                self._ask(session, accepted)
            except Exception as error:  # others that wait for the same account continue
                self._broker.session_failed(session, error)

        self._pending[session.cid] = accepted
        session.block(BLOCKED_AUTHENTICATION_FLAG)
        if not pending.start(resume):
            self.reject(session, "too many logins wait for their accounts")
            return False
        has_started = True
        return has_come

    def _consult(
        self, session: Session, consultation: Consultation, accepted: Callable[[Identity], None]
    ) -> None:
        """Ask the service, unless it was already asked about this connection."""
        cid = session.cid
        known = self._identities.get(cid)
        if known is not None and self._matched.get(cid) == consultation.key:
            self._conclude(session, known, accepted)
            return

        early: list[Identity | Rejection] = []

        def conclude(decision: Identity | Rejection) -> None:
            if isinstance(decision, Identity):
                self._matched[cid] = consultation.key
            self._conclude(session, decision, accepted)

        def decided(decision: Identity | Rejection) -> None:
            if self._consulted.pop(cid, None) is None:
                early.append(decision)  # the response has arrived while the request was being sent
                return
            try:
                conclude(decision)
            except Exception as error:
                self._broker.session_failed(session, error)

        started = consultation.start(session, decided)
        if isinstance(started, Rejection):
            self._conclude(session, started, accepted)
            return
        if early:
            conclude(early[0])
            return
        due_ns = self._broker.monotonic_ns() + self._broker.options.auth_timeout_ns
        self._consulted[cid] = ConsultedConnection(consultation, accepted, started, due_ns)
        self._broker.deadlines.add(due_ns, cid, "consultation")
        session.block(BLOCKED_AUTHENTICATION_FLAG)

    def is_consulted(self, cid: int) -> bool:
        """Whether a connection waits for the response of a service, which has its own deadline."""
        return cid in self._consulted

    def consultation_due(self, session: Session) -> None:
        """Called when the time for a response is over."""
        waiting = self._consulted.get(session.cid)
        if waiting is None or self._broker.monotonic_ns() < waiting.due_ns:
            return
        self._withdraw(session)
        self._conclude(session, waiting.consultation.overdue, waiting.accepted)

    def _withdraw(self, session: Session) -> None:
        waiting = self._consulted.pop(session.cid, None)
        if waiting is not None:
            waiting.take_back()
        self._asked.pop(session.cid, None)
        self._pending.pop(session.cid, None)
        self._broker.deferred.remove(session.cid)

    def decided(self, session: Session, decision: Identity | Rejection | Consultation) -> None:
        """Called when a worker thread has a result."""
        deferred, accepted = self._asked.pop(session.cid)
        if isinstance(decision, Consultation):
            self._consult(session, decision, accepted)
            return
        if isinstance(decision, Identity):
            self._matched[session.cid] = deferred.secret
        self._conclude(session, decision, accepted)

    def reject(
        self,
        session: Session,
        reason: str,
        told_account: str = "",
        closed_reason: str = ops.CLOSED_AUTHENTICATION_FAILURE,
    ) -> None:
        """Close a connection; the peer learns only that it is not authorised. Members of
        `told_account` learn the reason.
        """
        options: ConnectRequest = session.options
        self._broker.totals.auth_failures += 1
        self._broker.log.error(
            f"{label(session)} - authentication error{claimed_identity(options)}"
        )
        # Monitoring shows the claimed name: that is what an operator looks for.
        session.user = options.user or options.nkey or ("[REDACTED]" if options.token else "")
        self._broker.log.debug(f"{label(session)} - refused: {reason}")
        told = self._broker.accounts.get(told_account)
        self._broker.tell_observers(lambda observer: observer.on_auth_error(session, reason, told))
        session.close(closed_reason, ops.ERROR_AUTHORIZATION)

    def _accept(self, session: Session, identity: Identity) -> None:
        """Called when the gate has accepted a login: check the rest of CONNECT and make the session
        a member.
        """
        options: ConnectRequest = session.options
        if not self._join(session, identity, connected=True):
            return
        self._broker.tell_observers(lambda observer: observer.on_connect(session))
        if options.account or options.new_account:
            self.reject(session, "CONNECT names an account")
            return
        if identity.limits is not None and identity.limits.subscriptions_max == 0:
            session.close(ops.CLOSED_MAX_SUBSCRIPTIONS, ops.ERROR_MAX_SUBSCRIPTIONS)
            return
        # Subscriptions from before the login stay only if the user may have them.
        session.recheck_subscriptions()
        if options.protocol not in (0, ops.PROTOCOL_VERSION):
            session.close(ops.CLOSED_BAD_PROTOCOL_VERSION, ops.ERROR_CLIENT_PROTOCOL)
            return
        if options.no_responders and not options.headers:
            session.close(ops.CLOSED_NO_RESPONDERS_HEADERS, ops.ERROR_NO_RESPONDERS_HEADERS)
            return
        if options.verbose:
            session.write(b"+OK\r\n")

    def _join(self, session: Session, identity: Identity, *, connected: bool) -> bool:
        """Make a session a member of its account; False if the account is full."""
        broker = self._broker
        account = broker.accounts.get(identity.account)
        if account is None:
            self.reject(session, f"account {identity.account!r} does not exist")
            return False
        self._unauthenticated.discard(session.cid)
        self._undecided.discard(session.cid)
        if session.cid not in account.sessions:
            if 0 <= account.limits.connections_max <= account.session_count:
                # Monitoring and events show the account that it wanted to enter.
                session.enter(account, identity.user, None, broker.options, False)
                session.close(ops.CLOSED_MAX_ACCOUNT_CONNECTIONS, ops.ERROR_MAX_ACCOUNT_CONNECTIONS)
                return False
            session.account.sessions.pop(session.cid, None)
            account.sessions[session.cid] = session
            account.total_connections += 1
        permissions = None
        if identity.permissions is not None:
            permissions = compiled(identity.permissions, broker.hash_seed)
        self._identities.pop(session.cid, None)
        if identity.claims is not None or identity.is_called_out:
            self._identities[session.cid] = identity
            self._watch_expiry(session, identity)
        limits = self.limits_of(session)
        session.enter(
            account, identity.user, permissions, limits, connected or session.is_connected
        )
        return True

    # ---------------------------------------------------------------- proxies

    def proxy_key(self, cid: int) -> str:
        """The key of the proxy through which a connection has come; empty if it came directly."""
        return self._proxies.get(cid, ("", ""))[1]

    def _checked_proxy(self, session: Session, options: ConnectRequest) -> str:
        """The key of the trusted proxy that has signed the nonce of a connection; empty without.

        A signature is checked once: the nonce of a leaf node is forgotten after its login.
        """
        trusted = self._broker.options.trusted_proxies
        signature = options.proxy_signature
        if not signature or not trusted:
            return ""
        known_signature, key = self._proxies.get(session.cid, ("", ""))
        if signature == known_signature:
            return key if key in trusted else ""
        # Loaded when it is needed: most servers have no proxies, and start sooner.
        from tradewind.broker.proxies import signer

        self._proxies.pop(session.cid, None)
        key = signer(trusted, session.nonce, signature)
        if key:
            self._proxies[session.cid] = signature, key
        return key

    def _is_untrusted(self, session: Session, credentials: Credentials) -> bool:
        """Whether a connection has the signature of a proxy, but not of a trusted one.

        Without trusted proxies a signature means nothing, as in nats-server.
        """
        options: ConnectRequest = session.options
        has_signature = bool(options.proxy_signature and self._broker.options.trusted_proxies)
        return has_signature and not credentials.proxy_key

    # ---------------------------------------------------------------- logins by JWT or auth callout

    def identity_of(self, cid: int) -> Identity | None:
        """The identity from the JWT of a connection; None without a JWT."""
        return self._identities.get(cid)

    def limits_of(self, session: Session) -> ServerOptions:
        """The options with the limits of this connection."""
        options = self._broker.options
        identity = self._identities.get(session.cid)
        if identity is None or identity.limits is None:
            return options
        changes = {}
        own = identity.limits
        if 0 <= own.payload_bytes_max < options.max_payload_bytes:
            changes["max_payload_bytes"] = own.payload_bytes_max
        if own.subscriptions_max > 0 and not 0 < options.max_subscriptions < own.subscriptions_max:
            changes["max_subscriptions"] = own.subscriptions_max
        return msgspec.structs.replace(options, **changes) if changes else options

    def _watch_expiry(self, session: Session, identity: Identity) -> None:
        ends = [ns for ns in (identity.expires_ns, identity.account_expires_ns) if ns > 0]
        if not ends:
            return
        broker = self._broker
        left_ns = max(min(ends) - broker.now_ns(), 0)
        due_ns = broker.monotonic_ns() + min(left_ns, EXPIRY_LOOK_NS)
        # An earlier deadline checks again; so a connection has one, however often it is renewed.
        if due_ns < self._looked_at_ns.get(session.cid, DEADLINE_NS_MAX + 1):
            self._looked_at_ns[session.cid] = due_ns
            broker.deadlines.add(due_ns, session.cid, "expiry")

    def expiry_due(self, session: Session) -> None:
        """Close a connection if its JWT, or that of its account, has expired."""
        self._looked_at_ns.pop(session.cid, None)
        identity = self._identities.get(session.cid)
        if identity is None:
            return
        now_ns = self._broker.now_ns()
        for ends_ns, error in (
            (identity.account_expires_ns, ops.ERROR_ACCOUNT_EXPIRED),
            (identity.expires_ns, ops.ERROR_AUTHENTICATION_EXPIRED),
        ):
            if 0 < ends_ns <= now_ns:
                self._broker.log.debug(f"{label(session)} - {error}")
                session.close(ops.CLOSED_AUTHENTICATION_EXPIRED, error)
                return
        self._watch_expiry(session, identity)

    def decide_again(self, session: Session, decision: Identity | Rejection) -> None:
        """Called when the account of a connection has changed, with the gate's new decision."""
        if isinstance(decision, Identity):
            if session.kind == "Leafnode":
                self._keep_leaf(session, decision)
            else:
                self._reenter(session, decision)
            return
        self._broker.log.debug(f"{label(session)} - may not stay: {decision.reason}")
        session.close(decision.live_reason, decision.live_error)

    def _keep_leaf(self, session: Session, identity: Identity) -> None:
        """Apply a new identity to a leaf connection. Its permissions were agreed on at the start:
        if these have changed, the server has to connect again.
        """
        before = self._identities.get(session.cid)
        if before is None or before.permissions != identity.permissions:
            session.close(ops.CLOSED_AUTHENTICATION_FAILURE)
            return
        self._identities[session.cid] = identity
        self._watch_expiry(session, identity)

    # ---------------------------------------------------------------- reload

    def recheck(self, session: Session) -> None:
        """Called when the users have changed: pass the gate again with the fields of CONNECT, and
        retain only what is still allowed.
        """
        if self.ask_again(session) or session.must_authenticate:
            return
        if not session.is_connected and self.auth_required(session):
            session.close(ops.CLOSED_AUTHENTICATION_FAILURE, ops.ERROR_AUTHORIZATION)
            return
        self._ask(session, lambda identity: self._reenter(session, identity))

    def ask_again(self, session: Session) -> bool:
        """Restart a login that is in progress; False if there is none."""
        if (asked := self._asked.get(session.cid)) is not None:
            # The thread's result is about passwords that may no longer count.
            self._ask(session, asked[1])
            return True
        if (waiting := self._consulted.get(session.cid)) is not None:
            self._ask(session, waiting.accepted)
            return True
        # The gate is asked when the awaited dependency is there.
        return session.cid in self._pending

    def _reenter(self, session: Session, identity: Identity) -> None:
        if identity.account != session.account.name:
            session.close(ops.CLOSED_AUTHENTICATION_FAILURE)
            return
        if not self._join(session, identity, connected=session.is_connected):
            return
        for info in session.recheck_subscriptions():
            using = f' using queue "{info.queue}"' if info.queue else ""
            what = f'"{info.subject}"{using} (sid "{info.sid}")'
            session.send_error(f"Permissions Violation for Subscription to {what}")
            self._broker.log.notice(
                f'Removed sub {what} for User "{session.user}" - not authorized'
            )

    def redacted(self, argument: bytes) -> str:
        """A CONNECT for the log, without its secrets.

        The text is parsed as JSON, because a secret can be written in more ways than a search would
        find.
        """
        try:
            document = msgspec.json.decode(argument.decode("utf-8", "replace"))
        except JSON_ERRORS:
            document = None
        if not isinstance(document, dict):
            return f"({len(argument)} bytes that are not a JSON object)"
        shown = {
            key: "[REDACTED]" if key.lower() in _SECRET_FIELDS or not is_plain(value) else value
            for key, value in document.items()
        }
        return printable(msgspec.json.encode(shown))


def is_plain(value: object) -> bool:
    """Whether a value of CONNECT may be logged: nested values are not part of it, and may hold
    anything.
    """
    return not isinstance(value, dict | list)


def claimed_identity(options: ConnectRequest) -> str:
    """The part of a log line with the name that a refused connection claimed."""
    if options.user:
        return f' - User "{printable(options.user.encode("utf-8", "surrogateescape"))}"'
    if options.token:
        return ' - Token "[REDACTED]"'
    if options.nkey:
        return f' - Nkey "{printable(options.nkey.encode("utf-8", "surrogateescape"))}"'
    return ""
