"""Tamper-proof streams: the settings of a chain in a stream's metadata.

Owns the rules of the keys that begin with `tradewind.chain`. Chains themselves are explained in
`tradewind.chain`. nats-server ignores the keys.

    tradewind.chain             sha256 | blake3
    tradewind.chain.messages    a checkpoint after this many entries, 1 to 10000000; 10000
    tradewind.chain.seconds     and after so long, if there is something new, 1 to 86400; 60
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tradewind.api.chain import CHAIN_KEY, CHAIN_MESSAGES_KEY, CHAIN_SECONDS_KEY
from tradewind.api.own_errors import CHAIN_INVALID
from tradewind.chain.chain_entries import ALGORITHMS

MESSAGES_DEFAULT: Final = 10_000
MESSAGES_MAX: Final = 10_000_000
SECONDS_DEFAULT: Final = 60
SECONDS_MAX: Final = 86_400


class ChainRule(msgspec.Struct, frozen=True):
    """The chain settings in the metadata of one stream."""

    algorithm: str
    messages: int = MESSAGES_DEFAULT
    seconds: int = SECONDS_DEFAULT


def chain_rule_of(metadata: Mapping[str, str] | None) -> ChainRule | None:
    """Parse the chain settings, None: no chain. ApiError says how to correct them."""
    if not metadata or not any(key.startswith(CHAIN_KEY) for key in metadata):
        return None
    own = [key for key in metadata if key == CHAIN_KEY or key.startswith(f"{CHAIN_KEY}.")]
    for key in own:
        if key not in (CHAIN_KEY, CHAIN_MESSAGES_KEY, CHAIN_SECONDS_KEY):
            known = f"valid keys are {CHAIN_KEY}, {CHAIN_MESSAGES_KEY} and {CHAIN_SECONDS_KEY}"
            raise CHAIN_INVALID(key=key[:64], err=f"unknown key; {known}")
    if not own:
        return None
    if CHAIN_KEY not in metadata:
        raise CHAIN_INVALID(key=own[0], err=f"requires {CHAIN_KEY}, which names the hash")
    algorithm = metadata[CHAIN_KEY]
    if algorithm not in ALGORITHMS:
        names = " or ".join(f'"{name}"' for name in ALGORITHMS)
        raise CHAIN_INVALID(key=CHAIN_KEY, err=f"{names}, not {algorithm[:64]!r}")
    return ChainRule(
        algorithm,
        _number(metadata, CHAIN_MESSAGES_KEY, MESSAGES_DEFAULT, MESSAGES_MAX),
        _number(metadata, CHAIN_SECONDS_KEY, SECONDS_DEFAULT, SECONDS_MAX),
    )


def _number(metadata: Mapping[str, str], key: str, default: int, most: int) -> int:
    text = metadata.get(key)
    if text is None:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not is_number or not 1 <= int(text) <= most:
        raise CHAIN_INVALID(key=key, err=f"a number from 1 to {most}, not {text[:64]!r}")
    return int(text)


def check_chain_update(
    old: ChainRule | None, new: ChainRule | None, *, size: int, msgs: int
) -> None:
    """ApiError if a stream with this many entries and messages cannot change to this rule."""
    if (old and old.algorithm) == (new and new.algorithm):
        return
    if old is None:
        if msgs:
            raise CHAIN_INVALID(
                key=CHAIN_KEY, err="it can be added only while the stream has no messages"
            )
    elif size:
        raise CHAIN_INVALID(
            key=CHAIN_KEY,
            err="it cannot be changed or removed: the stream already has a chain",
        )
