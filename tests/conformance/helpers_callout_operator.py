"""A server in operator mode whose logins a service decides."""

from __future__ import annotations

from typing import Any

from helpers_callout import Service

from harness import ServerProcess
from jwt_kit import account_jwt, account_key, memory_configuration, now, user_jwt, user_key
from tradewind.jwt.claims import ExternalAuthorization, ScopeTemplate, SubjectClaims, UserScope

AUTH = account_key(100)
AUTH_SIGNER = account_key(101)
APP = account_key(102)
APP_SIGNER = account_key(103)
APP_ROLE = account_key(104)
CLOSED = account_key(105)
MISSING = account_key(106)
SERVICE_USER = user_key(100)
SENTINEL_USER = user_key(101)
REVOKED_USER = user_key(102)
SENTINEL = user_jwt(
    SENTINEL_USER,
    AUTH,
    bearer_token=True,
    pub=SubjectClaims(deny=[">"]),
    sub=SubjectClaims(deny=[">"]),
    tags=["a:b", "c"],
)


def configuration(**authorization: Any) -> str:
    rules = {
        "auth_users": [SERVICE_USER.public],
        "allowed_accounts": [APP.public, MISSING.public],
        **authorization,
    }
    role = UserScope(
        key=APP_ROLE.public,
        role="r",
        template=ScopeTemplate(sub=SubjectClaims(allow=["{{name()}}.>"])),
    )
    accounts = {
        AUTH.public: account_jwt(
            AUTH,
            authorization=ExternalAuthorization(**rules),
            signing_keys=[AUTH_SIGNER.public],
            revocations={REVOKED_USER.public: now() + 100},
        ),
        APP.public: account_jwt(APP, signing_keys=[APP_SIGNER.public, role], limits={"subs": 2}),
        CLOSED.public: account_jwt(CLOSED),
    }
    return memory_configuration(accounts, more="authorization { timeout: 5 }\n")


def start_service(server: ServerProcess) -> Service:
    return Service.by_jwt(server, user_jwt(SERVICE_USER, AUTH), SERVICE_USER)
