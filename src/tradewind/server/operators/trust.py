"""The keys that may sign accounts in operator mode.

Owns deriving these keys, and the conditions that operators set, from the operator JWTs. It never
looks at an account.
"""

from __future__ import annotations

import msgspec

from tradewind import nkeys
from tradewind.jwt import OperatorClaims, decode_as
from tradewind.jwt.claim_rules import server_version
from tradewind.options import SYSTEM_ACCOUNT, OperatorOptions, ServerOptions
from tradewind.wire import ops

_VERSION_PARTS = ("major", "minor", "update")


class Trust(msgspec.Struct, frozen=True):
    """The keys that may sign accounts. An account that one of `strict_keys` has signed may not sign
    users with its own key, only with signing keys.
    """

    keys: frozenset[str]
    strict_keys: frozenset[str] = frozenset()
    operators: tuple[OperatorClaims, ...] = ()

    def is_strict(self, issuer: str) -> bool:
        """Whether an account of this issuer signs users with signing keys only."""
        return issuer in self.strict_keys


def trust_of(options: OperatorOptions) -> Trust:
    """The operators' keys, or the configured ones."""
    operators = tuple(decode_as(OperatorClaims, token) for token in options.operators)
    keys, strict = set(options.trusted_keys), set()
    for claims in operators:
        signing_keys = set(claims.nats.signing_keys or ())
        if claims.nats.strict_signing_key_usage:
            strict |= signing_keys
        else:
            signing_keys.add(claims.sub)
        keys |= signing_keys
    return Trust(frozenset(keys), frozenset(strict), operators)


def system_account_of(options: ServerOptions) -> str:
    """The configured system account, or that of the only operator."""
    operator = options.operator
    if operator is None or options.system_account != SYSTEM_ACCOUNT:
        return options.system_account
    named = {claims.nats.system_account for claims in trust_of(operator).operators}
    return named.pop() or SYSTEM_ACCOUNT if len(named) == 1 else SYSTEM_ACCOUNT


def operator_problems(operator: OperatorClaims) -> list[str]:
    """The reasons why this server must not run for an operator."""
    problems = [
        f'trusted Keys "{key}" are required to be a valid public operator nkey'
        for key in operator.nats.signing_keys or ()
        if not nkeys.is_public(key, nkeys.OPERATOR)
    ]
    wanted_text = operator.nats.assert_server_version
    if not wanted_text:
        return problems
    wanted = server_version(wanted_text)
    if wanted is None:
        reason = "asserted server version must be of the form <major>.<minor>.<update>"
        return [
            *problems,
            f"operator {operator.sub} expects version {wanted_text} got error instead: {reason}",
        ]
    own = server_version(ops.NATS_VERSION)
    assert own is not None
    for part, needed, there in zip(_VERSION_PARTS, wanted, own, strict=True):
        if needed > there:
            text = f"expected {part} version {needed} > server {part} version {there}"
            return [*problems, f"operator {operator.sub} {text}"]
        if needed < there:
            break
    return problems
