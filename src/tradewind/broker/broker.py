"""The server without sockets: connections, accounts, liveness and limits.

Owns every open session and every account. Input is bytes and times, through sessions and `tick`;
output is returned by `end_turn` (sessions with output, a decision or an end) and `deferred`
(passwords to check elsewhere). It never does I/O and reads only the clock that is passed in, so a
test can run a whole server.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.broker.accounts import Account, AccountLimits, InternalMessage
from tradewind.broker.admission import Admission
from tradewind.broker.bridges import ServiceBridge
from tradewind.broker.bridging import Bridges
from tradewind.broker.contracts import (
    BrokerLog,
    ClosedSession,
    Engine,
    LeafTraffic,
    Observer,
    RemoteAddress,
    Totals,
    closed_session,
    label,
    printable,
)
from tradewind.broker.deadlines import Deadlines
from tradewind.broker.identity import (
    Consultation,
    Gate,
    Identity,
    Rejection,
    shown_claims,
)
from tradewind.broker.info import CommonInfo
from tradewind.broker.password_checks import Check, CheckQueue
from tradewind.broker.router import Router
from tradewind.broker.session import BLOCKED_STALL_FLAG, Session
from tradewind.broker.turn_end import TurnEnd
from tradewind.broker.turn_watch import TurnWatch
from tradewind.clock import Clock
from tradewind.durations import SECOND_NS
from tradewind.errors import JSON_ERRORS
from tradewind.options import GLOBAL_ACCOUNT, AccountOptions, LeafOptions, ServerOptions
from tradewind.route.remapping import AccountMappings, Destination, MappingRule
from tradewind.route.sharing_rules import Shares
from tradewind.wire import ops
from tradewind.wire.parser import KIND_NAMES

if TYPE_CHECKING:
    from tradewind.broker.leaf_session import LeafSession
    from tradewind.broker.leaves import Leaves
    from tradewind.broker.message_trace import Tracing
    from tradewind.broker.unheard import Taker
    from tradewind.jwt import AccountClaims
    from tradewind.otel.recorder import SpanRecorder

FIRST_PING_NS = 2 * SECOND_NS
# First PINGs are due at multiples of this.
FIRST_PING_STEP_NS = 20_000_000
RTT_INTERVAL_NS = 3600 * SECOND_NS
STALL_NS = 5_000_000
# The limit for deadlines of connections that are handled in one turn.
DUE_AT_ONCE_MAX = 512


def _leave_to_python(_root: object, *_surroundings: object) -> None:
    """Do nothing: the program's garbage collector finds the object."""


class Broker:
    """One server without its sockets. `gates` maps a listener kind ("STANDARD", "WEBSOCKET") to its
    gate.
    """

    def __init__(
        self,
        options: ServerOptions,
        gates: dict[str, Gate],
        accounts: dict[str, AccountLimits],
        *,
        server_id: str,
        default_name: str = "",
        clock: Clock,
        log: BrokerLog,
        chance: random.Random,
    ) -> None:
        # The router and the tables have different seeds: the choices that queue groups see could
        # reveal a common one.
        self.router = Router(chance.getrandbits(64))
        # Receivers of messages without other receivers, see `unheard`.
        self.unheard_taker: Taker | None = None
        self.deadlines = Deadlines()
        self.deferred = CheckQueue()  # passwords to check elsewhere
        self.watch = TurnWatch(clock, log)
        # Called in every turn; attributes instead of methods, which would add 28 ns to 77
        # (`benchmarks.micro`, frame-broker).
        self.turn_end = TurnEnd(self, self.router, self.watch, self.deadlines)
        self.end_turn: Callable[[], list[Session]] = self.turn_end.end_turn
        self.next_deadline_ns: Callable[[], int | None] = self.turn_end.next_deadline_ns
        self.faults = self.router.faults
        self.faults.report = log.error
        self.hash_seed = chance.getrandbits(64)
        self.chance = chance
        self.options = options
        self.clock = clock
        self.log = log
        self.server_id = server_id
        self.server_name = options.server_name or default_name or server_id
        self.start_ns = clock.wall_ns()
        self.config_load_ns = self.start_ns
        self.lame_duck = False
        self.sessions: dict[int, Session] = {}
        self.leaf_sessions: dict[int, LeafSession] = {}
        self.leaves: Leaves | None = None  # if there are leaf nodes
        self.closed: deque[ClosedSession] = deque(maxlen=options.max_closed_clients)
        self.observers: list[Observer] = []
        self.totals = Totals(self.router)
        self.accounts: dict[str, Account] = {}
        self.bridges = Bridges(self)
        self.account_claims: dict[str, tuple[AccountClaims, str]] = {}  # and the JWT
        self._set_accounts(accounts)
        self.info = CommonInfo(server_id, self.server_name, headers=not options.no_header_support)
        self.admission = Admission(self, gates)
        self._next_cid = 1
        # Accounts that were set since the last reload began, which has older options of them.
        self._set_since_reload: set[str] = set()
        # Called with dropped objects that are part of cycles, and with the objects around them.
        self.let_go: Callable[..., None] = _leave_to_python
        # The facts about this server in traces; created with the first trace.
        self.server_info: Callable[[], Any] = dict
        self._tracing: Tracing | None = None
        self._set_trace()

    def _set_trace(self) -> None:
        self.router.on_trace = self.trace_delivery if self.log.trace_enabled else None

    def _set_accounts(self, accounts: dict[str, AccountLimits]) -> None:
        """Create new accounts and update limits and mappings of the others; members keep their
        account.
        """
        for _ in self.make_accounts(accounts):
            pass
        for name in (GLOBAL_ACCOUNT, *accounts):
            self._set_account(name, accounts.get(name, AccountLimits()))
        for _ in self._join_accounts():
            pass

    def make_accounts(self, accounts: dict[str, AccountLimits]) -> Iterator[None]:
        """Create the new accounts, in steps; they have no members yet."""
        for name in (GLOBAL_ACCOUNT, *accounts):
            if name not in self.accounts:
                self._make_account(name, accounts.get(name, AccountLimits()))
                yield

    def _make_account(self, name: str, limits: AccountLimits) -> None:
        cache = not self.options.disable_sublist_cache
        self.accounts[name] = Account(name, self.router, self.hash_seed, limits, cache)

    def _set_account(self, name: str, limits: AccountLimits) -> None:
        account = self.accounts[name]
        account.limits = limits
        account.mappings = self._mappings_of(name)
        described = self.options.accounts.get(name)
        account.trace_rule = described.trace_rule if described is not None else None
        account.traces_parents = account.trace_rule is not None or self.router.spans is not None
        if self.leaves is not None:
            self.leaves.follow(account)

    def set_account(self, account: AccountOptions, limits: AccountLimits) -> None:
        """Called when an account that the configuration does not name was added or has changed."""
        before = self.options.accounts.get(account.name)
        self.options.accounts[account.name] = account
        self._set_since_reload.add(account.name)
        if account.name not in self.accounts:
            self._make_account(account.name, limits)
        self._set_account(account.name, limits)
        shared = (before.exports, before.imports) if before is not None else ((), ())
        if shared != (account.exports, account.imports):
            for _ in self._join_accounts():
                pass

    def record_spans(self, spans: SpanRecorder | None) -> None:
        """Start recording messages with a sampled traceparent; None stops it."""
        self.router.spans = spans
        for account in self.accounts.values():
            account.traces_parents = account.trace_rule is not None or spans is not None

    def waiting_answers(self, name: str, limit: int) -> dict[str, tuple[str, ServiceBridge]]:
        """The responses of an account that requesters wait for, for monitoring."""
        return self.bridges.waiting(name, limit)

    def _join_accounts(self) -> Iterator[None]:
        configured = self.options.accounts.items()
        shares = {name: Shares(one.exports, one.imports) for name, one in configured}
        yield from self.bridges.update(shares)

    def _mappings_of(self, name: str) -> AccountMappings | None:
        account = self.options.accounts.get(name)
        rules = account.mappings if account is not None else ()
        if name == GLOBAL_ACCOUNT:
            rules = self.options.mappings
        domain = self.options.default_js_domain.get(name, "")
        if domain and not self._has_jetstream(account):
            rules = (*rules, *domain_rules(domain))
        if not rules:
            return None
        return AccountMappings(rules, random_below=self.chance.randrange)

    def _has_jetstream(self, account: AccountOptions | None) -> bool:
        others = any(one.jetstream for one in self.options.accounts.values())
        named = account is not None and account.jetstream
        return self.options.jetstream.enabled and (named or not others)

    # ---------------------------------------------------------------- time

    def monotonic_ns(self) -> int:
        """The monotonic clock, for deadlines."""
        return self.clock.monotonic_ns()

    def now_ns(self) -> int:
        """The wall clock, for timestamps."""
        return self.clock.wall_ns()

    # ---------------------------------------------------------------- opening connections

    def open_session(
        self,
        remote: RemoteAddress,
        connection_type: str = "STANDARD",
        *,
        tls: Any = None,
        send_info: bool = True,
    ) -> Session:
        """Called when a connection was accepted; `send_info` is False if the listener itself sends
        INFO.

        The session may already be closed because of a limit: the link then only writes its output.
        """
        session = Session(
            self,
            self.router,
            self.accounts[GLOBAL_ACCOUNT],
            self.next_cid(),
            self.options,
            self.hash_seed,
        )
        session.remote_ip = remote.ip
        session.remote_port = remote.port
        session.connection_type = connection_type
        session.tls = tls
        session.trace = self.log.trace_enabled
        session.start_ns = session.last_activity_ns = self.now_ns()
        self.totals.total_connections += 1
        self.admission.opened(session)
        if send_info:
            session.write(self.first_info(session))
        self.sessions[session.cid] = session
        if self._refuse_at_limits(session):
            return session
        if self.log.debug_enabled:
            self.log.debug(f"{label(session)} - Client connection created")
        self.admission.enter_without_connect(session)
        self.deadlines.add(self._first_ping_ns(session), session.cid, "ping")
        return session

    def _first_ping_ns(self, session: Session) -> int:
        """The time of the first PING. Connections that open together get different ones, but not
        one timer each.
        """
        interval_ns = min(self._ping_interval_ns(session), FIRST_PING_NS)
        due_ns = self.monotonic_ns() + interval_ns
        if self.options.ping_interval_ns <= FIRST_PING_NS:
            return due_ns
        jittered_ns = due_ns + int(self.chance.random() * (interval_ns // 5))
        return max(due_ns, jittered_ns - jittered_ns % FIRST_PING_STEP_NS)

    def next_cid(self) -> int:
        """The number of a new connection."""
        self._next_cid += 1
        return self._next_cid - 1

    def start_leaves(self, options: LeafOptions) -> Leaves:
        """Enable leaf nodes."""
        # Loaded when it is needed: a server that runs alone starts sooner.
        from tradewind.broker.leaves import Leaves

        self.leaves = Leaves(self, options)
        return self.leaves

    def session_of(self, cid: int) -> Session | None:
        """The connection with this number, of a client or another server."""
        return self.sessions.get(cid) or self.leaf_sessions.get(cid)

    def _refuse_at_limits(self, session: Session) -> bool:
        """Close a new connection that exceeds a limit."""
        over = max(self.options.max_connections, 0) < len(self.sessions)
        if over or self.admission.has_no_place(session):
            self.log.error(f"{label(session)} - {ops.ERROR_MAX_CONNECTIONS}")
            session.close(ops.CLOSED_MAX_CONNECTIONS, ops.ERROR_MAX_CONNECTIONS)
            return True
        return False

    def first_info(self, session: Session) -> bytes:
        """The INFO at the start of a connection."""
        return self.info_line(
            session,
            auth_required=self.admission.auth_required(session),
            own={
                "client_id": session.cid,
                # Through a proxy, the address is known only after the proxy has sent it.
                "client_ip": "" if self.options.proxy_protocol else session.remote_ip,
                "nonce": session.nonce.decode(),
            },
        )

    def info_line(self, session: Session, own: dict[str, Any] | None = None, **extra: Any) -> bytes:
        """An INFO after the first one, with the values for this connection."""
        account_max = session.account.limits.payload_bytes_max
        payload_max = self.admission.limits_of(session).max_payload_bytes
        return self.info.line(
            session.connection_type,
            own or {"client_id": session.cid, "client_ip": session.remote_ip},
            max_payload=min(payload_max, account_max) if account_max >= 0 else payload_max,
            **{"auth_required": self.admission.has_logins, "ldm": self.lame_duck, **extra},
        )

    def broadcast_info(self) -> Iterator[None]:
        """Send an updated INFO to every client that understands it, in steps."""
        for session in list(self.sessions.values()):
            yield
            try:
                if session.is_connected and session.options.protocol >= 1:
                    session.write(self.info_line(session))
            except Exception as error:
                self.session_failed(session, error)
            yield

    # ---------------------------------------------------------------- called by sessions

    def connect_received(self, session: Session, argument: bytes) -> None:
        """Called when CONNECT has arrived."""
        self.admission.connect(session, argument)

    def refuse(self, session: Session, reason: str) -> None:
        """Reject an operation that arrived before CONNECT and must not."""
        self.admission.reject(session, reason)

    def info_received(self, session: Session, argument: bytes) -> None:
        """Called when a client has sent INFO: a valid one is ignored, as on nats-server."""
        try:
            msgspec.json.decode(argument, type=dict[str, Any])
        except JSON_ERRORS:
            session.close(ops.CLOSED_PROTOCOL)

    def first_pong_sent(self, session: Session) -> None:
        """Called when the first PING after CONNECT was answered: the client learns its account."""
        if session.options.protocol >= 1:
            session.write(
                self.info_line(
                    session,
                    connect_info=True,
                    remote_account=session.account.name,
                    acc_is_sys=self.is_system_account(session.account),
                )
            )

    def pong_received(self, session: Session) -> None:
        """Called when a peer has answered a PING."""
        session.pings_outstanding = 0
        if session.ping_sent_ns:
            session.rtt_ns = max(self.monotonic_ns() - session.ping_sent_ns, 1)
            session.ping_sent_ns = 0

    def publish_denied(
        self,
        session: Session,
        subject: bytes,
        is_reply: bool,  # noqa: FBT001
    ) -> None:
        """Report a publish violation to the peer and the log."""
        name = subject.decode("utf-8", "surrogateescape")
        kind = "Publish with Reply of" if is_reply else "Publish to"
        if self.router.trace is not None:
            self.router.trace.failed(f'Permissions Violation for {kind} "{name}"')
        session.send_error(f'Permissions Violation for {kind} "{name}"')
        what = "Reply" if is_reply else "Subject"
        self.log.error(f'{label(session)} - Publish Violation - {what} "{printable(subject)}"')

    @property
    def tracing(self) -> Tracing:
        """The traces of messages; created with the first request for one."""
        if self._tracing is None:
            from tradewind.broker.message_trace import Tracing

            self._tracing = Tracing(self, self.server_info)
        return self._tracing

    def publish_traced(self, session: Session, handle: int) -> None:
        """Publish a message that requests a trace; `handle` is the address of its operation."""
        from tradewind.broker.traced import publish_traced

        publish_traced(session, handle, self.tracing)

    def too_large(self, session: Session, data: bytes) -> None:
        """Called when a message with a header is too large; `data` is its beginning."""
        self.tracing.too_large(session, data)

    def subscribe_denied(self, session: Session, subject: bytes, queue: bytes, sid: bytes) -> None:
        """Report a subscription violation to the peer and the log."""
        name = subject.decode("utf-8", "surrogateescape")
        group = queue.decode("utf-8", "surrogateescape")
        using = f' using queue "{group}"' if group else ""
        session.send_error(f'Permissions Violation for Subscription to "{name}"{using}')
        queue_text = f'Queue: "{printable(queue)}", ' if queue else ""
        self.log.error(
            f'{label(session)} - Subscription Violation - Subject "{printable(subject)}", '
            f"{queue_text}SID {printable(sid)}"
        )

    def identity_of(self, cid: int) -> Identity | None:
        """The identity that a connection has proved by its JWT; None without a JWT."""
        return self.admission.identity_of(cid)

    def proxy_key(self, cid: int) -> str:
        """The key of the trusted proxy of a connection; empty if it came directly."""
        return self.admission.proxy_key(cid)

    def is_undecided(self, cid: int) -> bool:
        """Whether a connection has sent a CONNECT that was not accepted."""
        return self.admission.is_undecided(cid)

    def account_of(self, session: Session) -> Account | None:
        """The account that a connection has proved to belong to; None if its login has failed or is
        undecided.
        """
        is_member = not session.must_authenticate and not self.is_undecided(session.cid)
        return session.account if is_member else None

    def leaf_traffic(self, account: str = "") -> LeafTraffic:
        """The traffic of leaf connections since the start, of one account or of all."""
        return self.leaves.traffic(account) if self.leaves is not None else LeafTraffic()

    def is_system_account(self, account: Account) -> bool:
        """Whether this is the account of the server's own events and requests."""
        return account is self.system_account

    @property
    def system_account(self) -> Account | None:
        """The system account, unless it is switched off."""
        return self.accounts.get(self.options.system_account)

    def trace_operation(self, session: Session, kind: int, argument: bytes, body: bytes) -> None:
        """Log an inbound operation, if enabled; credentials are removed from CONNECT."""
        self.trace_line(session, KIND_NAMES[kind], argument, body)

    def trace_line(self, session: Session, name: str, argument: bytes, body: bytes) -> None:
        """Log an inbound operation by its name."""
        text = self.admission.redacted(argument) if name == "CONNECT" else printable(argument)
        self.log.trace(
            f"{label(session)} - <<- [{name} {text}]"
            if text
            else f"{label(session)} - <<- [{name}]"
        )
        if body:
            self.log.trace(f'{label(session)} - <<- MSG_PAYLOAD: ["{self._shortened(body)}"]')
        if name == "PING":
            self.log.trace(f"{label(session)} - ->> [PONG]")

    def trace_delivery(
        self, session: Session, subject: bytes, sid: bytes, reply: bytes, body: bytes
    ) -> None:
        """Log an outbound message, if enabled."""
        words = b" ".join(word for word in (subject, sid, reply) if word)
        self.log.trace(f"{label(session)} - ->> [MSG {printable(words)} {len(body)}]")

    def _shortened(self, body: bytes) -> str:
        limit = self.options.max_traced_msg_len
        return printable(body[:limit]) + "..." if 0 < limit < len(body) else printable(body)

    # ---------------------------------------------------------------- closing connections

    def session_closing(self, session: Session) -> None:
        """Called by a session that is closing, while its subscriptions still exist."""
        claims = shown_claims(self.identity_of(session.cid))
        proxy_key = self.proxy_key(session.cid)
        record = closed_session(session, self.account_of(session), self.now_ns(), claims, proxy_key)
        self._forget(session)
        self.closed.append(record)
        is_leaf = session.kind == "Leafnode"
        if session.close_reason in (ops.CLOSED_SLOW_PENDING, ops.CLOSED_SLOW_DEADLINE):
            self.totals.slow_consumers += 1
            self.totals.slow_leaves += is_leaf
            session.account.slow_consumers += 1
        elif session.close_reason == ops.CLOSED_STALE:
            self.totals.stale_connections += 1
            self.totals.stale_leaves += is_leaf
        # Connections of other servers count only if they have logged in.
        if session.is_connected or not is_leaf:
            self.tell_observers(lambda observer: observer.on_disconnect(record))
        self.admission.closed(session)

    def tell_observers(self, tell: Callable[[Observer], None]) -> None:
        """Notify observers; their errors do not affect the connection."""
        for observer in self.observers:
            try:
                tell(observer)
            except Exception as error:
                self.faults.contain("observer", error)

    def session_closed(self, session: Session) -> None:
        """Called by a session that has been removed from routing."""
        if self.log.debug_enabled:
            self.log.debug(f"{label(session)} - Client connection closed: {session.close_reason}")

    # ---------------------------------------------------------------- turns and timers

    def close_doomed(self, session: Session) -> None:
        """Close a session for which routing has found a reason."""
        if session.doom == ops.CLOSED_SLOW_PENDING:
            limit = self.options.max_pending_bytes
            self.log.notice(
                f"{label(session)} - Slow Consumer Detected: MaxPending of {limit} Exceeded"
            )
        session.close(session.doom)

    def service_failed(self, message: InternalMessage, error: Exception) -> None:
        """Called when a service of the server has failed."""
        self.faults.contain("service", error, message.subject)

    def session_failed(self, session: Session, error: Exception) -> None:
        """Called when a bug has affected one connection: close that connection."""
        self.faults.contain("session", error, label(session))
        try:
            session.close(ops.CLOSED_READ_ERROR)
        except Exception as another:
            self.faults.contain("session", another, label(session))
        # Even if closing it is what failed.
        self._forget(session)

    def _forget(self, session: Session) -> None:
        self.sessions.pop(session.cid, None)
        self.leaf_sessions.pop(session.cid, None)
        session.account.sessions.pop(session.cid, None)

    @property
    def engine(self) -> Engine | None:
        """The engine that takes part in the turns; None: the server has none."""
        return self.turn_end.engine

    @engine.setter
    def engine(self, engine: Engine | None) -> None:
        self.turn_end.engine = engine

    def tick(self) -> None:
        """Handle what is due; if that is much, the rest follows in the next turns."""
        for cid, kind in self.deadlines.take_due(self.monotonic_ns(), DUE_AT_ONCE_MAX):
            if kind == "bridge":
                self._bridge_due(cid)
                continue
            session = self.session_of(cid)
            if session is not None:
                try:
                    _DUE[kind](self, session)
                except Exception as error:
                    self.session_failed(session, error)
        self.watch.lap("timers of connections", "pings, deadlines and stalls")
        if self.engine is not None:
            try:
                self.engine.tick()
            except Exception as error:
                self.faults.contain("tick", error)

    def _bridge_due(self, number: int) -> None:
        try:
            self.bridges.due(number)
        except Exception as error:
            self.faults.contain("bridge", error)

    def _ping_interval_ns(self, session: Session) -> int:
        return (
            self.info.listener(session.connection_type).ping_interval_ns
            or self.options.ping_interval_ns
        )

    def _ping_due(self, session: Session) -> None:
        """Ping a quiet connection, or close it if it left too many pings unanswered."""
        now_ns = self.monotonic_ns()
        interval_ns = self._ping_interval_ns(session)
        self.deadlines.add(now_ns + interval_ns, session.cid, "ping")
        if self.admission.is_consulted(session.cid):
            return  # nothing is read from it before the service has answered
        rtt_asked = (
            session.rtt_measured_ns > 0 and now_ns - session.rtt_measured_ns < RTT_INTERVAL_NS
        )
        was_active, session.active = session.active, False
        if was_active and rtt_asked:
            session.pings_outstanding = 0
            return
        if session.pings_outstanding + 1 > self.options.ping_max:
            self.log.debug(f"{label(session)} - Stale Client Connection - Closing")
            session.close(ops.CLOSED_STALE, ops.ERROR_STALE)
            return
        session.pings_outstanding += 1
        session.ping_sent_ns = session.rtt_measured_ns = now_ns
        session.write(b"PING\r\n")

    def _authentication_due(self, session: Session) -> None:
        if session.must_authenticate and not self.admission.is_consulted(session.cid):
            self.log.error(f"{label(session)} - Authentication Timeout")
            session.close(ops.CLOSED_AUTHENTICATION_TIMEOUT, ops.ERROR_AUTHENTICATION_TIMEOUT)

    def _consultation_due(self, session: Session) -> None:
        self.admission.consultation_due(session)

    def _expiry_due(self, session: Session) -> None:
        self.admission.expiry_due(session)

    def write_blocked(self, session: Session) -> None:
        """Called when the socket accepts no more bytes: set the write deadline."""
        session.write_blocked_ns = self.monotonic_ns()
        if not session.write_deadline_armed:
            session.write_deadline_armed = True
            self.deadlines.add(
                session.write_blocked_ns + self.options.write_deadline_ns, session.cid, "write"
            )

    def write_resumed(self, session: Session) -> None:
        """Called when the socket accepts bytes again."""
        session.write_blocked_ns = 0

    def _write_due(self, session: Session) -> None:
        session.write_deadline_armed = False
        if not session.write_blocked_ns:
            return
        due_ns = session.write_blocked_ns + self.options.write_deadline_ns
        if self.monotonic_ns() < due_ns:
            session.write_deadline_armed = True
            self.deadlines.add(due_ns, session.cid, "write")
            return
        self.log.notice(
            f"{label(session)} - Slow Consumer Detected: WriteDeadline of "
            f"{self.options.write_deadline_ns / SECOND_NS:g}s exceeded with "
            f"{session.pending_bytes} bytes pending"
        )
        session.close(ops.CLOSED_SLOW_DEADLINE)

    def stalled(self, session: Session) -> None:
        """Called when a producer waits for a crowded receiver or stream; only for a moment, or a
        stuck receiver would stop all producers.
        """
        self.totals.stalled_clients += 1
        self.deadlines.add(self.monotonic_ns() + STALL_NS, session.cid, "stall")

    def _stall_due(self, session: Session) -> None:
        session.unblock(BLOCKED_STALL_FLAG)

    # ---------------------------------------------------------------- changes while running

    def authenticated(self, check: Check, decision: Identity | Rejection | Consultation) -> None:
        """Called with the result of a worker thread for a check that it took from `deferred`."""
        cid = self.deferred.finished(check, decision)
        if cid is not None:
            session = self.session_of(cid)
            assert session is not None, "a check ends with its connection"
            try:
                self.admission.decided(session, decision)
            except Exception as error:
                self.session_failed(session, error)

    def reload(
        self,
        options: ServerOptions,
        gates: dict[str, Gate],
        accounts: dict[str, AccountLimits],
        *,
        identities_changed: bool,
    ) -> None:
        """Apply new options; with `identities_changed` every connection has to pass the gate
        again.
        """
        for _ in self.reload_steps(options, gates, accounts, identities_changed=identities_changed):
            pass

    def reload_steps(
        self,
        options: ServerOptions,
        gates: dict[str, Gate],
        accounts: dict[str, AccountLimits],
        *,
        identities_changed: bool,
    ) -> Iterator[None]:
        """Apply new options in steps. Every login is decided by the old gate with the old options,
        or by the new gate with the new options: both change in one step, after new accounts exist.
        """
        from tradewind.broker.surplus import close_account_surplus, close_server_surplus

        self._set_since_reload.clear()
        yield from self.make_accounts(accounts)
        self.options = options
        self.config_load_ns = self.now_ns()
        self.admission.gates = gates
        for name in (GLOBAL_ACCOUNT, *accounts):
            if name not in self._set_since_reload:
                self._set_account(name, accounts.get(name, AccountLimits()))
            yield
        yield from self._join_accounts()
        for session in list(self.sessions.values()):
            if session.is_closed:
                continue
            try:
                session.trace = self.log.trace_enabled
                session.apply_limits(self.admission.limits_of(session))
                if identities_changed:
                    self.admission.recheck(session)
            except Exception as error:  # no other connection may keep what is no longer allowed
                self.session_failed(session, error)
            yield
        yield from close_server_surplus(self)
        for account in list(self.accounts.values()):
            yield from close_account_surplus(self, account)
            yield
        if self.leaves is not None and options.leafnodes is not None:
            self.leaves.reload(options.leafnodes, identities_changed=identities_changed)
        self._set_trace()

    def close_all(self, reason: str) -> Generator[None, None, None]:
        """Close all connections, in steps."""
        for session in [*self.sessions.values(), *self.leaf_sessions.values()]:
            self.close_session(session, reason)
            yield

    def close_session(self, session: Session, reason: str, error: str = "") -> None:
        """Close one connection, even if closing fails; the peer is sent the error."""
        try:
            session.close(reason, error)
        except Exception as fault:
            self.session_failed(session, fault)

    def announce_lame_duck(self, cid: int) -> bool:
        """Ask one client to move elsewhere; False if no client has that number."""
        session = self.sessions.get(cid)
        if session is None:
            return False
        session.write(self.info_line(session, ldm=True))
        return True

    def kick(self, cid: int) -> bool:
        """Close one connection; False if none has that number."""
        session = self.session_of(cid)
        if session is None:
            return False
        session.close(ops.CLOSED_KICKED)
        return True


def _leaf_due(kind: str, broker: Broker, session: Session) -> None:
    if broker.leaves is not None:
        _LEAF_DUE[kind](broker.leaves, session)


def domain_rules(domain: str) -> tuple[MappingRule, ...]:
    """Mappings by which clients that name no domain reach this domain (`default_js_domain`)."""
    # A server without JetStream and domains does not load the table.
    from tradewind.api.endpoint_row import PREFIX
    from tradewind.api.endpoints import subjects_by_word

    prefix = f"$JS.{domain}.API."
    pairs = [(PREFIX + part, prefix + part) for part in subjects_by_word(PREFIX)]
    pairs += [(part, prefix + part) for part in ("$KV.>", "$OBJ.>")]
    return tuple(MappingRule(source, (Destination(target),)) for source, target in pairs)


_LEAF_DUE: dict[str, Callable[[Leaves, Any], None]] = {
    "leaf_sync": lambda leaves, session: leaves.sync_due(session),
    "leaf_decode": lambda _, session: session.decode_more(),
    "leaf_answer": lambda leaves, session: leaves.answer_due(session),
}
_DUE: dict[str, Callable[[Broker, Session], None]] = {
    "ping": Broker._ping_due,
    "auth": Broker._authentication_due,
    "write": Broker._write_due,
    "stall": Broker._stall_due,
    "expiry": Broker._expiry_due,
    "consultation": Broker._consultation_due,
    **{kind: partial(_leaf_due, kind) for kind in _LEAF_DUE},
}
