"""The parts of the broker that monitoring reads, as Protocols.

Owns no behaviour. This package accesses the broker only through these names, so a test can replace
it with plain objects, and the broker can change everything that is not named here. All times are
wall clock nanoseconds.
"""

# A property here only names what its class describes, so each has no text of its own:
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tradewind.faults import Faults
from tradewind.options import ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.route.remapping import AccountMappings

if TYPE_CHECKING:
    from tradewind.broker.bridges import ServiceBridge
    from tradewind.broker.contracts import LeafTraffic
    from tradewind.broker.identity import Identity
    from tradewind.jwt import AccountClaims


class SubscriptionView(Protocol):
    """One subscription of a client; `queue` is empty for a plain one, `max_msgs` is 0 for one
    without a limit.
    """

    @property
    def subject(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def sid(self) -> str: ...
    @property
    def msgs(self) -> int: ...
    @property
    def max_msgs(self) -> int: ...
    @property
    def cid(self) -> int: ...
    @property
    def account(self) -> str: ...


class MessageView(Protocol):
    """A message to one of the server's own services; `session` is the client that published it, if
    there is one.
    """

    @property
    def subject(self) -> str: ...
    @property
    def reply(self) -> str: ...
    @property
    def header(self) -> bytes: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def session(self) -> Any: ...


class AccountView(Protocol):
    """One account: its members, counters and routing table, and the methods for serving and
    publishing in it.
    """

    @property
    def name(self) -> str: ...
    @property
    def session_count(self) -> int: ...
    @property
    def leaf_count(self) -> int: ...
    @property
    def subscription_count(self) -> int: ...
    @property
    def in_msgs(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def slow_consumers(self) -> int: ...
    @property
    def mappings(self) -> AccountMappings | None: ...

    def sublist_stats(self) -> Mapping[str, Any]:
        """The keys num_subscriptions, num_cache, num_inserts, num_removes, num_matches,
        cache_hit_rate, max_, avg_fanout.
        """

    def matching(self, subject: str) -> Sequence[SubscriptionView]:
        """The client subscriptions that a message on this subject would reach."""

    def all_subscriptions(self, offset: int, limit: int) -> Sequence[SubscriptionView]:
        """A page of the client subscriptions."""

    def has_interest(self, subject: str) -> bool:
        """Whether any subscription would receive a message on this subject."""

    def subscribe(self, subject: str, handler: Callable[[Any], None], queue: str = "") -> Any:
        """Call `handler` with each message; returns the token for `unsubscribe`."""

    def unsubscribe(self, token: Any) -> None:
        """Undo `subscribe`."""

    def publish(self, subject: str, payload: bytes, reply: str = "", header: bytes = b"") -> int:
        """Publish as the server; returns the number of deliveries."""


class ConnectionView(Protocol):
    """The common properties of an open and a closed connection. `account` is None before a login
    succeeded.
    """

    @property
    def cid(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def client_type(self) -> str: ...
    @property
    def remote_ip(self) -> str: ...
    @property
    def remote_port(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def last_activity_ns(self) -> int: ...
    @property
    def rtt_ns(self) -> int: ...
    @property
    def in_msgs(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def stalls(self) -> int: ...
    @property
    def subscription_count(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def lang(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def tls_version(self) -> str: ...
    @property
    def tls_cipher(self) -> str: ...
    @property
    def tls_peer_certs(self) -> Sequence[bytes]:
        """The certificates that the peer presented, DER, leaf first; empty without any."""

    @property
    def user(self) -> str: ...
    @property
    def account(self) -> AccountView | None: ...
    @property
    def is_connected(self) -> bool:
        """Whether it is logged in, or was at its end."""

    def subscriptions(self, limit: int, offset: int = 0) -> Sequence[SubscriptionView]:
        """Subscriptions of this connection, at most `limit` after the first `offset`."""


class SessionView(ConnectionView, Protocol):
    """An open connection."""

    @property
    def permissions(self) -> PermissionRules | None:
        """The rules that apply to it, as configured; None if everything is allowed."""


class LeafView(ConnectionView, Protocol):
    """An open connection to another server. Its subscriptions are that server's interest."""

    @property
    def account(self) -> AccountView: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def is_solicited(self) -> bool:
        """Whether this server has dialled."""

    @property
    def is_spoke(self) -> bool: ...
    @property
    def is_isolated(self) -> bool: ...
    @property
    def compression(self) -> str: ...


class ClosedSessionView(ConnectionView, Protocol):
    """A closed connection: the same figures, frozen."""

    @property
    def stop_ns(self) -> int: ...
    @property
    def reason(self) -> str: ...


class TotalsView(Protocol):
    """Counters since the server started."""

    @property
    def in_msgs(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def slow_consumers(self) -> int: ...
    @property
    def stale_connections(self) -> int: ...
    @property
    def stalled_clients(self) -> int: ...
    @property
    def total_connections(self) -> int: ...
    @property
    def auth_failures(self) -> int: ...
    @property
    def slow_leaves(self) -> int: ...
    @property
    def stale_leaves(self) -> int: ...


class KindOfTurnView(Protocol):
    """Turns above the budget that were mostly one kind of work."""

    @property
    def count(self) -> int: ...
    @property
    def longest_ns(self) -> int: ...


class TurnWatchView(Protocol):
    """The durations of turns of the event loop; a page is a turn of its own."""

    @property
    def budget_ns(self) -> int: ...
    @property
    def longest_ns(self) -> int: ...
    @property
    def kinds(self) -> Mapping[str, KindOfTurnView]: ...

    def begin(self) -> int:
        """Begin a step."""

    def lap(self, kind: str, detail: object) -> int:
        """End the step and begin the next one."""

    def end_turn(self) -> None:
        """End the turn."""


class BrokerView(Protocol):
    """The broker as a whole; `sessions` are the open ones by cid, `closed` the most recently closed
    ones, oldest first.
    """

    @property
    def server_id(self) -> str: ...
    @property
    def server_name(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def config_load_ns(self) -> int: ...
    @property
    def options(self) -> ServerOptions: ...
    @property
    def accounts(self) -> Mapping[str, AccountView]: ...
    @property
    def sessions(self) -> Mapping[int, SessionView]: ...
    @property
    def leaf_sessions(self) -> Mapping[int, LeafView]: ...
    @property
    def closed(self) -> Iterable[ClosedSessionView]: ...
    @property
    def totals(self) -> TotalsView: ...
    @property
    def faults(self) -> Faults: ...
    @property
    def watch(self) -> TurnWatchView: ...
    @property
    def lame_duck(self) -> bool: ...
    @property
    def system_account(self) -> AccountView | None: ...

    @property
    def account_claims(self) -> Mapping[str, tuple[AccountClaims, str]]:
        """The claims of the accounts' JWTs, and the JWTs, in operator mode."""

    def waiting_answers(self, name: str, limit: int) -> Mapping[str, tuple[str, ServiceBridge]]:
        """The pending responses of an account: for each, by the subject that stands for it, the
        reply subject and the import.
        """

    def is_undecided(self, cid: int) -> bool:
        """Whether a connection has sent a CONNECT that was not accepted."""

    def account_of(self, session: Any) -> AccountView | None:
        """The account of a connection; None if its login has failed or is undecided."""

    def leaf_traffic(self, account: str = "") -> LeafTraffic:
        """The traffic of leaf connections since the start, of one account or of all."""

    def identity_of(self, cid: int) -> Identity | None:
        """The identity that a connection has proved by its JWT; None without a JWT."""

    def now_ns(self) -> int:
        """The wall clock."""
