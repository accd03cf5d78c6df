"""Exports, imports and pending responses of accounts, for /accountz. The module has no state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from tradewind.monitor.formats import present
from tradewind.monitor.monitor_documents import SharedExport, SharedImport, SharedLatency
from tradewind.options import AccountOptions, ServerOptions
from tradewind.route.sharing import (
    SAMPLING_BY_HEADERS,
    Export,
    Import,
    ServiceExport,
    ServiceImport,
    ServiceLatency,
)
from tradewind.route.sharing_rules import ExportIndex, local_subject

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker

# nats-server writes the number of this kind where it writes words for others.
_RESPONSE_KIND = 2
RESPONSES_SHOWN_MAX = 10_000


def shown_exports(account: AccountOptions | None) -> list[SharedExport]:
    """The exports of an account, services first."""
    exports = account.exports if account is not None else ()
    return [_export(one) for one in sorted(exports, key=lambda e: not isinstance(e, ServiceExport))]


def _export(export: Export) -> SharedExport:
    shown = SharedExport(
        subject=export.subject,
        type="stream",
        token_req=present(export.token_required),
        approved_accounts=present(sorted(export.accounts or ())),
    )
    if isinstance(export, ServiceExport):
        shown.type = "service"
        shown.response_type = export.response_type
        shown.service_latency = _latency(export.latency)
    return shown


def _latency(latency: ServiceLatency | None) -> SharedLatency | UnsetType:
    if latency is None:
        return UNSET
    by_headers = latency.sampling == SAMPLING_BY_HEADERS
    return SharedLatency(
        sampling="headers" if by_headers else latency.sampling, results=latency.subject
    )


def shown_imports(account: AccountOptions | None, options: ServerOptions) -> list[SharedImport]:
    """The imports of an account, streams first."""
    imports = account.imports if account is not None else ()
    offered = {
        name: ExportIndex(one for one in exporter.exports if isinstance(one, ServiceExport))
        for name in {one.account for one in imports}
        if (exporter := options.accounts.get(name)) is not None
    }
    return [
        _import(one, offered)
        for one in sorted(imports, key=lambda wanted: isinstance(wanted, ServiceImport))
    ]


def _import(wanted: Import, offered: Mapping[str, ExportIndex[ServiceExport]]) -> SharedImport:
    shown = SharedImport(
        subject=wanted.subject,
        account=wanted.account,
        local_subject=local_subject(wanted),
        type="stream",
        invalid=False,
        share=False,
        tracking=False,
    )
    if isinstance(wanted, ServiceImport):
        shown.type = "service"
        shown.to = wanted.local
        shown.share = wanted.share
        index = offered.get(wanted.account)
        export = index.covering(wanted.subject) if index is not None else None
        shown.latency = _latency(export.latency) if export is not None else UNSET
    return shown


def shown_responses(broker: Broker, name: str) -> dict[str, SharedImport]:
    """The pending responses to members of other accounts, by the subject that stands for each."""
    return {
        subject: SharedImport(
            subject=reply,
            account=bridge.importer.name,
            to=subject,
            local_subject=subject,
            type=_RESPONSE_KIND,
            invalid=False,
            share=bridge.wanted.share,
            tracking=False,
        )
        for subject, (reply, bridge) in broker.waiting_answers(name, RESPONSES_SHOWN_MAX).items()
    }
