"""Operators, accounts and users for tests: keys that are always the same, and signed claims."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from tradewind import nkeys
from tradewind.jwt import claims, codec

OPERATOR = nkeys.KeyPair(nkeys.OPERATOR, b"\1" * 32)
OPERATOR_SIGNER = nkeys.KeyPair(nkeys.OPERATOR, b"\2" * 32)
STRANGER = nkeys.KeyPair(nkeys.OPERATOR, b"\3" * 32)
SYSTEM = nkeys.KeyPair(nkeys.ACCOUNT, b"\4" * 32)
SYSTEM_USER = nkeys.KeyPair(nkeys.USER, b"\5" * 32)


def account_key(number: int) -> nkeys.KeyPair:
    return nkeys.KeyPair(nkeys.ACCOUNT, number.to_bytes(4, "big") * 8)


def user_key(number: int) -> nkeys.KeyPair:
    return nkeys.KeyPair(nkeys.USER, number.to_bytes(2, "little") * 16)


def now() -> int:
    return int(time.time())


def operator_jwt(**fields: Any) -> str:
    made = claims.new_operator(OPERATOR.public, "O")
    for name, value in {"system_account": SYSTEM.public, **fields}.items():
        setattr(made.nats, name, value)
    return codec.encode(made, OPERATOR, now())


def account_jwt(
    key: nkeys.KeyPair,
    signer: nkeys.KeyPair = OPERATOR,
    *,
    issued_at: int | None = None,
    limits: dict[str, Any] | None = None,
    top: dict[str, Any] | None = None,
    **fields: Any,
) -> str:
    made = claims.new_account(key.public, "account")
    for name, value in (limits or {}).items():
        setattr(made.nats.limits, name, value)
    for name, value in fields.items():
        setattr(made.nats, name, value)
    for name, value in (top or {}).items():
        setattr(made, name, value)
    return codec.encode(made, signer, now() if issued_at is None else issued_at)


def user_jwt(
    key: nkeys.KeyPair,
    signer: nkeys.KeyPair,
    *,
    account: str = "",
    issued_at: int | None = None,
    is_scoped: bool = False,
    top: dict[str, Any] | None = None,
    **fields: Any,
) -> str:
    made = claims.new_user(key.public, "user", is_scoped=is_scoped)
    made.nats.issuer_account = account
    for name, value in fields.items():
        setattr(made.nats, name, value)
    for name, value in (top or {}).items():
        setattr(made, name, value)
    return codec.encode(made, signer, now() if issued_at is None else issued_at)


def raw_jwt(
    document: Any, signer: nkeys.KeyPair, header: Any = None, *, old_signature: bool = False
) -> str:
    """A JWT of any document, unchecked."""
    head = header if header is not None else {"typ": "JWT", "alg": "ed25519-nkey"}
    parts = [
        part if isinstance(part, bytes) else json.dumps(part).encode() for part in (head, document)
    ]
    chunks = [base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts]
    signed = chunks[1] if old_signature else ".".join(chunks)
    signature = base64.urlsafe_b64encode(signer.sign(signed.encode())).rstrip(b"=").decode()
    return ".".join((*chunks, signature))


def memory_configuration(
    accounts: dict[str, str],
    operator: str | None = None,
    more: str = "",
    system_signer: nkeys.KeyPair = OPERATOR,
) -> str:
    """The configuration of a server whose accounts are in its file; the system account is added."""
    preload = {SYSTEM.public: account_jwt(SYSTEM, system_signer), **accounts}
    entries = "\n".join(f"  {key}: {token}" for key, token in preload.items())
    return (
        f"operator: {operator or operator_jwt()}\n"
        f"system_account: {SYSTEM.public}\n"
        f"resolver: MEMORY\nresolver_preload {{\n{entries}\n}}\n{more}"
    )


def login(token: str, key: nkeys.KeyPair | None, nonce: str, **more: Any) -> dict[str, Any]:
    """The fields of CONNECT; without a key there is no signature."""
    fields: dict[str, Any] = {"verbose": False, "pedantic": False, "jwt": token, **more}
    if key is not None:
        fields["sig"] = base64.urlsafe_b64encode(key.sign(nonce.encode())).rstrip(b"=").decode()
    return fields
