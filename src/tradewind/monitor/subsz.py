"""Build /subsz: totals of the routing tables and, on request, a page of subscriptions.

Only subscriptions of clients are listed, never those of the server itself or of leaf nodes; the
totals count those of leaf nodes, too. The module has no state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tradewind.monitor.accountz import account_title
from tradewind.monitor.connz import SUBSCRIPTIONS_STEP, subscription_detail
from tradewind.monitor.formats import number, present, timestamp
from tradewind.monitor.monitor_documents import SublistStats, SubscriptionDetail, Subsz
from tradewind.monitor.page_options import SubszOptions, paged
from tradewind.monitor.parameters import PageError, quoted
from tradewind.monitor.stepping import Stepped
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account, SubscriptionInfo
    from tradewind.broker.broker import Broker


def merged_stats(accounts: Iterable[Account]) -> SublistStats:
    """The figures of several accounts: counts are added, and rates averaged with their weights."""
    merged = SublistStats()
    hits = fanout = 0.0
    for account in accounts:
        stats: Mapping[str, Any] = account.sublist_stats()
        merged.num_subscriptions += stats["num_subscriptions"]
        merged.num_cache += stats["num_cache"]
        merged.num_inserts += stats["num_inserts"]
        merged.num_removes += stats["num_removes"]
        merged.num_matches += stats["num_matches"]
        merged.max_fanout = max(merged.max_fanout, stats["max_fanout"])
        hits += stats["cache_hit_rate"] * stats["num_matches"]
        fanout += stats["avg_fanout"] * stats["num_cache"]
    merged.cache_hit_rate = number(hits / merged.num_matches) if merged.num_matches else 0
    merged.avg_fanout = number(fanout / merged.num_cache) if merged.num_cache else 0
    return merged


def _page(
    broker: Broker,
    accounts: list[Account],
    hidden: Mapping[str, int],
    offset: int,
    limit: int,
) -> Stepped[list[SubscriptionInfo]]:
    """The requested part of the subscriptions of all accounts in a row. The part before it is only
    listed in accounts with `hidden` subscriptions.
    """
    page: list[SubscriptionInfo] = []
    for account in accounts:
        shown = account.subscription_count - hidden.get(account.name, 0)
        if account.name in hidden:
            found: list[SubscriptionInfo] = []
            for start in range(0, account.subscription_count, SUBSCRIPTIONS_STEP):
                part = account.all_subscriptions(start, SUBSCRIPTIONS_STEP)
                found += [one for one in part if one.cid not in broker.leaf_sessions]
                yield
                if len(found) >= offset + limit - len(page):
                    break
            page += found[offset : offset + limit - len(page)]
        else:
            for start in range(offset, shown, SUBSCRIPTIONS_STEP):
                size = min(limit - len(page), SUBSCRIPTIONS_STEP)
                page.extend(account.all_subscriptions(start, size))
                yield
                if len(page) >= limit:
                    break
        if len(page) >= limit:
            break
        offset = max(offset - shown, 0)
    return page


def _hidden(broker: Broker) -> Stepped[dict[str, int]]:
    """The number of subscriptions of leaf nodes by account, which are not listed."""
    hidden: Counter[str] = Counter()
    for index, leaf in enumerate(list(broker.leaf_sessions.values())):
        hidden[leaf.account.name] += leaf.subscription_count
        if index % SUBSCRIPTIONS_STEP == 0:
            yield
    return dict(hidden)


def build_subsz(broker: Broker, options: SubszOptions, now_ns: int) -> Stepped[Subsz]:
    """The page, in steps; raises PageError if the test subject cannot be published to."""
    options = paged(options)
    if options.test and not is_valid_literal(options.test):
        shown = quoted(options.test)[1:-1]
        raise PageError(f"invalid test subject, must be valid publish subject: {shown}")
    accounts = [a for a in broker.accounts.values() if options.account in ("", a.name)]
    stats = merged_stats(accounts)
    details: list[SubscriptionDetail] = []
    total = 0
    if options.subscriptions:
        if options.test:
            matching: list[SubscriptionInfo] = []
            for account in accounts:
                found = account.matching(options.test)
                matching += [one for one in found if one.cid not in broker.leaf_sessions]
                yield
            total = len(matching)
            page = matching[options.offset : options.offset + options.limit]
        else:
            hidden = yield from _hidden(broker)
            total = sum(one.subscription_count - hidden.get(one.name, 0) for one in accounts)
            page = yield from _page(broker, accounts, hidden, options.offset, options.limit)
        for start in range(0, len(page), SUBSCRIPTIONS_STEP):
            part = page[start : start + SUBSCRIPTIONS_STEP]
            details += [subscription_detail(s, account_title(broker, s.account)) for s in part]
            yield
    return Subsz(
        server_id=broker.server_id,
        now=timestamp(now_ns),
        num_subscriptions=stats.num_subscriptions,
        num_cache=stats.num_cache,
        num_inserts=stats.num_inserts,
        num_removes=stats.num_removes,
        num_matches=stats.num_matches,
        cache_hit_rate=stats.cache_hit_rate,
        max_fanout=stats.max_fanout,
        avg_fanout=stats.avg_fanout,
        total=total,
        offset=options.offset,
        limit=options.limit,
        subscriptions_list=present(details),
    )
