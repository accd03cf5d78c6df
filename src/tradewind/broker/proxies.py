"""Trusted proxies: whether a connection has come through one of them (ADR-55).

Owns the check of the signature that a proxy adds to CONNECT. The proxy has signed the nonce of the
connection, so that a signature is of no use on another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tradewind.broker.identity import Rejection
from tradewind.wire import ops

# Each costs a check of a signature for every stranger who sends one.
TRUSTED_MAX: Final = 16


def signer(trusted: Iterable[str], nonce: bytes, signature_text: str) -> str:
    """The trusted key that has signed the nonce; empty if none has."""
    # Imported here because it brings the signature library, which few configurations need.
    from tradewind import nkeys

    signature = nkeys.decode_signature(signature_text)
    if signature is None or not nonce:
        return ""
    for key in trusted:
        if nkeys.verify(nkeys.decode_public(key)[1], nonce, signature):
            return key
    return ""


def not_trusted() -> Rejection:
    """The refusal of a connection whose signature no trusted proxy has made."""
    return Rejection(
        "the signature of its proxy is not of a trusted one",
        live_reason=ops.CLOSED_PROXY_NOT_TRUSTED,
        closed_reason=ops.CLOSED_PROXY_NOT_TRUSTED,
    )


def proxy_required(reason: str) -> Rejection:
    """The refusal of a direct connection as a user who must come through a proxy."""
    return Rejection(
        reason,
        live_reason=ops.CLOSED_PROXY_REQUIRED,
        closed_reason=ops.CLOSED_PROXY_REQUIRED,
    )
