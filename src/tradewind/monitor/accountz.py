"""Build /accountz and /accstatz: the accounts, and their sent and received messages. The module has
no state.
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
    MappingTarget,
    Traffic,
)
from tradewind.monitor.page_options import AccountStatzOptions, AccountzOptions
from tradewind.monitor.parameters import PageError, quoted
from tradewind.monitor.shared import shown_exports, shown_imports, shown_responses

if TYPE_CHECKING:
    from tradewind.monitor.stepping import Stepped
    from tradewind.monitor.views import AccountView, BrokerView


# The number of accounts in one step.
ACCOUNTS_STEP = 256


def account_title(broker: BrokerView, name: str) -> str:
    """The readable name of an account: in operator mode its own name is a key."""
    claims, _ = broker.account_claims.get(name, (None, ""))
    return claims.name if claims is not None and claims.name else name


def account_detail(broker: BrokerView, name: str) -> AccountDetail:
    """The details of one account; raises PageError if there is none of that name."""
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
        name_tag=account_title(broker, name),
        tags=present(list(claims.nats.tags or ()) if claims is not None else []),
        decoded_jwt=UNSET if claims is None else claims,
        sublist_stats=merged_stats([account]),
        responses=present(shown_responses(broker, name)),
    )


def _mappings(account: AccountView) -> dict[str, list[MappingTarget]]:
    if account.mappings is None:
        return {}
    return {
        source: [
            MappingTarget(subject=one.subject, weight=one.weight, cluster=present(one.cluster))
            for one in destinations
        ]
        for source, destinations in account.mappings.shown().items()
    }


def build_accountz(broker: BrokerView, options: AccountzOptions, now_ns: int) -> Accountz:
    """The page with all names, or with `account` the details of one; raises PageError if there is
    none of that name.
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


def account_stat(broker: BrokerView, account: AccountView) -> AccountStat:
    """Counters of one account. `total_conns` covers a cluster, so here it equals `conns`."""
    leafs = broker.leaf_traffic(account.name)
    return AccountStat(
        acc=account.name,
        name=account_title(broker, account.name),
        conns=account.session_count,
        leafnodes=account.leaf_count,
        total_conns=account.session_count + account.leaf_count,
        num_subscriptions=account.subscription_count,
        sent=AccountTraffic(
            msgs=account.out_msgs,
            bytes=account.out_bytes,
            leafs=Traffic(msgs=leafs.out_msgs, bytes=leafs.out_bytes),
        ),
        received=AccountTraffic(
            msgs=account.in_msgs,
            bytes=account.in_bytes,
            leafs=Traffic(msgs=leafs.in_msgs, bytes=leafs.in_bytes),
        ),
        slow_consumers=account.slow_consumers,
    )


def build_accstatz(
    broker: BrokerView, options: AccountStatzOptions, now_ns: int
) -> Stepped[AccountStatz]:
    """The statistics of accounts with connections, or with `include_unused` of all, in steps;
    `accounts` restricts either to these names.
    """
    wanted = set(options.accounts)
    shown: list[AccountStat] = []
    for number, account in enumerate(list(broker.accounts.values())):
        used = options.include_unused or account.session_count
        if used and (not wanted or account.name in wanted):
            shown.append(account_stat(broker, account))
        if number % ACCOUNTS_STEP == 0:
            yield
    return AccountStatz(server_id=broker.server_id, now=timestamp(now_ns), account_statz=shown)
