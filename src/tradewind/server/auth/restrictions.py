"""Restrictions in the JWT of a user: address, time, connection type and permissions.

Owns evaluating them for one login at one time. It never decides about a login; the gate does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo

from tradewind.durations import SECOND_NS
from tradewind.jwt.claim_rules import network, time_of_day
from tradewind.jwt.claims import PermissionClaims, TimeRange, UserRestrictions
from tradewind.route.permission_rules import (
    RESPONSE_COUNT_DEFAULT,
    RESPONSE_EXPIRES_DEFAULT_NS,
    PermissionRules,
    ResponseRule,
)
from tradewind.server.auth.configured_users import CONNECTION_TYPES

_DAY_SECONDS = 86_400.0
# The prefix of an IPv4 address written as an IPv6 address.
_MAPPED_BITS = 96


def may_come_from(restrictions: UserRestrictions, address: str) -> bool:
    """Whether the peer's address is in one of the networks, or no networks are named."""
    if not restrictions.src:
        return True
    try:
        peer = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    return any(_holds(network(text), peer) for text in restrictions.src)


def _holds(
    found: ipaddress.IPv4Network | ipaddress.IPv6Network | None,
    peer: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> bool:
    """Whether an address is in a network; ::ffff:10.0.0.0/104 is another name of 10.0.0.0/8."""
    if isinstance(found, ipaddress.IPv6Network) and isinstance(peer, ipaddress.IPv4Address):
        mapped = found.network_address.ipv4_mapped
        if mapped is None or found.prefixlen < _MAPPED_BITS:
            return False
        found = ipaddress.IPv4Network((mapped, found.prefixlen - _MAPPED_BITS))
    return found is not None and peer in found


def seconds_left(restrictions: UserRestrictions, now_ns: int) -> float | None:
    """The seconds for which the user may stay; 0 outside its times, None without a limit."""
    if not restrictions.times:
        return None
    now = datetime.fromtimestamp(now_ns / SECOND_NS, UTC).astimezone(
        _zone(restrictions.times_location)
    )
    second = now.hour * 3600 + now.minute * 60 + now.second + now.microsecond / 1e6
    return max(_left_of(window, second) for window in restrictions.times)


def _left_of(window: TimeRange, second: float) -> float:
    start, end = time_of_day(window.start), time_of_day(window.end)
    if start is None or end is None:
        return 0.0
    if start <= end:
        return end - second if start < second < end else 0.0
    if second > start:
        return _DAY_SECONDS - second + end
    return end - second if second < end else 0.0


def _zone(name: str) -> tzinfo | None:
    """The time zone of a name; None for the zone of the machine, which an empty name means too."""
    if name in ("", "Local"):
        return None
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def connection_types(names: Iterable[str] | None) -> frozenset[str] | None:
    """The allowed kinds of connection; empty allows all. None if there are names, but none is
    known.
    """
    listed = [name.upper() for name in names or ()]
    known = frozenset(listed) & CONNECTION_TYPES
    return None if listed and not known else known


def permission_rules(permissions: PermissionClaims) -> PermissionRules | None:
    """The permissions in the broker's form; None if the JWT has none."""
    publish, subscribe = permissions.pub, permissions.sub
    responses = permissions.resp
    if not (publish.allow or publish.deny or subscribe.allow or subscribe.deny or responses):
        return None
    rule = None
    if responses is not None:
        rule = ResponseRule(
            responses.max or RESPONSE_COUNT_DEFAULT, responses.ttl or RESPONSE_EXPIRES_DEFAULT_NS
        )
    publish_allow = tuple(publish.allow) if publish.allow else None
    if rule is not None and publish_allow is None:
        publish_allow = ()  # a user who may only respond may not also publish everywhere
    return PermissionRules(
        publish_allow=publish_allow,
        publish_deny=tuple(publish.deny or ()),
        subscribe_allow=tuple(subscribe.allow) if subscribe.allow else None,
        subscribe_deny=tuple(subscribe.deny or ()),
        responses=rule,
    )


def smallest(*limits: int) -> int:
    """The smallest of several limits, of which -1 means no limit."""
    return min((limit for limit in limits if limit >= 0), default=-1)
