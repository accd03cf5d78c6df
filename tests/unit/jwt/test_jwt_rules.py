"""What is wrong with claims, in the words that nats-server uses."""

from __future__ import annotations

from typing import Any

import pytest

from jwt_kit import account_key, user_key
from tradewind.jwt import encode
from tradewind.jwt.claim_rules import Issue, blocking_texts, issues, time_of_day
from tradewind.jwt.claims import (
    AccountClaims,
    ActivationClaims,
    ActivationFields,
    Export,
    ExternalAuthorization,
    Import,
    JetStreamLimits,
    Latency,
    OperatorClaims,
    PermissionClaims,
    ResponseClaims,
    SubjectClaims,
    TimeRange,
    TraceFields,
    UserScope,
    WeightedMapping,
    new_account,
    new_operator,
    new_user,
)

ACCOUNT, EXPORTER, USER = account_key(1), account_key(2), user_key(1)


def account(**fields: Any) -> AccountClaims:
    claims = new_account(ACCOUNT.public)
    for name, value in fields.items():
        setattr(claims.nats, name, value)
    return claims


def user_problems(**fields: Any) -> list[str]:
    claims = new_user(USER.public)
    for name, value in fields.items():
        setattr(claims.nats, name, value)
    return blocking_texts(claims, 0)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"src": ["10.0.0.0/8", "::/0"]}, []),
        ({"src": ["10.0.0.1"]}, ['invalid cidr "10.0.0.1" in user src limits']),
        ({"src": ["10.0.0.0/33"]}, ['invalid cidr "10.0.0.0/33" in user src limits']),
        ({"src": ["1.2.3.4/255.0.0.0"]}, ['invalid cidr "1.2.3.4/255.0.0.0" in user src limits']),
        ({"times": [TimeRange(start="08:00:00", end="17:00:00")]}, []),
        (
            {"times": [TimeRange(start="24:00:00", end="x")]},
            ['start in time range is invalid "24:00:00"', 'end in time range is invalid "x"'],
        ),
        (
            {"times": [TimeRange()]},
            [
                "time ranges start must contain a start",
                "time ranges end must contain an end",
            ],
        ),
        ({"times_location": "Europe/Berlin"}, []),
        (
            {"times_location": "Mars/Base"},
            ["could not parse iana time zone by name: unknown time zone Mars/Base"],
        ),
        (
            {"times_location": "../../etc/passwd"},
            ["could not parse iana time zone by name: unknown time zone ../../etc/passwd"],
        ),
        (
            {"pub": SubjectClaims(allow=["a b"])},
            ['Permission Subject "a b" is not allowed to contain queue'],
        ),
        ({"sub": SubjectClaims(allow=["a b"])}, []),
        (
            {"sub": SubjectClaims(deny=["a b c"])},
            ['Permission Subject "a b c" contains too many spaces'],
        ),
        ({"sub": SubjectClaims(deny=["a..b"])}, ['subject "a..b" cannot contain consecutive `.`']),
        ({"pub": SubjectClaims(deny=[""])}, ["subject cannot be empty"]),
        ({"pub": SubjectClaims(deny=[".a"])}, ['subject ".a" cannot start or end with a `.`']),
        ({"resp": ResponseClaims(max=-5, ttl=-5)}, []),
        ({"issuer_account": USER.public}, ["account_id is not an account public key"]),
    ],
)
def test_users(fields: dict[str, Any], wanted: list[str]) -> None:
    assert user_problems(**fields) == wanted


def test_times_are_checked_against_the_time_that_is_given() -> None:
    claims = new_user(USER.public)
    claims.exp, claims.nbf = 100, 50
    assert blocking_texts(claims, 49) == ["claim is not yet valid"]
    assert blocking_texts(claims, 50) == []
    assert blocking_texts(claims, 100) == []
    assert issues(claims, 101) == [Issue("claim is expired", False, True)]


def test_times_of_day() -> None:
    assert time_of_day("7:30:05") == 7 * 3600 + 30 * 60 + 5
    assert [
        time_of_day(text) for text in ("7:3:05", "07:60:00", "07:00:60", "\u0660\u0667:00:00", "")
    ] == [None] * 5


EXPORTS: list[tuple[list[Export], list[str]]] = [
    ([Export(subject="a.>", type="stream"), Export(subject="a.>", type="service")], []),
    ([Export(subject="a b", type="stream")], ['subject "a b" cannot have spaces']),
    ([Export(subject="a", type="x")], ['invalid export type: "x"']),
    (
        [Export(subject="x.*", type="stream"), Export(subject="x.1", type="stream")],
        ['stream export subject "x.*" already exports "x.1"'],
    ),
    (
        [Export(subject="a", type="service", response_type="Many")],
        ['invalid response type for service: "Many"'],
    ),
    (
        [Export(subject="a", type="stream", response_type="Stream", response_threshold=1)],
        [
            'invalid response type for stream: "Stream"',
            "response threshold only valid for services",
        ],
    ),
    (
        [Export(subject="a", type="service", response_threshold=-1)],
        ["negative response threshold is invalid"],
    ),
    (
        [Export(subject="a", type="service", service_latency=Latency(sampling=101, results="r.*"))],
        [
            "sampling percentage needs to be between 1-100",
            "results subject can not contain wildcards",
        ],
    ),
    (
        [
            Export(
                subject="a",
                type="service",
                service_latency=Latency(sampling="headers", results="r"),
            )
        ],
        [],
    ),
    (
        [Export(subject="a.b", type="service", account_token_position=1)],
        ["Account Token Position can only be used with wildcard subjects: a.b"],
    ),
    (
        [Export(subject="a.*", type="service", account_token_position=3)],
        ["Account Token Position 3 exceeds length of subject 'a.*'"],
    ),
    (
        [Export(subject="a.*", type="service", account_token_position=1)],
        ["Account Token Position 1 matches 'a' but must match a * in: a.*"],
    ),
    (
        [Export(subject="a", type="stream", allow_trace=True)],
        ["AllowTrace only valid for service export"],
    ),
]


@pytest.mark.parametrize(("exports", "wanted"), EXPORTS)
def test_exports(exports: list[Export], wanted: list[str]) -> None:
    assert blocking_texts(account(exports=exports), 0) == wanted


def activation(subject: str = "a.>", kind: str = "stream", to: str = ACCOUNT.public) -> str:
    claims = ActivationClaims(sub=to, nats=ActivationFields(subject=subject, kind=kind))
    return encode(claims, EXPORTER, 5)


def taken(**fields: Any) -> Import:
    return Import(**{"subject": "a.b", "account": EXPORTER.public, "type": "stream", **fields})


IMPORTS: list[tuple[list[Import], list[str]]] = [
    ([taken(token=activation())], []),
    ([taken(token="x")], ['import "a.b" contains an invalid activation token']),
    (
        [taken(token=activation(), account=ACCOUNT.public)],
        ['activation token doesn\'t match account for import "a.b"'],
    ),
    (
        [taken(token=activation(to=EXPORTER.public))],
        ['activation token doesn\'t match account it is being included in, "a.b"'],
    ),
    (
        [taken(token=activation("b", "service"))],
        [
            "mismatch between token import type service and type of import stream",
            'activation token import subject "b" doesn\'t match import "a.b"',
        ],
    ),
    ([taken(account="")], ["account to import from is not specified"]),
    ([taken(type="")], ['invalid import type: "unknown"']),
    ([taken(subject="a.*", local_subject="b.$1")], []),
    (
        [taken(subject="a.*", local_subject="b.$2")],
        [
            'Reference $2 in "b.$2" reference * in "a.*" that do not exist',
            "subject does not contain enough * or reference wildcards $[0-9]",
        ],
    ),
    (
        [taken(subject="a.>", local_subject="b")],
        ["both, renaming subject and subject, need to end or not end in >"],
    ),
    ([taken(local_subject="b", to="c")], ["Local Subject replaces To"]),
    (
        [taken(share=True)],
        ['sharing information (for latency tracking) is only valid for services: "a.b"'],
    ),
    (
        [taken(type="service"), taken(type="service", subject="a.*")],
        [f'overlapping subject namespace for "a.*" and "a.b" in same account "{EXPORTER.public}"'],
    ),
    ([taken(type="service"), taken(type="service", account=account_key(5).public)], []),
]


@pytest.mark.parametrize(("imports", "wanted"), IMPORTS)
def test_imports(imports: list[Import], wanted: list[str]) -> None:
    assert blocking_texts(account(imports=imports), 0) == wanted


def test_limits_of_an_account_bound_what_it_shares() -> None:
    claims = account(imports=[taken()], exports=[Export(subject="x.*", type="stream")])
    claims.nats.limits.imports = claims.nats.limits.exports = 0
    claims.nats.limits.wildcards = False
    assert blocking_texts(claims, 0) == [
        "the account contains more imports than allowed by the operator",
        "the account contains more exports than allowed by the operator",
        "the account contains wildcard exports that are not allowed by the operator",
    ]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"signing_keys": [USER.public]}, f'"{USER.public}" is not a valid account signing key'),
        ({"signing_keys": [UserScope(key="k")]}, "k is not an account public key"),
        (
            {
                "mappings": {
                    "a": [WeightedMapping(subject="b"), WeightedMapping(subject="c", weight=1)]
                }
            },
            'Mapping "a" exceeds 100% among all of it\'s weighted to mappings',
        ),
        (
            {"authorization": ExternalAuthorization(allowed_accounts=["*"])},
            "External authorization cannot have accounts without users specified",
        ),
        (
            {"authorization": ExternalAuthorization(auth_users=["x"])},
            'AuthUser "x" is not a valid user public key',
        ),
        (
            {"authorization": ExternalAuthorization(auth_users=[USER.public], xkey="x")},
            'XKey "x" is not a valid public xkey',
        ),
        (
            {"trace": TraceFields(dest="a.*")},
            'the account Trace.Destination subject "a.*" is not a valid publish subject',
        ),
        (
            {"trace": TraceFields(dest="a", sampling=101)},
            "the account Trace.Sampling value '101' is not valid, should be in the range [1..100]",
        ),
        ({"cluster_traffic": "x"}, 'unknown cluster traffic option: "x"'),
        ({"description": "x" * 8193}, "Description is too long"),
        ({"info_url": "nowhere"}, "error parsing info url: no hostname or scheme"),
        (
            {"default_permissions": PermissionClaims(pub=SubjectClaims(allow=["a b"]))},
            'Permission Subject "a b" is not allowed to contain queue',
        ),
    ],
)
def test_accounts(fields: dict[str, Any], wanted: str) -> None:
    assert blocking_texts(account(**fields), 0) == [wanted]


def test_a_tier_needs_a_name() -> None:
    claims = account()
    claims.nats.limits.tiered_limits = {"": JetStreamLimits()}
    assert blocking_texts(claims, 0) == [
        'Tiered JetStream Limits can not contain a blank "" tier name'
    ]


def test_a_self_signed_account_with_limits_is_only_warned_about() -> None:
    claims = account()
    claims.iss = ACCOUNT.public
    assert [issue.is_blocking for issue in issues(claims, 0)] == [False]
    assert blocking_texts(claims, 0) == []


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"signing_keys": ["x"]}, "x is not an operator public key"),
        ({"system_account": "x"}, "x is not an account public key"),
        ({"account_server_url": "host"}, 'account server url "host" requires a protocol'),
        (
            {"assert_server_version": "2"},
            'asserted server version "2" must be three numbers such as 2.10.0',
        ),
    ],
)
def test_operators(fields: dict[str, Any], wanted: str) -> None:
    claims: OperatorClaims = new_operator("O")
    for name, value in fields.items():
        setattr(claims.nats, name, value)
    assert blocking_texts(claims, 0) == [wanted]
