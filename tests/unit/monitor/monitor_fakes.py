"""Stand-ins for the broker with what monitoring reads of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tradewind.broker.contracts import LeafTraffic
from tradewind.broker.leaf_session import LeafSession
from tradewind.broker.turn_watch import TurnWatch
from tradewind.faults import Faults
from tradewind.options import ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.subjects import is_subset
from tradewind.testing import FakeClock, MemoryLog

START_NS = 1_794_770_144_583_020_414
SECOND_NS = 1_000_000_000
SERVER_ID = "NAVVRFQ4MMMYZQGMV4MHRPM5JFQWIFCZNHOHZ3JDQ3H6DTVDVVQVOHWU"


@dataclass
class FakeSubscription:
    subject: str
    queue: str = ""
    sid: str = "1"
    msgs: int = 0
    max_msgs: int = 0
    cid: int = 0
    account: str = "$G"


@dataclass
class FakeMessage:
    subject: str
    reply: str = "_INBOX.1"
    header: bytes = b""
    payload: bytes = b""
    session: Any = None


@dataclass
class FakeAccount:
    name: str
    session_count: int = 0
    leaf_count: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0
    mappings: None = None
    subscription_list: list[FakeSubscription] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    interest: tuple[str, ...] = (">",)
    handlers: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    published: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    pages: list[tuple[int, int]] = field(default_factory=list)

    @property
    def subscription_count(self) -> int:
        return len(self.subscription_list)

    def sublist_stats(self) -> dict[str, Any]:
        empty = {
            "num_subscriptions": self.subscription_count,
            "num_cache": 0,
            "num_inserts": self.subscription_count,
            "num_removes": 0,
            "num_matches": 0,
            "cache_hit_rate": 0.0,
            "max_fanout": 0,
            "avg_fanout": 0.0,
        }
        return {**empty, **self.stats}

    def matching(self, subject: str) -> list[FakeSubscription]:
        return [s for s in self.subscription_list if is_subset(subject, s.subject)]

    def all_subscriptions(self, offset: int, limit: int) -> list[FakeSubscription]:
        self.pages.append((offset, limit))
        return self.subscription_list[offset : offset + limit]

    def has_interest(self, subject: str) -> bool:
        return any(is_subset(subject, pattern) for pattern in self.interest)

    def subscribe(self, subject: str, handler: Callable[[Any], None], queue: str = "") -> str:
        assert subject not in self.handlers
        self.handlers[subject] = handler
        return subject

    def unsubscribe(self, token: str) -> None:
        del self.handlers[token]

    def publish(self, subject: str, payload: bytes, reply: str = "", header: bytes = b"") -> int:
        self.published.append((subject, payload, header))
        return 1

    def request(self, message: FakeMessage) -> None:
        """Deliver to every service whose subject matches; fails when there is none."""
        found = [h for pattern, h in self.handlers.items() if is_subset(message.subject, pattern)]
        assert found, f"nobody serves {message.subject}"
        for handler in found:
            handler(message)


@dataclass
class FakeSession:
    cid: int
    account: FakeAccount | None = None
    kind: str = "Client"
    client_type: str = "nats"
    remote_ip: str = "127.0.0.1"
    remote_port: int = 50_000
    start_ns: int = START_NS
    last_activity_ns: int = START_NS
    rtt_ns: int = 412_345
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    pending_bytes: int = 0
    stalls: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    tls_version: str = ""
    tls_cipher: str = ""
    tls_peer_certs: tuple[bytes, ...] = ()
    user: str = ""
    permissions: PermissionRules | None = None
    is_connected: bool = True
    subscription_list: list[FakeSubscription] = field(default_factory=list)
    described: int = 0

    @property
    def subscription_count(self) -> int:
        return len(self.subscription_list)

    def subscriptions(self, limit: int, offset: int = 0) -> list[FakeSubscription]:
        self.described += 1
        return list(self.subscription_list[offset : offset + limit])


@dataclass
class FakeClosedSession(FakeSession):
    stop_ns: int = START_NS + 5 * SECOND_NS
    reason: str = "Client Closed"


@dataclass
class FakeTotals:
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0
    stale_connections: int = 0
    stalled_clients: int = 0
    total_connections: int = 0
    auth_failures: int = 0
    slow_leaves: int = 0
    stale_leaves: int = 0


@dataclass
class FakeBroker:
    server_id: str = SERVER_ID
    server_name: str = "s1"
    start_ns: int = START_NS
    config_load_ns: int = START_NS
    options: ServerOptions = field(default_factory=lambda: ServerOptions(host="127.0.0.1"))
    accounts: dict[str, FakeAccount] = field(default_factory=dict)
    sessions: dict[int, FakeSession] = field(default_factory=dict)
    leaf_sessions: dict[int, LeafSession] = field(default_factory=dict)
    closed: deque[FakeClosedSession] = field(default_factory=deque)
    totals: FakeTotals = field(default_factory=FakeTotals)
    faults: Faults = field(default_factory=Faults)
    watch: TurnWatch = field(default_factory=lambda: TurnWatch(FakeClock(), MemoryLog()))
    lame_duck: bool = False
    clock_ns: int = START_NS + 62 * SECOND_NS

    def __post_init__(self) -> None:
        if not self.accounts:
            self.accounts = {name: FakeAccount(name) for name in ("$G", "A", "$SYS")}

    @property
    def system_account(self) -> FakeAccount | None:
        return self.accounts.get(self.options.system_account)

    def now_ns(self) -> int:
        return self.clock_ns

    @property
    def account_claims(self) -> dict[str, Any]:
        return {}

    def proxy_key(self, cid: int) -> str:
        return ""

    def identity_of(self, cid: int) -> None:
        return None

    def is_undecided(self, cid: int) -> bool:
        return False

    def account_of(self, session: FakeSession) -> FakeAccount | None:
        return session.account

    def leaf_traffic(self, account: str = "") -> LeafTraffic:
        return LeafTraffic()

    def waiting_answers(self, name: str, limit: int) -> dict[str, Any]:
        return {}

    def add_session(self, cid: int, account: str = "A", **figures: Any) -> FakeSession:
        member = self.accounts[account]
        member.session_count += 1
        self.sessions[cid] = FakeSession(cid, member, **figures)
        return self.sessions[cid]

    def add_closed(self, cid: int, account: str = "A", **figures: Any) -> FakeClosedSession:
        self.closed.append(FakeClosedSession(cid, self.accounts[account], **figures))
        return self.closed[-1]
