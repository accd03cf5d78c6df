"""Builds /accountz and /accstatz: the accounts, and their sent and received messages. It keeps no
state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from tradewind.monitor.formats import present, timestamp
from tradewind.monitor.monitor_documents import (
    AccountDetail,
    AccountStat,
    AccountStatz,
    AccountTraffic,
    Accountz,
    MappedTo,
)
from tradewind.monitor.page_options import AccountStatzOptions, AccountzOptions
from tradewind.monitor.parameters import PageError, quoted
from tradewind.monitor.shared import shown_exports, shown_imports, shown_responses

if TYPE_CHECKING:
    from tradewind.monitor.views import AccountView, BrokerView


def account_detail(broker: BrokerView, name: str) -> AccountDetail:
    """One account; raises PageError when there is none of that name."""
    from tradewind.monitor.subsz import merged_stats

    account = broker.accounts.get(name)
    if account is None:
        raise PageError(f"Account {quoted(name)[1:-1]} does not exist")
    configured = broker.options.accounts.get(name)
    claims, token = broker.account_claims.get(name, (None, ""))
    seconds = broker.now_ns() // 1_000_000_000
    return AccountDetail(
        account_name=name,
        update_time=timestamp(broker.config_load_ns),
        is_system=present(account is broker.system_account),
        expired=claims is not None and 0 < claims.exp <= seconds,
        complete=True,
        jetstream_enabled=configured is not None and configured.jetstream,
        leafnode_connections=account.leaf_count,
        client_connections=account.session_count,
        subscriptions=account.subscription_count,
        mappings=present(_mappings(account)),
        exports=present(shown_exports(configured)),
        imports=present(shown_imports(configured, broker.options)),
        jwt=present(token),
        issuer_key=present(claims.iss if claims is not None else ""),
        name_tag=claims.name if claims is not None else name,
        tags=present(list(claims.nats.tags or ()) if claims is not None else []),
        decoded_jwt=UNSET if claims is None else claims,
        sublist_stats=merged_stats([account]),
        responses=present(shown_responses(broker, name)),
    )


def _mappings(account: AccountView) -> dict[str, list[MappedTo]]:
    if account.mappings is None:
        return {}
    return {
        source: [
            MappedTo(subject=one.subject, weight=one.weight, cluster=present(one.cluster))
            for one in destinations
        ]
        for source, destinations in account.mappings.shown().items()
    }


def build_accountz(broker: BrokerView, options: AccountzOptions, now_ns: int) -> Accountz:
    """All names, or with `account` the detail of one; raises PageError when there is none of that
    name.
    """
    system = broker.system_account
    page = Accountz(
        server_id=broker.server_id,
        now=timestamp(now_ns),
        system_account=present(system.name if system is not None else ""),
    )
    if options.account:
        page.account_detail = account_detail(broker, options.account)
    else:
        page.accounts = list(broker.accounts)
    return page


def account_stat(account: AccountView) -> AccountStat:
    """Counters of one account. `total_conns` is across a cluster, so here it is the same as
    `conns`.
    """
    return AccountStat(
        acc=account.name,
        name=account.name,
        conns=account.session_count,
        leafnodes=account.leaf_count,
        total_conns=account.session_count + account.leaf_count,
        num_subscriptions=account.subscription_count,
        sent=AccountTraffic(msgs=account.out_msgs, bytes=account.out_bytes),
        received=AccountTraffic(msgs=account.in_msgs, bytes=account.in_bytes),
        slow_consumers=account.slow_consumers,
    )


def build_accstatz(broker: BrokerView, options: AccountStatzOptions, now_ns: int) -> AccountStatz:
    """The accounts with connections, or with `include_unused` all; `accounts` narrows either to
    these names.
    """
    wanted = set(options.accounts)
    return AccountStatz(
        server_id=broker.server_id,
        now=timestamp(now_ns),
        account_statz=[
            account_stat(account)
            for account in broker.accounts.values()
            if (options.include_unused or account.session_count)
            and (not wanted or account.name in wanted)
        ],
    )
