"""Short spellings of options and credentials for the tests of the gate."""

from __future__ import annotations

import base64

import bcrypt

from tradewind import nkeys
from tradewind.broker.identity import Credentials, DeferredCheck, Gate, Identity, Rejection
from tradewind.options import (
    AccountOptions,
    AuthorizationOptions,
    Secret,
    ServerOptions,
    TlsOptions,
    UserOptions,
)
from tradewind.server.auth import Listener, build_gate

KEY = nkeys.KeyPair(nkeys.USER, b"\1" * 32)
OTHER_KEY = nkeys.KeyPair(nkeys.USER, b"\2" * 32)
NONCE = b"vPtH7ErMRjMbMY8"
MAPPED = TlsOptions(verify_and_map=True)
HASHED = bcrypt.hashpw(b"p", bcrypt.gensalt(4)).decode()


def user(name: str, password: str = "p", **settings: object) -> UserOptions:
    return UserOptions(user=name, password=Secret(password), **settings)  # type: ignore[arg-type]


def nkey_user(key: nkeys.KeyPair = KEY, **settings: object) -> UserOptions:
    return UserOptions(nkey=key.public, **settings)  # type: ignore[arg-type]


def with_users(*users: UserOptions, **settings: object) -> ServerOptions:
    authorization = AuthorizationOptions(users=users)
    return ServerOptions(authorization=authorization, **settings)  # type: ignore[arg-type]


def single(name: str = "a", password: str = "p") -> ServerOptions:
    return ServerOptions(authorization=AuthorizationOptions(user=name, password=Secret(password)))


def with_token(token: str = "t") -> ServerOptions:
    return ServerOptions(authorization=AuthorizationOptions(token=Secret(token)))


def accounts(**users: tuple[UserOptions, ...]) -> dict[str, AccountOptions]:
    return {name: AccountOptions(name, users=members) for name, members in users.items()}


def signed(key: nkeys.KeyPair = KEY, nonce: bytes = NONCE, **values: str) -> Credentials:
    signature = base64.urlsafe_b64encode(key.sign(nonce)).rstrip(b"=").decode()
    return Credentials(nkey=key.public, signature=signature, nonce=nonce, **values)


def decide(
    options: ServerOptions, credentials: Credentials, listener: Listener = "standard"
) -> Identity | Rejection:
    answer = build_gate(options, listener).check(credentials)
    return answer.decide() if isinstance(answer, DeferredCheck) else answer


def enters(
    options: ServerOptions, credentials: Credentials, listener: Listener = "standard"
) -> bool:
    return isinstance(decide(options, credentials, listener), Identity)


def describe(gate: Gate) -> tuple[bool, bool]:
    return gate.auth_required, gate.nonce_required
