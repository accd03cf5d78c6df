"""Conditions for starting a server in operator mode.

Owns the rules between the settings of operator mode and all others, with the texts of nats-server.
It parses JWTs, but never reads files or connects to addresses.
"""

from __future__ import annotations

from collections.abc import Iterator

from tradewind import nkeys
from tradewind.jwt import JwtError, UserClaims, decode_as
from tradewind.options import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, OperatorOptions, ServerOptions
from tradewind.server.operators.trust import operator_problems, trust_of


def operator_mode_problems(options: ServerOptions) -> Iterator[str]:
    """Yield why these options cannot start a server; nothing without operator mode."""
    operator = options.operator
    websocket = options.websocket
    has_trust = operator is not None and bool(operator.operators or operator.trusted_keys)
    if websocket is not None and websocket.jwt_cookie and not has_trust:
        yield (
            "trusted operators or trusted keys configuration is required for JWT authentication "
            f'via cookie "{websocket.jwt_cookie}"'
        )
    if operator is None:
        return
    if not has_trust:
        if operator.default_sentinel:
            yield "default sentinel requires operators and accounts"
        return
    if operator.operators and operator.trusted_keys:
        yield "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
    yield from _exclusions(options)
    for claims in trust_of(operator).operators:
        yield from operator_problems(claims)
    yield from _system_account_problems(options, operator)
    yield from _resolver_problems(operator)
    if operator.default_sentinel:
        yield from _sentinel_problems(operator.default_sentinel)


def _exclusions(options: ServerOptions) -> Iterator[str]:
    """Yield settings of the file that conflict with the JWTs."""
    if options.authorization.users:
        yield "operators do not allow users to be configured directly"
    if options.authorization.callout is not None:
        yield "operators do not allow authorization callouts to be configured directly"
    if set(options.accounts) - {GLOBAL_ACCOUNT} or options.mappings:
        yield "operators do not allow Accounts to be configured directly"
    if options.no_auth_user:
        yield "no_auth_user not compatible with Trusted Operator"
    if options.websocket is not None and options.websocket.no_auth_user:
        yield "websocket no_auth_user not compatible with Trusted Operator"


def _system_account_problems(options: ServerOptions, operator: OperatorOptions) -> Iterator[str]:
    named = {claims.nats.system_account for claims in trust_of(operator).operators} - {""}
    system_account = options.system_account
    if system_account not in ("", SYSTEM_ACCOUNT):
        if named and named != {system_account}:
            yield "system_account in config and operator JWT must be identical"
        elif not nkeys.is_public(system_account, nkeys.ACCOUNT):
            yield f"system_account {system_account!r} must be the public key of an account (A...)"
        return
    kind = operator.resolver.kind if operator.resolver is not None else ""
    if kind in ("full", "cache") and len(named) != 1:
        yield (
            "using nats based account resolver - the system account needs to be specified in "
            "configuration or the operator jwt"
        )


def _resolver_problems(operator: OperatorOptions) -> Iterator[str]:
    resolver = operator.resolver
    if resolver is None:
        urls = {claims.nats.account_server_url for claims in trust_of(operator).operators}
        if len(urls) != 1 or not urls.pop():
            yield (
                "operators require an account resolver to be configured: add resolver, or an "
                "account_server_url to the operator's JWT"
            )
    elif resolver.kind == "url":
        if not resolver.url.startswith(("http://", "https://")):
            yield f"resolver url {resolver.url!r} must begin with http:// or https://"
        if operator.preload:
            yield (
                "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR"
            )


def _sentinel_problems(token: str) -> Iterator[str]:
    try:
        claims = decode_as(UserClaims, token)
    except JwtError:
        yield "default sentinel JWT not valid"
        return
    fields = claims.nats
    is_scoped = bool(fields.issuer_account) and not (fields.subs or fields.data or fields.payload)
    if not fields.bearer_token and not is_scoped:
        yield "default sentinel must be a bearer token"
