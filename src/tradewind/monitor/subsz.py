"""Builds /subsz: totals of the routing tables and, on request, a page of subscriptions.

Only subscriptions of clients are counted and listed, never those of the server itself. It keeps no
state.
"""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.monitor.connz import subscription_detail
from tradewind.monitor.formats import number, present, timestamp
from tradewind.monitor.monitor_documents import SublistStats, SubscriptionDetail, Subsz
from tradewind.monitor.page_options import SubszOptions, paged
from tradewind.monitor.parameters import PageError, quoted
from tradewind.monitor.views import AccountView, BrokerView, SubscriptionView
from tradewind.subjects import is_valid_literal


def merged_stats(accounts: Iterable[AccountView]) -> SublistStats:
    """Counts are added; the rates are averages weighted by what they are rates of."""
    merged = SublistStats()
    hits = fanout = 0.0
    for account in accounts:
        stats = account.sublist_stats()
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


def _page(accounts: list[AccountView], offset: int, limit: int) -> list[SubscriptionView]:
    """The wanted stretch of all accounts' subscriptions in a row, without listing what lies before
    it.
    """
    page: list[SubscriptionView] = []
    for account in accounts:
        count = account.subscription_count
        if offset >= count:
            offset -= count
            continue
        page.extend(account.all_subscriptions(offset, limit - len(page)))
        offset = 0
        if len(page) >= limit:
            break
    return page


def build_subsz(broker: BrokerView, options: SubszOptions, now_ns: int) -> Subsz:
    """The page; raises PageError when the test subject is not one that can be published on."""
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
            matching = [s for account in accounts for s in account.matching(options.test)]
            total = len(matching)
            page = matching[options.offset : options.offset + options.limit]
        else:
            total = sum(account.subscription_count for account in accounts)
            page = _page(accounts, options.offset, options.limit)
        details = [subscription_detail(s, with_account=True) for s in page]
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
