"""Operator mode in a configuration file: what is refused, in the words of nats-server."""

from __future__ import annotations

from pathlib import Path

import pytest

from jwt_kit import (
    OPERATOR,
    OPERATOR_SIGNER,
    SYSTEM,
    account_jwt,
    account_key,
    memory_configuration,
    operator_jwt,
    user_jwt,
    user_key,
)
from tradewind.errors import ConfigError
from tradewind.jwt.claim_files import decorated
from tradewind.options import ResolverOptions, ServerOptions
from tradewind.server.config.checks import check_options
from tradewind.server.config.load import load_config_file
from tradewind.server.operators.trust import trust_of

ACCOUNT = account_key(1)
OTHER = operator_jwt(system_account="")
MEMORY = memory_configuration({})
NAMED = f"operator: {operator_jwt()}\n"
UNNAMED = f"operator: {OTHER}\n"
PRELOAD = f"resolver_preload {{ {SYSTEM.public}: {account_jwt(SYSTEM)} }}\n"
SENTINEL = user_jwt(user_key(1), ACCOUNT, bearer_token=True)
WRONG_RESOLVER = (
    'error parsing account resolver, should be MEM or  URL("url") or a map containing dir and type '
    "state=[FULL|CACHE])"
)


def load(text: str, folder: Path) -> ServerOptions:
    path = folder / "server.conf"
    path.write_text(text.replace("FOLDER", str(folder)))
    options = load_config_file(str(path)).options
    check_options(options)
    return options


REFUSED = {
    MEMORY + "accounts { A {} }": "operators do not allow Accounts to be configured directly",
    MEMORY + "mappings { a: b }": "operators do not allow Accounts to be configured directly",
    MEMORY + "authorization { users: [{user: a}] }": (
        "operators do not allow users to be configured directly"
    ),
    MEMORY + "no_auth_user: x": "no_auth_user not compatible with Trusted Operator",
    MEMORY + f"trusted_keys: [{OPERATOR.public}]": (
        "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
    ),
    NAMED: "operators require an account resolver to be configured",
    NAMED + f"resolver: MEM\nsystem_account: {ACCOUNT.public}\n": (
        "system_account in config and operator JWT must be identical"
    ),
    UNNAMED + 'resolver: {type: full, dir: "FOLDER/j"}': (
        "using nats based account resolver - the system account needs to be specified in "
        "configuration or the operator jwt"
    ),
    f"operator: {operator_jwt(assert_server_version='3.0.0')}\nresolver: MEM": (
        f"operator {OPERATOR.public} expected major version 3 > server major version 2"
    ),
    f"operator: {operator_jwt(assert_server_version='2.99.0')}\nresolver: MEM": (
        f"operator {OPERATOR.public} expected minor version 99 > server minor version 15"
    ),
    f"operator: {operator_jwt(assert_server_version='2.15.99')}\nresolver: MEM": (
        f"operator {OPERATOR.public} expected update version 99 > server update version 1"
    ),
    f"operator: {operator_jwt(assert_server_version='x')}\nresolver: MEM": (
        f"operator {OPERATOR.public} expects version x got error instead: asserted server version "
        "must be of the form <major>.<minor>.<update>"
    ),
    f"operator: {operator_jwt(signing_keys=['x'])}\nresolver: MEM": (
        'trusted Keys "x" are required to be a valid public operator nkey'
    ),
    "operator: abc\nresolver: MEM": (
        "error parsing operator JWT: open abc: no such file or directory"
    ),
    "operator: FOLDER\nresolver: MEM": "error parsing operator JWT: open ",
    "operator: eyJx\nresolver: MEM": "error parsing operator JWT: expected 3 chunks",
    f"operator: {account_jwt(ACCOUNT)}\nresolver: MEM": (
        "error parsing operator JWT: not operator claim"
    ),
    "operator: 5\nresolver: MEM": "operator must be a string",
    NAMED + "resolver: MEM\nresolver_preload { X: eyJ }": "invalid account JWT: X",
    NAMED + "resolver: MEM\nresolver_preload: 5": "resolver_preload must be a block",
    NAMED + "resolver: FOO": WRONG_RESOLVER,
    NAMED + "resolver: 5": WRONG_RESOLVER,
    NAMED + 'resolver: {type: x, dir: "FOLDER"}': WRONG_RESOLVER,
    NAMED + "resolver: {type: full}": "dir has no value and needs to point to a directory",
    NAMED + 'resolver: {type: full, dir: "FOLDER/server.conf"}': "is not a directory",
    NAMED + 'resolver: {type: cache, dir: "FOLDER", allow_delete: true}': (
        "CACHE does not accept allow_delete"
    ),
    NAMED + 'resolver: {type: cache, dir: "FOLDER", interval: "1s"}': "CACHE does not accept sync",
    NAMED + 'resolver: {type: full, dir: "FOLDER", ttl: "1s"}': "FULL does not accept ttl",
    NAMED + 'resolver: {type: full, dir: "FOLDER", timeout: "0s"}': "timeout must be a duration",
    NAMED + 'resolver: {type: full, dir: "FOLDER", hard_delete: true}': (
        "hard_delete has no effect without delete"
    ),
    NAMED + 'resolver: {type: full, dir: "FOLDER", limit: -1}': (
        "limit must be from 0 to 2147483647, not -1"
    ),
    NAMED + "resolver: URL(ftp://x)": "must begin with http:// or https://",
    NAMED + "resolver: URL(http://127.0.0.1/)\n" + PRELOAD: (
        "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR"
    ),
    MEMORY + "resolver_pinned_accounts: [abc]": (
        'pinned account key "abc" is not a valid public account nkey'
    ),
    "trusted_keys: abc\nresolver: MEM": (
        'trust key "abc" required to be a valid public operator nkey'
    ),
    MEMORY + "default_sentinel: eyJ": "default sentinel JWT not valid",
    MEMORY + f"default_sentinel: {user_jwt(user_key(1), ACCOUNT)}": (
        "default sentinel must be a bearer token"
    ),
    f"port: -1\ndefault_sentinel: {SENTINEL}": "default sentinel requires operators and accounts",
    'websocket {port: -1, no_tls: true, jwt_cookie: "a"}': (
        "trusted operators or trusted keys configuration is required for JWT authentication via "
        'cookie "a"'
    ),
    f"trusted_keys: {OPERATOR.public}\nresolver: MEM\nsystem_account: SYS": (
        "system_account 'SYS' must be the public key of an account"
    ),
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_start_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path)
    assert REFUSED[text] in str(caught.value)
    assert "eyJ0" not in str(caught.value)


def test_an_operator_is_a_jwt_or_a_file_plain_or_decorated(tmp_path: Path) -> None:
    token = operator_jwt()
    (tmp_path / "plain.jwt").write_text(token)
    (tmp_path / "decorated.jwt").write_text(decorated("operator", token))
    for value in (token, "FOLDER/plain.jwt", "FOLDER/decorated.jwt"):
        options = load(f'operators: ["{value}"]\nresolver: MEMORY', tmp_path)
        assert options.operator is not None
        assert options.operator.operators == (token,)
        assert options.system_account == SYSTEM.public, "taken from the operator's JWT"


def test_trusted_keys_are_those_of_operators_and_strict_ones_leave_out_the_own(
    tmp_path: Path,
) -> None:
    signers = [OPERATOR_SIGNER.public]
    options = load(f"operator: {operator_jwt(signing_keys=signers)}\nresolver: MEM", tmp_path)
    assert options.operator is not None
    trust = trust_of(options.operator)
    assert trust.keys == {OPERATOR.public, *signers}
    assert not trust.is_strict(OPERATOR_SIGNER.public)
    strict = operator_jwt(signing_keys=signers, strict_signing_key_usage=True)
    options = load(f"operator: {strict}\nresolver: MEM", tmp_path)
    assert options.operator is not None
    trust = trust_of(options.operator)
    assert trust.keys == set(signers)
    assert trust.is_strict(OPERATOR_SIGNER.public)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("MEM", ResolverOptions()),
        ("memory", ResolverOptions()),
        ("{type: mem}", ResolverOptions()),
        ("URL(http://h/accounts/)", ResolverOptions("url", "http://h/accounts/")),
        ('url("https://h")', ResolverOptions("url", "https://h")),
        (
            (
                '{type: FULL, dir: "/x", allow_delete: true, hard_delete: true, limit: 5, '
                'interval: "2m", timeout: "1s"}'
            ),
            ResolverOptions(
                "full",
                folder="/x",
                allow_delete=True,
                hard_delete=True,
                count_max=5,
                sync_interval_ns=120 * 10**9,
                fetch_timeout_ns=10**9,
            ),
        ),
        (
            '{type: cache, dir: "/x", ttl: "1h"}',
            ResolverOptions("cache", folder="/x", count_max=1000, time_to_live_ns=3600 * 10**9),
        ),
    ],
)
def test_resolvers(text: str, wanted: ResolverOptions, tmp_path: Path) -> None:
    value = f"'{text}'" if '"' in text and not text.startswith("{") else text
    options = load(NAMED + f"resolver: {value}", tmp_path)
    assert options.operator is not None
    assert options.operator.resolver == wanted


def test_a_resolver_without_an_operator_changes_nothing(tmp_path: Path) -> None:
    options = load("resolver: MEM\n" + PRELOAD, tmp_path)
    assert options.operator is not None
    assert not options.operator.is_active
    assert options.system_account == "$SYS"
