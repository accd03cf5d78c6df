"""Operator mode in a running server: connects account book, resolver and broker.

Owns their cooperation: a new account in the book becomes an account of the broker, with its
services and JetStream, and its changes are applied to open connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tradewind import nkeys
from tradewind.broker.accounts import AccountLimits
from tradewind.clock import Clock
from tradewind.durations import SECOND_NS
from tradewind.errors import ServerStartError
from tradewind.jwt import AccountClaims, JwtError, decode_as
from tradewind.jwt.claims import new_account
from tradewind.options import SYSTEM_ACCOUNT, OperatorOptions, ResolverOptions, ServerOptions
from tradewind.route.mapping import MappingError
from tradewind.server.monitoring.logs import Log
from tradewind.server.operators.account_book import AccountBook, KnownAccount
from tradewind.server.operators.account_options import (
    account_options,
    exporters,
    next_change_ns,
)
from tradewind.server.operators.claims_requests import ClaimsRequests
from tradewind.server.operators.file_thread import FileThread
from tradewind.server.operators.live_sessions import LiveConnections
from tradewind.server.operators.lookups import AccountLookups
from tradewind.server.operators.operator_gate import OperatorGate
from tradewind.server.operators.resolvers import (
    FolderResolver,
    MemoryResolver,
    Resolver,
    ResolverError,
    UrlResolver,
)
from tradewind.server.operators.trust import trust_of

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker
    from tradewind.broker.identity import Gate
    from tradewind.monitor.system_events import SystemEventServer
    from tradewind.server.auth.callout_client import CalloutClient

# The interval at which files of expired accounts are looked for.
OVERDUE_SECONDS = 60.0
# A timer for a later time also fires after this interval, and finds nothing to do.
TOKEN_DELAY_NS_MAX = 24 * 3600 * 1_000_000_000


class Operators:
    """Operator mode of one server. `account_added` and `account_changed` are called with the
    account.
    """

    def __init__(
        self, options: ServerOptions, clock: Clock, log: Log, callouts: CalloutClient
    ) -> None:
        assert options.operator is not None
        self.options = options.operator
        self.system_account = options.system_account
        self.log = log
        self._clock = clock
        self.book = AccountBook(trust_of(options.operator), clock, self._changed)
        self.resolver = make_resolver(options.operator, self.book)
        self.lookups = AccountLookups(self.book, self.resolver, log.error)
        self._callouts = callouts
        self.gate = self._make_gate()
        self._broker: Broker | None = None
        self._live: LiveConnections | None = None
        # Callbacks of the parts that have something for every account: services, JetStream.
        self.on_account: list[Callable[[str], None]] = []
        self._files: FileThread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._token_timers: dict[str, asyncio.TimerHandle] = {}
        self._turn_needed: Callable[[], None] = lambda: None
        # Importers of accounts, which change with them.
        self._importers: dict[str, set[str]] = {}

    # ---------------------------------------------------------------- life cycle

    def gates(self) -> dict[str, Gate]:
        """One gate for every kind of listener."""
        kinds = ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS")
        return dict.fromkeys(kinds, self.gate)

    def _make_gate(self) -> OperatorGate:
        return OperatorGate(
            self.options,
            self.system_account,
            self.book,
            self.lookups,
            self._clock,
            self._callouts,
        )

    def start(self, broker: Broker, turn_needed: Callable[[], None]) -> None:
        """Load the configured accounts and the system account; ServerStartError if that is not
        possible.
        """
        self._broker = broker
        self._live = LiveConnections(broker, lambda: self.gate, turn_needed)
        self.lookups.turn_needed = self._turn_needed = turn_needed
        self._log_operators()
        try:
            if isinstance(self.resolver, UrlResolver):
                self.resolver.check()
            elif isinstance(self.resolver, FolderResolver):
                self.resolver.open()
                what = "all" if self.resolver.is_full else "some"
                self.log.notice(
                    f"Managing {what} jwt in exclusive directory {self.resolver.folder}"
                )
                self._store_preload(self.resolver)
        except ResolverError as error:
            raise ServerStartError(str(error)) from None
        self._load_system_account()

    def load(self, names: list[str]) -> None:
        """Load accounts that have streams, before any login."""
        for name in names:
            if nkeys.is_public(name, nkeys.ACCOUNT):
                self.lookups.fetch_now(name)

    def serve(
        self, server_info: Callable[[], SystemEventServer], turn_needed: Callable[[], None]
    ) -> None:
        """Answer requests about accounts, and remove files of accounts that have expired."""
        broker = self._broker
        assert broker is not None
        if self._files is None:
            self._files = FileThread(broker.faults, turn_needed)
        if broker.system_account is not None:
            ClaimsRequests(self, broker.system_account, self._files, server_info).start()
        self._look_for_overdue()

    def _look_for_overdue(self) -> None:
        folder = self.resolver
        if not isinstance(folder, FolderResolver) or self._files is None:
            return
        for key in self.book.accounts:
            folder.touch(key, self.now_ns())
        overdue = folder.overdue(self.now_ns())
        for key in overdue:
            folder.forget(key)

        def remove() -> None:
            for key in overdue:
                folder.remove(key, is_kept_aside=False)

        if overdue:
            self._files.run(remove, self._overdue_removed)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(OVERDUE_SECONDS, self._look_for_overdue)

    def _overdue_removed(self, error: Exception | None) -> None:
        if error is not None:
            self.log.error(f"Files of expired accounts cannot be removed: {error}")

    def now_ns(self) -> int:
        """The wall clock in nanoseconds."""
        return self._clock.wall_ns()

    def stop(self) -> None:
        """Stop fetching; acknowledged changes are already on disk."""
        for timer in (self._timer, *self._token_timers.values()):
            if timer is not None:
                timer.cancel()
        self.lookups.stop()
        if self._files is not None:
            self._files.stop()

    def _log_operators(self) -> None:
        if not self.book.trust.operators:
            return
        self.log.notice("Trusted Operators")
        for claims in self.book.trust.operators:
            self.log.notice(f'  System  : "{claims.aud}"')
            self.log.notice(f'  Operator: "{claims.name}"')
        if self.system_account in ("", SYSTEM_ACCOUNT):
            self.log.warn("Trusted Operators should utilize a System Account")

    def _load_system_account(self) -> None:
        if self.system_account in ("", SYSTEM_ACCOUNT):
            return
        self.lookups.fetch_now(self.system_account)
        found = self.book.find(self.system_account)
        if isinstance(found, KnownAccount):
            return
        if self.resolver.is_immediate:
            raise ServerStartError(f"error resolving system account: {found}")
        # Until its JWT is pushed, only its own key can sign its users.
        claims = new_account(self.system_account)
        claims.iss = min(self.book.trust.keys, default="")
        self.book.accounts[self.system_account] = KnownAccount(claims, "", {}, 0)
        self.log.warn("The system account cannot be fetched: its users can push its JWT")
        self._changed(self.system_account)

    def _store_preload(self, folder: FolderResolver) -> None:
        """Store the preloaded JWTs that the folder does not have, or has only in older versions."""
        for key, token in self.options.preload.items():
            try:
                issued_at = decode_as(AccountClaims, token).iat
            except JwtError:  # it was parsed with the configuration
                continue
            stored = folder.index.get(key)
            if stored is None or stored.issued_at < issued_at:
                folder.write(key, token)
                folder.note(key, token, self._clock.wall_ns())

    def reload(self, options: ServerOptions) -> Iterator[None]:
        """Apply a configuration that was read again, with the accounts in it; in steps."""
        assert options.operator is not None
        self.options = options.operator
        if isinstance(self.resolver, MemoryResolver):
            self.resolver.tokens = self.options.preload
        elif isinstance(self.resolver, FolderResolver):
            try:
                self.resolver.open()
                self._store_preload(self.resolver)
            except ResolverError as error:
                self.log.error(str(error))
        self.gate = self._make_gate()
        for key in list(self.book.accounts):
            yield
            token = self._reread(key)
            if token is not None:
                problem = self.book.learn(key, token)
                if problem:
                    self.log.error(f"Account [{key}] is not changed: {problem}")

    def _reread(self, key: str) -> str | None:
        if isinstance(self.resolver, UrlResolver):
            return None  # it would block everyone, and the next request is answered
        try:
            return self.resolver.fetch(key)
        except ResolverError:
            return None

    # ---------------------------------------------------------------- accounts

    def _changed(self, key: str) -> None:
        """Called when an account was added to the book or has changed in it."""
        assert self._broker is not None
        self._apply(key)
        for importer in self._importers.get(key, ()):
            self._apply(importer)
        claims = self.book.accounts[key].claims
        for exporter in exporters(claims):
            self._importers.setdefault(exporter, set()).add(key)
            if exporter not in self.book.accounts:
                self.lookups.fetch(exporter, "", lambda: None)
        if self._live is not None:
            self._live.account_changed(key)

    def _apply(self, key: str) -> None:
        """Apply the claims of an account to the broker's account."""
        broker = self._broker
        known = self.book.accounts.get(key)
        assert broker is not None
        if known is None:
            return
        broker.account_claims[key] = known.claims, known.token
        # One time for both questions: a token that is valid now must be checked again when it
        # expires.
        now_ns = self._clock.wall_ns()
        options = account_options(known.claims, self._find_claims, now_ns)
        try:
            broker.set_account(options, AccountLimits(options.max_connections))
        except MappingError as error:
            self.log.error(f"Account [{key}] has a mapping that cannot be used: {error}")
            broker.set_account(
                replace(options, mappings=()), AccountLimits(options.max_connections)
            )
        for tell in self.on_account:
            tell(key)
        self._apply_later(key, next_change_ns(known.claims, now_ns))

    def _apply_later(self, key: str, at_ns: int) -> None:
        """Apply the claims again when the token of an import has expired."""
        timer = self._token_timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if at_ns:
            delay_ns = min(at_ns - self._clock.wall_ns(), TOKEN_DELAY_NS_MAX)
            loop = asyncio.get_running_loop()
            self._token_timers[key] = loop.call_later(
                max(delay_ns, 0) / SECOND_NS, self._token_due, key
            )

    def _token_due(self, key: str) -> None:
        self._token_timers.pop(key, None)
        self._apply(key)
        self._turn_needed()

    def _find_claims(self, key: str) -> AccountClaims | None:
        known = self.book.accounts.get(key)
        return known.claims if known is not None else None


def make_resolver(options: OperatorOptions, book: AccountBook) -> Resolver:
    """The configured resolver, or that of the operator."""
    resolver = options.resolver
    if resolver is None:
        url = book.trust.operators[0].nats.account_server_url if book.trust.operators else ""
        resolver = ResolverOptions("url", url=f"{url.rstrip('/')}/accounts/")
    if resolver.kind == "url":
        return UrlResolver(resolver)
    if resolver.kind in ("full", "cache"):
        return FolderResolver(resolver)
    return MemoryResolver(options.preload)
