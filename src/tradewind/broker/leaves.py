"""All leaf connections of a server: handshake, account, role, loops, and their end.

Owns every `LeafSession` from the start of its link to its end, and which accounts have leaf
sessions. The object takes the place of the broker for these sessions. It never does I/O: the code
in `server` connects and listens, and learns from the session when to retry (`retry_ns`).

Invariants:

- A connection joins one local account to one remote account. It sends and receives nothing before
  the handshake is complete.
- Of two connections with the same server, cluster and pair of accounts, the newer one stays.
- An account announces a subject of its own (`$LDS.`) on every connection. If that subject comes
  back on a connection, the servers form a loop, and that connection ends.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tradewind.broker.connect import ConnectRequest
from tradewind.broker.contracts import LeafTraffic, RemoteAddress, label, printable
from tradewind.broker.leaf_compression import (
    NOT_SUPPORTED,
    agreed_mode,
    decoder,
    encoder,
    is_compressing,
    shown_mode,
)
from tradewind.broker.leaf_handshake import (
    LeafConnect,
    LeafInfo,
    LeafPeer,
    connect_line,
    info_line,
    parse_info,
    parse_leaf_connect,
    rules_for_info,
)
from tradewind.broker.leaf_rules import Domains, accepted_rules, spoke_rules
from tradewind.broker.leaf_session import CONSUMERS_MAX, AccountLeaves, LeafSession
from tradewind.durations import SECOND_NS
from tradewind.errors import ProtocolError
from tradewind.options import CompressionOptions, LeafOptions, LeafRemoteOptions
from tradewind.route.interest import Interest
from tradewind.wire import ops
from tradewind.wire.leaf_parser import LEAF_KIND_NAMES

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.broker import Broker
    from tradewind.broker.identity import Identity

NONCE_RANDOM_BYTES = 11
LOOP_RANDOM_BYTES = 12
FIRST_PING_NS = SECOND_NS
# The time limit for the response to CONNECT.
CONNECT_INFO_NS = 2 * SECOND_NS
# Errors in a peer's configuration will not be corrected within a second.
RETRY_LOOP_NS = 30 * SECOND_NS
RETRY_VERSION_NS = 5 * SECOND_NS
# Users of leaf nodes whose consumers are remembered after a connection ends.
CONSUMER_USERS_MAX = 1000
# Traffic of more connections than this is added up once a second.
SUMMED_EACH_TIME_MAX = 1000
SUM_AGE_NS = SECOND_NS
# A peer with much unread output receives the rest a little later.
SYNC_PAUSE_NS = 2_000_000
_RETRIES = {
    "Loop detected": RETRY_LOOP_NS,
    ops.ERROR_LEAF_CLUSTER: RETRY_LOOP_NS,
    "connection rejected since minimum version": RETRY_VERSION_NS,
}


class Greeting(NamedTuple):
    """The first INFO of a hub, and how to respond to it."""

    info: LeafInfo
    login: Callable[[str], dict[str, str]]
    mode: str


class Leaves:
    """The leaf connections of one broker."""

    def __init__(self, broker: Broker, options: LeafOptions) -> None:
        self._broker = broker
        self.options = options
        self.sessions: dict[int, LeafSession] = broker.leaf_sessions
        self._accounts: dict[str, AccountLeaves] = {}
        self._loop_subjects: dict[str, str] = {}
        self._clusters: dict[str, int] = {}
        self._mapped: dict[str, set[str]] = {}  # sources of mappings, by account
        self._identities: dict[int, Identity] = {}
        self._connects: dict[int, LeafConnect] = {}
        self._greetings: dict[int, Greeting] = {}  # connections whose CONNECT is not sent yet
        # Consumers whose messages the users of leaf nodes have received, by account and user.
        self._consumers: dict[tuple[str, str], dict[bytes, None]] = {}
        # Traffic of connections that have ended, by account; the total is under "".
        self._ended: dict[str, LeafTraffic] = {}
        # Sums over many connections, and their time.
        self._summed: dict[str, tuple[int, LeafTraffic]] = {}
        self.follow_accounts()

    # ---------------------------------------------------------------- accounts

    def follow_accounts(self) -> None:
        """Record the interest of all accounts, including new ones."""
        for account in self._broker.accounts.values():
            self.follow(account)

    def follow(self, account: Account) -> None:
        """Record the interest of an account, including the sources of its mappings."""
        self._follow_mappings(account)
        if account.name in self._accounts:
            return
        account.sublist.tell_interest(Interest(self._broker.hash_seed))
        self._accounts[account.name] = AccountLeaves(account, self._broker.router)
        token = self._broker.chance.randbytes(LOOP_RANDOM_BYTES).hex()
        self._loop_subjects[account.name] = f"$LDS.{token}"
        account.subscribe(self._loop_subjects[account.name], _ignore)
        self._follow_mappings(account)

    def _follow_mappings(self, account: Account) -> None:
        interest = account.sublist.interest
        if interest is None:
            return
        sources = set() if account.mappings is None else set(account.mappings.shown())
        before = self._mapped.get(account.name, set())
        for source in sources - before:
            interest.hold(source.encode())
        for source in before - sources:
            interest.release(source.encode())
        self._mapped[account.name] = sources

    @property
    def cluster(self) -> str:
        """The name under which other servers know this server, if it dials."""
        options = self._broker.options
        return options.server_name if self.options.remotes else ""

    def count_of(self, account: str) -> int:
        """The number of leaf connections of an account."""
        leaves = self._accounts.get(account)
        return 0 if leaves is None else len(leaves.sessions)

    def traffic(self, account: str = "") -> LeafTraffic:
        """The traffic of leaf connections since the start, of one account or of all.

        Every event about an opened or closed connection contains it, so for many connections the
        sum may be a second old.
        """
        leaves = self._accounts.get(account)
        sessions = self.sessions if not account else {} if leaves is None else leaves.sessions
        now_ns = self._broker.monotonic_ns()
        known_ns, known = self._summed.get(account, (0, None))
        if known is not None and now_ns < known_ns + SUM_AGE_NS:
            return known
        found = LeafTraffic()
        found.add(self._ended.get(account, LeafTraffic()))
        for session in sessions.values():
            found.add(session)
        if len(sessions) > SUMMED_EACH_TIME_MAX:
            self._summed[account] = (now_ns, found)
        else:
            self._summed.pop(account, None)
        return found

    # ---------------------------------------------------------------- opening connections

    def _new_session(
        self, remote: RemoteAddress, account: Account, connection_type: str, *, is_solicited: bool
    ) -> LeafSession:
        broker = self._broker
        cid = broker.next_cid()
        session = LeafSession(
            self, broker.router, account, cid, broker.options, broker.hash_seed, is_solicited
        )
        session.remote_ip = remote.ip
        session.remote_port = remote.port
        session.connection_type = connection_type
        session.trace = broker.log.trace_enabled
        session.options = ConnectRequest()
        session.start_ns = session.last_activity_ns = broker.now_ns()
        self.sessions[cid] = session
        broker.deadlines.add(
            broker.monotonic_ns() + min(FIRST_PING_NS, broker.options.ping_interval_ns), cid, "ping"
        )
        return session

    def accepted(self, remote: RemoteAddress, connection_type: str = "LEAFNODE") -> LeafSession:
        """Called when a server has dialled this one. WebSocket has its own compression."""
        broker = self._broker
        session = self._new_session(
            remote, broker.accounts["$G"], connection_type, is_solicited=False
        )
        session.nonce = base64.urlsafe_b64encode(os.urandom(NONCE_RANDOM_BYTES)).rstrip(b"=")
        is_plain = connection_type == "LEAFNODE"
        session.compression = self.options.compression.mode if is_plain else NOT_SUPPORTED
        session.write(self._info(session, compression=session.compression if is_plain else ""))
        broker.log.debug(f"{label(session)} - Leafnode connection created")
        if not broker.admission.await_login(session, self.options.auth_timeout_ns):
            session.close(ops.CLOSED_MAX_CONNECTIONS, ops.ERROR_MAX_CONNECTIONS)
        return session

    def _info(self, session: LeafSession, **extra: Any) -> bytes:
        return info_line(
            self._broker,
            session.connection_type,
            self.cluster,
            client_id=session.cid,
            nonce=session.nonce.decode(),
            **extra,
        )

    def solicited(
        self,
        remote: LeafRemoteOptions,
        address: RemoteAddress,
        info: LeafInfo,
        login: Callable[[str], dict[str, str]],
        mode: str,
        connection_type: str,
    ) -> LeafSession:
        """Called after dialling, with the INFO of the other end; `mode` is the agreed compression.
        `login` creates the login fields of CONNECT for a nonce.
        """
        account = self._broker.accounts[remote.account]
        session = self._new_session(address, account, connection_type, is_solicited=True)
        session.settings = remote
        self._set_mode(session, mode, remote.compression)
        peer = LeafPeer(
            info.server_name, info.server_id, info.version, info.cluster, info.domain,
            info.remote_account, info.jetstream, info.proto,
        )  # fmt: skip
        session.set_peer(
            peer, self._has_headers(info.headers), not remote.hub, self._number(info.cluster)
        )
        if info.cluster and info.cluster == self.cluster:
            self._end(session, ops.CLOSED_LEAF_CLUSTER, ops.ERROR_LEAF_CLUSTER, RETRY_LOOP_NS)
            return session
        broker = self._broker
        broker.deadlines.add(broker.monotonic_ns() + CONNECT_INFO_NS, session.cid, "leaf_answer")
        self._greetings[session.cid] = Greeting(info, login, mode)
        if not is_compressing(mode):
            self._send_connect(session, info)
        return session

    def _send_connect(self, session: LeafSession, info: LeafInfo) -> None:
        """Send CONNECT. A hub that compresses has sent INFO again by now."""
        greeting = self._greetings.pop(session.cid)
        fields = self._connect_fields(
            session.settings,
            greeting.info,
            greeting.login(info.nonce or greeting.info.nonce),
            greeting.mode,
        )
        session.write(connect_line(fields))
        if not greeting.info.info_on_connect:
            self._begin_solicited(session, info)

    def _connect_fields(
        self, remote: LeafRemoteOptions, info: LeafInfo, login: dict[str, str], mode: str
    ) -> dict[str, Any]:
        broker = self._broker
        return {
            **login,
            "version": ops.NATS_VERSION,
            "name": broker.server_name,
            "server_id": broker.server_id,
            "cluster": self.cluster,
            "domain": broker.info.domain,
            "headers": self._has_headers(info.headers),
            "jetstream": broker.info.jetstream,
            "is_hub": remote.hub,
            "isolate": remote.request_isolation,
            "deny_pub": list(remote.deny_imports),
            "compress_mode": mode,
            "remote_account": remote.account,
            "protocol": ops.LEAF_PROTOCOL_VERSION,
        }

    def _has_headers(self, offered: bool) -> bool:  # noqa: FBT001
        return offered and not self._broker.options.no_header_support

    def _number(self, cluster: str) -> int:
        return self._clusters.setdefault(cluster, len(self._clusters) + 1) if cluster else 0

    def _set_mode(
        self, session: LeafSession, mode: str, options: CompressionOptions, rtt_ns: int = 0
    ) -> None:
        """Start compressing, unless the mode is without compression."""
        session.compression = shown_mode(options, mode, rtt_ns)
        if not is_compressing(mode):
            return
        if session.decoder is None:
            session.start_compression(decoder(), encoder(session.compression))
        else:
            session.set_encoding(encoder(session.compression))

    # ---------------------------------------------------------------- INFO

    def info_received(self, session: LeafSession, argument: bytes) -> None:
        """Called when a server has sent INFO."""
        try:
            info = parse_info(argument)
        except ProtocolError as error:
            self.peer_failed(session, error)
            return
        if session.must_authenticate:
            self._compress_accepted(session, info)
        elif session.is_solicited and not session.is_ready:
            if session.cid in self._greetings:
                self._send_connect(session, info)
            elif info.connect_info:
                self._begin_solicited(session, info)
        elif session.is_solicited and info.leafnode_urls is not None:
            session.remote_urls = info.leafnode_urls

    def _compress_accepted(self, session: LeafSession, info: LeafInfo) -> None:
        """Handle the compression choice of a server that dials: its first line, before CONNECT."""
        own = self.options.compression
        if session.decoder is not None or session.compression in (NOT_SUPPORTED, "off"):
            self.refuse(session, "INFO came before CONNECT")
            return
        known = ("off", "accept", "s2_auto", "s2_fast", "s2_better", "s2_best")
        if info.compression and info.compression not in known:
            error = ops.ERROR_LEAF_COMPRESSION.format(info.compression)
            session.close(ops.CLOSED_PROTOCOL, error)
            return
        mode = agreed_mode(own.mode, info.compression)
        self._set_mode(session, mode, own)
        if is_compressing(mode):
            session.write(self._info(session))

    def _begin_solicited(self, session: LeafSession, info: LeafInfo) -> None:
        """Called when the other end has accepted the login."""
        remote: LeafRemoteOptions = session.settings
        broker = self._broker
        account = session.account
        limit = account.limits.leafnodes_max
        if 0 <= limit <= self.count_of(account.name):
            session.close(ops.CLOSED_MAX_ACCOUNT_CONNECTIONS, ops.ERROR_MAX_ACCOUNT_CONNECTIONS)
            return
        domains = self._domains(session)
        if session.is_spoke:
            rules = spoke_rules(
                info.imports, info.exports, remote.deny_imports, remote.deny_exports, domains,
                broker.hash_seed,
            )  # fmt: skip
        else:
            rules = spoke_rules(
                None, None, remote.deny_imports, remote.deny_exports, domains, broker.hash_seed
            )
        session.is_isolated = remote.isolate or self.options.isolate
        session.set_rules(rules.incoming, rules.outgoing, rules.subscribable, rules.forbidden)
        session.enter(account, "", None, broker.options)
        broker.log.notice(
            f"{label(session)} - Leafnode connection created for account: {account.name}"
        )
        self._begin(session)

    # ---------------------------------------------------------------- CONNECT

    def connect_received(self, session: LeafSession, argument: bytes) -> None:
        """Called when a server that has dialled sends CONNECT."""
        if session.is_solicited or not session.must_authenticate:
            session.close(ops.CLOSED_PROTOCOL)
            return
        try:
            connect = parse_leaf_connect(argument)
        except ProtocolError as error:
            self.peer_failed(session, error)
            return
        problem = self._problem_of(connect)
        if problem is not None:
            session.close(*problem)
            return
        self._connects[session.cid] = connect
        session.options = connect.as_client()
        self._broker.admission.login(session, partial(self._admitted, session))

    def _problem_of(self, connect: LeafConnect) -> tuple[str, str] | None:
        """Why a server cannot be a leaf node here: the reason, and the error that is sent to it."""
        if connect.lang:
            return ops.CLOSED_WRONG_PORT, ops.ERROR_LEAF_PORT
        if connect.gateway:
            return ops.CLOSED_WRONG_PORT, ops.ERROR_LEAF_GATEWAY.format(connect.gateway)
        if " " in connect.cluster:
            return ops.CLOSED_PROTOCOL, ops.ERROR_LEAF_CLUSTER_SPACES
        if self.options.min_version and _older(connect.version, self.options.min_version):
            return (
                ops.CLOSED_LEAF_VERSION,
                ops.ERROR_LEAF_VERSION.format(self.options.min_version),
            )
        if connect.cluster and connect.cluster == self.cluster:
            return ops.CLOSED_LEAF_CLUSTER, ops.ERROR_LEAF_CLUSTER
        return None

    def _admitted(self, session: LeafSession, identity: Identity) -> None:
        """Called when the gate has accepted the server."""
        broker = self._broker
        account = broker.accounts.get(identity.account)
        if account is None:
            broker.admission.reject(session, f"account {identity.account!r} does not exist")
            return
        self.follow(account)
        limit = account.limits.leafnodes_max
        if 0 <= limit <= self.count_of(account.name):
            broker.admission.reject(session, f"account {account.name!r} has no leaf node left")
            return
        connect = self._connects[session.cid]
        self._identities[session.cid] = identity
        if session.decoder is None:
            session.compression = connect.compress_mode or NOT_SUPPORTED
        peer = LeafPeer(
            connect.name, connect.server_id, connect.version, connect.cluster, connect.domain,
            connect.remote_account, connect.jetstream, connect.protocol,
        )  # fmt: skip
        headers = self._has_headers(connect.headers)
        session.set_peer(peer, headers, connect.is_hub, self._number(connect.cluster))
        broker.admission.enter_leaf(session, account, identity)
        self._end_duplicate(session, account.name)
        domains = self._domains(session)
        rules = accepted_rules(
            identity.permissions,
            connect.deny_pub or (),
            domains,
            broker.hash_seed,
            is_spoke=session.is_spoke,
        )
        session.is_isolated = connect.isolate or self.options.isolate
        session.set_rules(rules.incoming, rules.outgoing, rules.subscribable, rules.forbidden)
        session.remember_consumers(self._consumers.get((account.name, session.user), {}))
        session.nonce = b""
        session.write(
            self._info(
                session,
                connect_info=True,
                remote_account=account.name,
                acc_is_sys=broker.is_system_account(account),
                **rules_for_info(identity.permissions),
            )
        )
        broker.log.notice(
            f"{label(session)} - Leafnode connection created for account: {account.name}"
        )
        self._begin(session)

    def _end_duplicate(self, session: LeafSession, account: str) -> None:
        """Close the older of two connections with the same server: it is dead."""
        peer: LeafPeer = session.remote
        if not peer.account:
            return
        for other in list(self._accounts[account].sessions.values()):
            before: LeafPeer = other.remote
            is_same = (before.name, before.cluster, before.account) == (
                peer.name,
                peer.cluster,
                peer.account,
            )
            if is_same and other is not session and not other.is_solicited:
                self._broker.log.error(f"{label(other)} - {ops.ERROR_LEAF_DUPLICATE}")
                other.close(ops.CLOSED_LEAF_DUPLICATE, ops.ERROR_LEAF_DUPLICATE)

    def _domains(self, session: LeafSession) -> Domains:
        broker = self._broker
        account = session.account
        peer: LeafPeer = session.remote
        default = broker.options.default_js_domain.get(account.name)
        return Domains(
            broker.info.domain,
            peer.domain,
            is_system=broker.is_system_account(account),
            is_lifted=default == "",
        )

    def _begin(self, session: LeafSession) -> None:
        """Start the flow of messages and interest."""
        session.start_messages()
        if not session.rtt_ns:
            session.rtt_ns = max(self._broker.now_ns() - session.start_ns, 1)
        leaves = self._accounts[session.account.name]
        if leaves.join(session):
            self._sync_later(session, 0)
        # As on nats-server, logins that are for leaf nodes alone only cause an event at the end.
        if session.is_solicited or not self.options.authorization.users:
            self._broker.tell_observers(lambda observer: observer.on_connect(session))

    def sync_due(self, session: LeafSession) -> None:
        """Announce some more of this server's interest to a new peer."""
        if self._accounts[session.account.name].sync(session):
            self._sync_later(session, SYNC_PAUSE_NS if session.pending_bytes else 0)

    def _sync_later(self, session: LeafSession, pause_ns: int) -> None:
        broker = self._broker
        broker.deadlines.add(broker.monotonic_ns() + pause_ns, session.cid, "leaf_sync")

    # ---------------------------------------------------------------- called by sessions

    def monotonic_ns(self) -> int:
        """The monotonic clock, for deadlines."""
        return self._broker.monotonic_ns()

    def is_loop(self, session: LeafSession, subject: bytes) -> bool:
        """Whether a peer subscribes to the subject that this account has announced to detect
        loops.
        """
        account = session.account.name
        if subject.decode("utf-8", "replace") != self._loop_subjects[account]:
            return False
        self._end(session, ops.CLOSED_PROTOCOL, ops.ERROR_LEAF_LOOP.format(account), RETRY_LOOP_NS)
        return True

    def _end(self, session: LeafSession, reason: str, error: str, retry_ns: int) -> None:
        session.retry_ns = retry_ns
        self._broker.log.error(f"{label(session)} - {error}")
        session.close(reason, error)

    def error_received(self, session: LeafSession, argument: bytes) -> None:
        """Called when the other server reports an error; most of the time it then closes the
        connection.
        """
        text = argument.decode("utf-8", "replace").strip("'")
        self._broker.log.error(f"{label(session)} - Leafnode Error {printable(argument)}")
        for start, retry_ns in _RETRIES.items():
            if text.startswith(start):
                session.retry_ns = retry_ns
                session.close(ops.CLOSED_PROTOCOL)
                return
        if text.startswith("Permissions Violation") and session.is_solicited:
            session.retry_ns = 0 if session.is_spoke else RETRY_LOOP_NS

    def peer_failed(self, session: LeafSession, error: Exception) -> None:
        """Called when the input of the peer cannot be parsed."""
        self._broker.log.error(f"{label(session)} - {error}")
        session.close(ops.CLOSED_PROTOCOL)

    def refuse(self, session: LeafSession, reason: str) -> None:
        """Reject an operation that arrived before CONNECT and must not."""
        self._broker.admission.reject(session, reason)

    def publish_denied(
        self,
        session: LeafSession,
        subject: bytes,
        _is_reply: bool,  # noqa: FBT001
    ) -> None:
        """Close a peer that publishes what its user may not: it ignores the permissions announced
        to it.
        """
        name = subject.decode("utf-8", "surrogateescape")
        session.retry_ns = RETRY_LOOP_NS if session.is_solicited else 0
        self._broker.log.error(
            f'{label(session)} - Leafnode Publish Violation - Subject "{printable(subject)}"'
        )
        session.close(
            ops.CLOSED_AUTHENTICATION_FAILURE, f'Permissions Violation for Publish to "{name}"'
        )

    def mapped_denied(self, session: LeafSession, subject: bytes, mapped: bytes) -> None:
        """Log that the account maps a permitted message of a peer to a subject that the user is
        denied. The peer cannot know that, so only the message is dropped.
        """
        self._broker.log.error(
            f'{label(session)} - Leafnode Publish Violation - Subject "{printable(subject)}" '
            f'is mapped to "{printable(mapped)}"'
        )

    def consumer_noted(self, session: LeafSession, name: bytes) -> None:
        """Record that a peer with permissions was sent a message of a consumer. Its user may
        acknowledge the message after reconnecting, too.
        """
        user = session.account.name, session.user
        noted = self._consumers.setdefault(user, {})
        noted[name] = None
        if len(noted) > CONSUMERS_MAX:
            del noted[next(iter(noted))]
        if len(self._consumers) > CONSUMER_USERS_MAX:
            del self._consumers[next(iter(self._consumers))]

    def publish_traced(self, session: LeafSession, handle: int) -> None:
        """Publish a message that requests a trace; `handle` is the address of its operation."""
        self._broker.publish_traced(session, handle)

    def subscribe_denied(
        self, session: LeafSession, subject: bytes, _queue: bytes, _sid: bytes
    ) -> None:
        """Report a subscription of a peer that its user may not make."""
        name = subject.decode("utf-8", "surrogateescape")
        self._broker.log.error(
            f'{label(session)} - Leafnode Subscription Violation - Subject "{printable(subject)}"'
        )
        session.close(
            ops.CLOSED_AUTHENTICATION_FAILURE, f'Permissions Violation for Subscription to "{name}"'
        )

    def pong_received(self, session: LeafSession) -> None:
        """Called when a peer has answered a PING: compression depends on the round trip time."""
        self._broker.pong_received(session)
        options = self._compression_of(session)
        if session.decoder is not None and options.mode == "s2_auto":
            self._set_mode(session, "s2_auto", options, session.rtt_ns)

    def _compression_of(self, session: LeafSession) -> CompressionOptions:
        remote: LeafRemoteOptions | None = session.settings
        return self.options.compression if remote is None else remote.compression

    def decoding_later(self, session: LeafSession) -> None:
        """Schedule the decoding of more input in another turn."""
        broker = self._broker
        broker.deadlines.add(broker.monotonic_ns(), session.cid, "leaf_decode")

    def answer_due(self, session: LeafSession) -> None:
        """Close a connection whose login was not accepted in time."""
        if not session.is_ready:
            self._broker.log.error(f"{label(session)} - {ops.ERROR_LEAF_STALE}")
            session.close(ops.CLOSED_STALE, ops.ERROR_LEAF_STALE)

    def trace_operation(
        self, session: LeafSession, kind: int, argument: bytes, body: bytes
    ) -> None:
        """Log an inbound operation, if enabled."""
        name = LEAF_KIND_NAMES[kind]
        self._broker.trace_line(session, name, argument, body)

    def stalled(self, session: LeafSession) -> None:
        """Called when a connection waits for a crowded receiver."""
        self._broker.stalled(session)

    def is_system_account(self, account: Account) -> bool:
        """Whether this is the account of the server's own events."""
        return self._broker.is_system_account(account)

    def session_failed(self, session: LeafSession, error: Exception) -> None:
        """Called when a bug has affected one connection: close that connection."""
        self._broker.session_failed(session, error)

    def session_closing(self, session: LeafSession) -> None:
        """Called by a session that is closing, while its interest still exists."""
        self._connects.pop(session.cid, None)
        self._greetings.pop(session.cid, None)
        self._identities.pop(session.cid, None)
        for name in ("", session.account.name):
            self._ended.setdefault(name, LeafTraffic()).add(session)
        self._broker.session_closing(session)

    def session_closed(self, session: LeafSession) -> None:
        """Called by a session that has been removed from routing."""
        self._broker.log.notice(
            f"{label(session)} - Leafnode connection closed: {session.close_reason}"
            f" - Account: {session.account.name}"
        )

    # ---------------------------------------------------------------- changes while running

    def reload(self, options: LeafOptions, *, identities_changed: bool) -> None:
        """Apply new options. Connections whose identity would change have to connect again."""
        self.options = options
        self.follow_accounts()
        broker = self._broker
        for session in list(self.sessions.values()):
            try:
                session.apply_limits(broker.options)
                session.trace = broker.log.trace_enabled
                if not identities_changed or session.is_solicited:
                    continue
                if not broker.admission.ask_again(session) and session.is_ready:
                    broker.admission.login(session, partial(self._confirmed, session))
            except Exception as error:  # no other connection may keep what is no longer allowed
                broker.session_failed(session, error)

    def _confirmed(self, session: LeafSession, identity: Identity) -> None:
        if identity != self._identities.get(session.cid):
            session.close(ops.CLOSED_AUTHENTICATION_FAILURE, ops.ERROR_AUTHORIZATION)


def _older(version: str, minimum: str) -> bool:
    return version_numbers(version) < version_numbers(minimum)


def version_numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version; a part that is not a number counts as 0."""
    parts = text.lstrip("v").partition("-")[0].split(".")
    return tuple(int(part) if part.isdecimal() and len(part) < 10 else 0 for part in parts[:3])


def _ignore(_message: object) -> None:
    """Ignore the message: nothing should be sent to that subject."""
