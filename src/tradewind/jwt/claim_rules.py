"""Validate claims, with the error texts of other tools.

Owns the rules for a single JWT. It never decides whether an issuer is trusted, nor compares several
JWTs, which is up to the callers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import msgspec

from tradewind import nkeys
from tradewind.jwt.claims import (
    EVERYBODY,
    NO_LIMIT,
    AccountClaimLimits,
    AccountClaims,
    AccountFields,
    ActivationClaims,
    AuthorizationResponse,
    Claims,
    ExternalAuthorization,
    OperatorClaims,
    PermissionClaims,
    TraceFields,
    UserClaims,
    UserRestrictions,
    UserScope,
    WeightedMapping,
)
from tradewind.jwt.sharing_claims import (
    export_problems,
    import_problems,
    info_problems,
    quoted,
    subject_problems,
)
from tradewind.subjects import is_literal

_LOCATION_LENGTH_MAX = 128
_CIDR = re.compile(r"[0-9A-Fa-f:.]+/[0-9]{1,3}")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,][0-9]+)?")


class Issue(msgspec.Struct, frozen=True):
    """One problem. A warning refuses no login; times may become valid later."""

    text: str
    is_blocking: bool = True
    is_time_check: bool = False


def issues(claims: Claims, now_seconds: int) -> list[Issue]:
    """All problems at this time (seconds since 1970)."""
    return list(_all_issues(claims, now_seconds))


def blocking_texts(claims: Claims, now_seconds: int) -> list[str]:
    """The texts of the problems that prevent using the claims, including time checks."""
    return [
        issue.text
        for issue in _all_issues(claims, now_seconds)
        if issue.is_blocking or issue.is_time_check
    ]


def _all_issues(claims: Claims, now_seconds: int) -> Iterator[Issue]:
    if 0 < claims.exp < now_seconds:
        yield Issue("claim is expired", is_blocking=False, is_time_check=True)
    if claims.nbf > 0 and claims.nbf > now_seconds:
        yield Issue("claim is not yet valid", is_blocking=False, is_time_check=True)
    if isinstance(claims, AccountClaims):
        yield from map(Issue, _account_problems(claims))
        if (
            nkeys.is_public(claims.iss, nkeys.ACCOUNT)
            and claims.nats.limits != AccountClaimLimits()
        ):
            text = "self-signed account JWTs shouldn't contain operator limits"
            yield Issue(text, is_blocking=False)
    elif isinstance(claims, UserClaims):
        yield from map(Issue, _user_problems(claims))
    elif isinstance(claims, OperatorClaims):
        yield from map(Issue, _operator_problems(claims))
    elif isinstance(claims, ActivationClaims):
        yield from map(Issue, _activation_problems(claims))
    elif isinstance(claims, AuthorizationResponse):
        yield from map(Issue, _response_problems(claims))


# ---------------------------------------------------------------- users


def _user_problems(claims: UserClaims) -> Iterator[str]:
    yield from permission_problems(claims.nats)
    yield from _restriction_problems(claims.nats)
    if claims.nats.issuer_account and not nkeys.is_public(
        claims.nats.issuer_account, nkeys.ACCOUNT
    ):
        yield "account_id is not an account public key"


def permission_problems(permissions: PermissionClaims) -> Iterator[str]:
    """Yield the subjects that are not valid in a rule."""
    for text in (*(permissions.sub.allow or ()), *(permissions.sub.deny or ())):
        yield from _permission_problems(text, with_queue=True)
    for text in (*(permissions.pub.allow or ()), *(permissions.pub.deny or ())):
        yield from _permission_problems(text, with_queue=False)


def _permission_problems(text: str, *, with_queue: bool) -> Iterator[str]:
    words = text.split(" ")
    if len(words) > 2:
        yield f'Permission Subject "{text}" contains too many spaces'
        return
    for word in words:
        yield from subject_problems(word)
    if len(words) == 2 and not with_queue:
        yield f'Permission Subject "{text}" is not allowed to contain queue'


def _restriction_problems(limits: UserRestrictions) -> Iterator[str]:
    for text in limits.src or ():
        if network(text) is None:
            yield f"invalid cidr {quoted(text)} in user src limits"
    for window in limits.times or ():
        if not window.start:
            yield "time ranges start must contain a start"
        elif time_of_day(window.start) is None:
            yield f"start in time range is invalid {quoted(window.start)}"
        if not window.end:
            yield "time ranges end must contain an end"
        elif time_of_day(window.end) is None:
            yield f"end in time range is invalid {quoted(window.end)}"
    if limits.times_location and not _is_location(limits.times_location):
        name = limits.times_location
        yield f"could not parse iana time zone by name: unknown time zone {name}"


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The network of a text such as `10.0.0.0/8`; None if it is not valid. The prefix length is
    required.
    """
    if not _CIDR.fullmatch(text):
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def time_of_day(text: str) -> int | None:
    """Seconds since midnight of `HH:MM:SS`; None if the text is not valid."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = int(match[1]), int(match[2]), int(match[3])
    return hour * 3600 + minute * 60 + second if hour < 24 and minute < 60 > second else None


def _is_location(name: str) -> bool:
    if name in ("Local", "UTC"):
        return True
    # The library resolves the parts of a name one by one, each in a deeper call.
    if len(name) > _LOCATION_LENGTH_MAX:
        return False
    # Loaded when it is needed: few users have times.
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


# ---------------------------------------------------------------- accounts


def _account_problems(claims: AccountClaims) -> Iterator[str]:
    fields = claims.nats
    yield from import_problems(fields.imports, claims.sub)
    yield from export_problems(fields.exports)
    if "" in fields.limits.tiered_limits:
        yield 'Tiered JetStream Limits can not contain a blank "" tier name'
    yield from permission_problems(fields.default_permissions)
    yield from _mapping_problems(fields.mappings)
    yield from _authorization_problems(fields.authorization)
    if fields.trace is not None:
        yield from _trace_problems(fields.trace)
    yield from _limit_problems(fields)
    yield from _signing_key_problems(fields.signing_keys)
    yield from info_problems(fields.description, fields.info_url)
    yield from _traffic_problems(fields.cluster_traffic)


def _mapping_problems(mappings: dict[str, list[WeightedMapping]]) -> Iterator[str]:
    for source, destinations in mappings.items():
        yield from subject_problems(source)
        per_cluster: dict[str, int] = {}
        for destination in destinations:
            yield from subject_problems(destination.subject)
            weight = destination.weight or 100
            cluster = destination.cluster
            per_cluster[cluster] = per_cluster.get(cluster, 0) + weight
        for cluster, total in per_cluster.items():
            if total > 100:
                where = f" in cluster {quoted(cluster)}" if cluster else ""
                yield (
                    f"Mapping {quoted(source)}{where} exceeds 100% among all of it's weighted to "
                    "mappings"
                )


def _authorization_problems(fields: ExternalAuthorization) -> Iterator[str]:
    accounts = fields.allowed_accounts or []
    if accounts and not fields.auth_users:
        yield "External authorization cannot have accounts without users specified"
    for user in fields.auth_users or ():
        if not nkeys.is_public(user, nkeys.USER):
            yield f"AuthUser {quoted(user)} is not a valid user public key"
    for account in accounts:
        if account == EVERYBODY:
            if len(accounts) > 1:
                yield f"AllowedAccounts can only be a list of accounts or {quoted(EVERYBODY)}"
        elif not nkeys.is_public(account, nkeys.ACCOUNT):
            yield f"Account {quoted(account)} is not a valid account public key"
    if fields.xkey and not nkeys.is_public(fields.xkey, nkeys.CURVE):
        yield f"XKey {quoted(fields.xkey)} is not a valid public xkey"


def _trace_problems(trace: TraceFields) -> Iterator[str]:
    for problem in subject_problems(trace.dest):
        yield f"the account Trace.Destination {problem}"
        break
    if not is_literal(trace.dest):
        name = quoted(trace.dest)
        yield f"the account Trace.Destination subject {name} is not a valid publish subject"
    if not 0 <= trace.sampling <= 100:
        yield (
            f"the account Trace.Sampling value '{trace.sampling}' is not valid, "
            "should be in the range [1..100]"
        )


def _limit_problems(fields: AccountFields) -> Iterator[str]:
    limits = fields.limits
    if limits.imports != NO_LIMIT and len(fields.imports) > limits.imports:
        yield "the account contains more imports than allowed by the operator"
    if limits.exports != NO_LIMIT:
        if len(fields.exports) > limits.exports:
            yield "the account contains more exports than allowed by the operator"
        if not limits.wildcards:
            for export in fields.exports:
                if not is_literal(export.subject):
                    yield (
                        "the account contains wildcard exports that are not allowed by the operator"
                    )


def _signing_key_problems(entries: Iterable[str | UserScope]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, UserScope):
            if not nkeys.is_public(entry.key, nkeys.ACCOUNT):
                yield f"{entry.key} is not an account public key"
        elif not nkeys.is_public(entry, nkeys.ACCOUNT):
            yield f"{quoted(entry)} is not a valid account signing key"


def _traffic_problems(traffic: str) -> Iterator[str]:
    if traffic in ("", "system", "owner"):
        return
    if not traffic.startswith("account:"):
        yield f"unknown cluster traffic option: {quoted(traffic)}"
    elif not nkeys.is_public(traffic.removeprefix("account:"), nkeys.ACCOUNT):
        yield "cluster traffic is not a public account key"


# ---------------------------------------------------------------- operators and activations


def _operator_problems(claims: OperatorClaims) -> Iterator[str]:
    fields = claims.nats
    if fields.account_server_url and not urlsplit(fields.account_server_url).scheme:
        yield f"account server url {quoted(fields.account_server_url)} requires a protocol"
    for key in fields.signing_keys or ():
        if not nkeys.is_public(key, nkeys.OPERATOR):
            yield f"{key} is not an operator public key"
    if fields.system_account and not nkeys.is_public(fields.system_account, nkeys.ACCOUNT):
        yield f"{fields.system_account} is not an account public key"
    if fields.assert_server_version and server_version(fields.assert_server_version) is None:
        yield (
            f"asserted server version {quoted(fields.assert_server_version)} must be three numbers "
            "such as 2.10.0"
        )


def server_version(text: str) -> tuple[int, int, int] | None:
    """Major, minor and update of `2.10.3`; None if the text is not valid."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    major, minor, update = (int(part[:9]) for part in parts)
    return major, minor, update


def _activation_problems(claims: ActivationClaims) -> Iterator[str]:
    fields = claims.nats
    if fields.kind not in ("stream", "service"):
        yield f"invalid import type: {quoted(fields.kind)}"
    yield from subject_problems(fields.subject)
    if fields.issuer_account and not nkeys.is_public(fields.issuer_account, nkeys.ACCOUNT):
        yield "account_id is not an account public key"


# ---------------------------------------------------------------- answers about logins


def _response_problems(claims: AuthorizationResponse) -> Iterator[str]:
    fields = claims.nats
    if not nkeys.is_public(claims.sub, nkeys.USER):
        yield "Subject must be a user public key"
    if not nkeys.is_public(claims.aud, nkeys.SERVER):
        yield "Audience must be a server public key"
    if not fields.error and not fields.jwt:
        yield "Error or Jwt is required"
    if fields.error and fields.jwt:
        yield "Only Error or Jwt can be set"
    if fields.issuer_account and not nkeys.is_public(fields.issuer_account, nkeys.ACCOUNT):
        yield "issuer_account is not an account public key"
