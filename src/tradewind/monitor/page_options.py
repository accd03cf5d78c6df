"""The options of each page, from query parameters (HTTP) or a JSON body (system account).

Owns the names and defaults of the options and reading them from a query; the field names are those
of the JSON form. Unknown fields and parameters are ignored, as in nats-server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from tradewind.monitor.parameters import PageError, boolean, integer, quoted, unsigned

PAGE_SIZE_DEFAULT = 1024
# One page is built in one turn of the event loop, so its size is bounded: a connection takes about
# 10 microseconds, a full page some 40 milliseconds.
PAGE_SIZE_MAX = 4096

STATE_OPEN, STATE_CLOSED, STATE_ANY = 0, 1, 2
_STATES = {
    "": STATE_OPEN,
    "open": STATE_OPEN,
    "closed": STATE_CLOSED,
    "any": STATE_ANY,
    "all": STATE_ANY,
}


class Options(msgspec.Struct, kw_only=True):
    """The common options: a filter for servers. A single server either matches, or stays silent."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = []
    domain: str = ""


class LeafzOptions(Options):
    """The options of /leafz."""

    subscriptions: bool = False
    account: str = ""


class ConnzOptions(Options):
    """The options of /connz."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = STATE_OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


class SubszOptions(Options):
    """The options of /subsz."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""


class AccountzOptions(Options):
    """The options of /accountz."""

    account: str = ""


class AccountStatzOptions(Options):
    """The options of /accstatz; without `accounts`, all accounts in use are included."""

    accounts: list[str] = []
    include_unused: bool = False


class HealthzOptions(Options):
    """The options of /healthz."""

    js_enabled_only: bool = msgspec.field(default=False, name="js-enabled-only")
    js_server_only: bool = msgspec.field(default=False, name="js-server-only")
    js_meta_only: bool = msgspec.field(default=False, name="js-meta-only")
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


class ProfilezOptions(Options):
    """The options of PROFILEZ."""

    name: str = ""
    debug: int = 0
    duration: int = 0


class JszOptions(Options):
    """The options of /jsz."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = msgspec.field(default=False, name="direct-consumer")
    config: bool = False
    leader_only: bool = False
    stream_leader_only: bool = False
    offset: int = 0
    limit: int = 0
    raft: bool = False


# So many streams, and so many consumers, have series of their own on /metrics.
ASSETS_LABELLED_DEFAULT: Final = 1_000
ASSETS_LABELLED_MAX: Final = 10_000


class MetricsOptions(Options):
    """The options of /metrics: whether it has series per stream and consumer, and for how many."""

    streams: bool = True
    limit: int = ASSETS_LABELLED_DEFAULT


_O = TypeVar("_O", ConnzOptions, SubszOptions, JszOptions)


def paged(options: _O) -> _O:
    """The options with offset and limit brought into their bounds."""
    limit = options.limit if options.limit > 0 else PAGE_SIZE_DEFAULT
    options.limit = min(limit, PAGE_SIZE_MAX)
    options.offset = max(options.offset, 0)
    return options


def connz_from_query(query: Mapping[str, str]) -> ConnzOptions:
    """The options in the query of /connz. The subject filter exists only in the JSON form, as on
    the official server.
    """
    state = query.get("state", "").lower()
    if state not in _STATES:
        raise PageError(f"Error decoding state for {quoted(query['state'])[1:-1]}")
    detail = query.get("subs", "").lower() == "detail"
    return ConnzOptions(
        sort=query.get("sort", ""),
        auth=boolean(query, "auth"),
        subscriptions=not detail and boolean(query, "subs"),
        subscriptions_detail=detail,
        offset=integer(query, "offset"),
        limit=integer(query, "limit"),
        cid=unsigned(query, "cid"),
        mqtt_client=query.get("mqtt_client", ""),
        state=_STATES[state],
        user=query.get("user", ""),
        acc=query.get("acc", ""),
    )


def subsz_from_query(query: Mapping[str, str]) -> SubszOptions:
    """The options in the query of /subsz."""
    return SubszOptions(
        offset=integer(query, "offset"),
        limit=integer(query, "limit"),
        subscriptions=boolean(query, "subs"),
        account=query.get("acc", ""),
        test=query.get("test", ""),
    )


def health_from_query(query: Mapping[str, str]) -> HealthzOptions:
    """The options in the query of /healthz; `js-enabled` is the older name of `js-enabled-only`."""
    return HealthzOptions(
        js_enabled_only=boolean(query, "js-enabled-only") or boolean(query, "js-enabled"),
        js_server_only=boolean(query, "js-server-only"),
        js_meta_only=boolean(query, "js-meta-only"),
        account=query.get("account", ""),
        stream=query.get("stream", ""),
        consumer=query.get("consumer", ""),
        details=boolean(query, "details"),
    )


def jsz_from_query(query: Mapping[str, str]) -> JszOptions:
    """The options in the query of /jsz."""
    return JszOptions(
        account=query.get("acc", ""),
        accounts=boolean(query, "accounts"),
        streams=boolean(query, "streams"),
        consumer=boolean(query, "consumers"),
        direct_consumer=boolean(query, "direct-consumers"),
        config=boolean(query, "config"),
        leader_only=boolean(query, "leader-only"),
        stream_leader_only=boolean(query, "stream-leader-only"),
        offset=integer(query, "offset"),
        limit=integer(query, "limit"),
        raft=boolean(query, "raft"),
    )


def metrics_from_query(query: Mapping[str, str]) -> MetricsOptions:
    """The options in the query of /metrics."""
    options = MetricsOptions(streams="streams" not in query or boolean(query, "streams"))
    if "limit" in query:
        options.limit = min(max(integer(query, "limit"), 0), ASSETS_LABELLED_MAX)
    return options
