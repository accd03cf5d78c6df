"""Connect accounts: create bridges from their exports and imports.

Owns the bridges of a server: creates them, updates them when accounts change, and runs their
deadlines. It never handles messages, which is up to `broker.bridges` (services) and `broker.router`
(shadow subscriptions). An account without imports has no bridge, and an account that only exports
does not need one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.broker.bridges import Dice, ResponseInbox, ServiceBridge
from tradewind.broker.request_info import plain_info
from tradewind.route.sharing import ServiceExport, ServiceImport, StreamImport
from tradewind.route.sharing_rules import (
    ExportIndex,
    Shares,
    check_sharing,
    local_subject,
    local_template,
    remote_template,
)
from tradewind.route.sublist import Sublist
from tradewind.route.translation import SubjectTemplate, intersection
from tradewind.route.translator import Translator
from tradewind.subjects import is_literal, is_subset

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.broker import Broker
    from tradewind.broker.latency import LatencyMeter, Metric

# How long responses may still be awaited after their subscription was removed.
SWEEP_NS: Final = 100_000_000
# The deadline number of measurements; those of bridges have higher numbers.
REPORTS_NUMBER: Final = 0
# The limit for measurements that wait for the end of a turn; further ones are dropped.
REPORTS_MAX: Final = 65536
# The reach of a subscription: the account, the subject there, how subjects are translated back, and
# whether traces show the result.
_Reach = tuple["Account", bytes, Translator | None, bool]


class StreamBridge:
    """One stream import."""

    __slots__ = ("_back", "exporter", "local", "translator", "wanted")

    def __init__(self, exporter: Account, wanted: StreamImport) -> None:
        self.exporter = exporter
        self.wanted = wanted
        self.local = local_subject(wanted)
        self.translator = _translator(local_template(wanted))
        self._back = remote_template(wanted)

    def reach(self, subject: str) -> _Reach | None:
        """The reach of an importer's subscription over this bridge, or None."""
        common = intersection(subject, self.local)
        if common is None:
            return None
        remote = common if self._back is None else self._back.apply(common)
        return self.exporter, remote.encode(), self.translator, self.wanted.allow_trace


class AccountBridge:
    """All imports of one account."""

    def __init__(
        self, bridges: Bridges, streams: list[StreamBridge], services: list[ServiceBridge]
    ) -> None:
        self._bridges = bridges
        self.streams = streams
        self.services = services
        self._patterns = Sublist(0, cache=False)
        self._by_handle = {self._patterns.add(one.local.encode()): one for one in streams}
        self._is_sweep_due = False
        self._position: tuple[int, int] = (0, 0)
        self.number = 0

    def __del__(self) -> None:
        for handle in self._by_handle:
            self._patterns.discard(handle)

    def reached_by(self, subject: bytes) -> list[_Reach]:
        """The reach of a member's subscription besides its own account."""
        if not self.streams:
            return []
        text = subject.decode("utf-8", "surrogateescape")
        near = self.streams
        if is_literal(text):
            near = [self._by_handle[handle] for handle in self._patterns.find(subject)[0]]
        reached = (one.reach(text) for one in near)
        return [one for one in reached if one is not None]

    def takes(self, subject: str) -> bool:
        """Whether requests to this subject continue in another account."""
        return any(is_subset(subject, local_subject(one.wanted)) for one in self.services)

    def subscription_gone(self) -> None:
        """Called when a subscription was removed, which may have waited for a response: schedule
        one check of all of them.
        """
        if not self._is_sweep_due and any(one.pending for one in self.services):
            self._is_sweep_due = True
            self._position = (0, 0)
            self._bridges.due_at(self._bridges.clock.monotonic_ns() + SWEEP_NS, self.number)

    def sweep(self) -> None:
        """Check a part of the expected responses."""
        index, skip = self._position
        if index < len(self.services):
            left = self.services[index].sweep(skip)
            self._position = (index + 1, 0) if left is None else (index, left)
        if self._position[0] < len(self.services):
            self._bridges.due_at(self._bridges.clock.monotonic_ns(), self.number)
        else:
            self._is_sweep_due = False


class Bridges:
    """The bridges of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._dice = Dice(broker.chance)
        self._inboxes: dict[str, ResponseInbox] = {}
        self._numbered: dict[int, ServiceBridge | AccountBridge] = {}
        self._next_number = 1
        self.router = broker.router
        self.clock = broker.clock
        self.chance = broker.chance
        self._reports: list[tuple[Account, str, Metric]] = []
        # How accounts are joined, or are about to be; None: not all of them are.
        self._shares: dict[str, Shares] | None = {}

    @property
    def server_name(self) -> str:
        """The server name for services."""
        return self._broker.server_name

    # ---------------------------------------------------------------- creating bridges

    def update(self, shares: Mapping[str, Shares]) -> Iterator[None]:
        """Join the accounts in this way, in steps. Impossible imports are left out.

        An update that starts between two steps ends this one: it joins all accounts in a newer way.
        """
        if shares == self._shares:
            return
        self._shares = wanted = dict(shares)
        try:
            for _ in self._join_all(wanted):
                yield
                if self._shares is not wanted:
                    return
        except BaseException:
            if self._shares is wanted:
                self._shares = None  # the next update repeats all of it
            raise

    def _join_all(self, shares: Mapping[str, Shares]) -> Iterator[None]:
        sharing = {name: each for name, each in shares.items() if each.exports or each.imports}
        wrong = {id(problem.item) for problem in check_sharing(sharing)}
        offered = {
            name: ExportIndex(one for one in each.exports if isinstance(one, ServiceExport))
            for name, each in sharing.items()
        }
        for name, account in list(self._broker.accounts.items()):
            yield
            imports = [
                one
                for one in shares.get(name, Shares()).imports
                if id(one) not in wrong and one.account in self._broker.accounts
            ]
            self._join(
                account,
                [one for one in imports if isinstance(one, StreamImport)],
                [one for one in imports if isinstance(one, ServiceImport)],
                offered,
            )

    def _join(
        self,
        account: Account,
        streams: list[StreamImport],
        services: list[ServiceImport],
        offered: Mapping[str, ExportIndex[ServiceExport]],
    ) -> None:
        before = account.bridge
        kept = {one.wanted: one for one in before.services} if before is not None else {}
        stays = before is not None and [one.wanted for one in before.streams] == streams
        bridges = []
        for wanted in services:
            exports = offered.get(wanted.account)
            export = exports.covering(wanted.subject) if exports is not None else None
            if export is None:
                continue
            bridge = kept.pop(wanted, None)
            if bridge is None:
                bridge = self._open_service(account, wanted, export)
            else:
                bridge.offer(export)
            bridges.append(bridge)
        for bridge in kept.values():
            bridge.close()
            del self._numbered[bridge.number]
        if before is not None:
            del self._numbered[before.number]
        account.bridge = None
        if streams or bridges:
            accounts = self._broker.accounts
            reused = before.streams if stays and before is not None else None
            made = reused or [StreamBridge(accounts[one.account], one) for one in streams]
            account.bridge = AccountBridge(self, made, bridges)
            account.bridge.number = self._number(account.bridge)
        if not stays and (streams or before is not None):
            account.reshadow()
            for session in account.members():
                session.reshadow()

    def _open_service(
        self, account: Account, wanted: ServiceImport, export: ServiceExport
    ) -> ServiceBridge:
        bridge = ServiceBridge(
            self,
            self._next_number,
            account,
            self._broker.accounts[wanted.account],
            wanted,
            export,
            _translator(remote_template(wanted)),
        )
        self._number(bridge)
        bridge.start(local_subject(wanted).encode())
        return bridge

    def _number(self, bridge: ServiceBridge | AccountBridge) -> int:
        number = self._next_number
        self._numbered[number] = bridge
        self._next_number += 1
        return number

    # ---------------------------------------------------------------- called by bridges

    def inbox_of(self, account: Account) -> ResponseInbox:
        """The inbox where responses to members of an account arrive."""
        inbox = self._inboxes.get(account.name)
        if inbox is None:
            inbox = self._inboxes[account.name] = ResponseInbox(account, self._dice)
        return inbox

    def request_info(self, importer: Account, exporter: Account) -> tuple[bytes, bytes]:
        """The details of a client for services, if it does not share more."""
        is_system = self._broker.is_system_account(exporter)
        return plain_info(importer.name, self.server_name if is_system else "")

    def due_at(self, deadline_ns: int, number: int) -> None:
        """Schedule a call of `due` with this number."""
        self._broker.deadlines.add(deadline_ns, number, "bridge")

    def meter_of(self, bridge: ServiceBridge) -> LatencyMeter:
        """The meter for requests over a bridge whose export has `latency`."""
        from tradewind.broker.latency import LatencyMeter

        assert bridge.offered.latency is not None
        return LatencyMeter(self, bridge.exporter, bridge.importer, bridge.offered.latency)

    def report(self, account: Account, subject: str, metric: Metric) -> None:
        """Publish a measurement soon."""
        if not self._reports:
            self.due_at(self.clock.monotonic_ns(), REPORTS_NUMBER)
        if len(self._reports) < REPORTS_MAX:
            self._reports.append((account, subject, metric))

    def _publish_reports(self) -> None:
        reports, self._reports = self._reports, []
        for account, subject, metric in reports:
            account.publish(subject, msgspec.json.encode(metric))

    def due(self, number: int) -> None:
        """Called at a deadline of a bridge, which may have been removed before."""
        if number == REPORTS_NUMBER:
            self._publish_reports()
            return
        bridge = self._numbered.get(number)
        if isinstance(bridge, ServiceBridge):
            bridge.expire(self.clock.monotonic_ns())
        elif bridge is not None:
            bridge.sweep()

    # ---------------------------------------------------------------- for monitoring

    def waiting(self, name: str, limit: int) -> dict[str, tuple[str, ServiceBridge]]:
        """The expected responses of an account: subject -> (the requester's reply, the bridge)."""
        inbox = self._inboxes.get(name)
        return {} if inbox is None else inbox.waiting(limit)


def _translator(template: SubjectTemplate | None) -> Translator | None:
    return None if template is None else Translator(template)
