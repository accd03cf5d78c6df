from collections.abc import Callable

import msgspec

from tradewind.broker.bridging import AccountBridge
from tradewind.broker.leaf_session import AccountLeaves
from tradewind.broker.router import Router
from tradewind.broker.session import Session
from tradewind.options import TraceRule
from tradewind.route.remapping import AccountMappings
from tradewind.route.sublist import Sublist

class InternalSubscription:
    @property
    def handler(self) -> object: ...

class InterestWatch:
    def __init__(self, account: Account, subject: bytes, callback: Callable[[], None]) -> None: ...
    def check_interest(self) -> None: ...
    def cancel(self) -> None: ...

class AccountLimits(msgspec.Struct, frozen=True):
    connections_max: int = -1
    subscriptions_max: int = -1
    payload_bytes_max: int = -1
    leafnodes_max: int = -1

class SubscriptionInfo(msgspec.Struct, frozen=True):
    subject: str
    queue: str
    sid: str
    msgs: int
    max_msgs: int
    cid: int
    account: str

class InternalMessage(msgspec.Struct, frozen=True):
    account: Account
    subject: str
    reply: str
    header: bytes
    payload: bytes
    session: Session | None

class Account:
    limits: AccountLimits
    bridge: AccountBridge | None
    shadow_count: int
    mappings: AccountMappings | None
    trace_rule: TraceRule | None
    traces_parents: bool
    total_connections: int
    slow_consumers: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    @property
    def name(self) -> str: ...
    @property
    def sessions(self) -> dict[int, Session]: ...
    @property
    def session_count(self) -> int: ...
    @property
    def subscription_count(self) -> int: ...
    def __init__(
        self,
        name: str,
        router: Router,
        seed: int,
        limits: AccountLimits | None = None,
        cache: bool = True,
    ) -> None: ...
    leaves: AccountLeaves | None
    @property
    def leaf_count(self) -> int: ...
    def answer_domain(self, prefix: bytes, words: dict[bytes, bool]) -> None: ...
    def members(self) -> list[Session]: ...
    def has_interest(self, subject: str) -> bool: ...
    def is_subscribed(self, subject: str) -> bool: ...
    def watch(self, subject: bytes, queue: bytes, watcher: Callable[[], object]) -> None: ...
    def unwatch(self, subject: bytes, queue: bytes, watcher: Callable[[], object]) -> None: ...
    def watch_interest(
        self, subject: str, callback: Callable[[], object]
    ) -> Callable[[], None]: ...
    def publish(
        self, subject: str, payload: bytes, reply: str = "", header: bytes = b""
    ) -> int: ...
    def ask(self, subject: str, payload: bytes, reply: str = "", header: bytes = b"") -> int: ...
    def subscribe(
        self, subject: str, handler: Callable[[InternalMessage], object], queue: str = ""
    ) -> int: ...
    def unsubscribe(self, token: int) -> None: ...
    def reshadow(self) -> None: ...
    @property
    def sublist(self) -> Sublist: ...
    def sublist_stats(self) -> dict[str, int | float]: ...
    def all_subscriptions(self, offset: int = 0, limit: int = 1024) -> list[SubscriptionInfo]: ...
    def matching(self, subject: str) -> list[SubscriptionInfo]: ...
