"""Order per key: the settings in a consumer's metadata.

Owns the keys that begin with `tradewind.order`, their grammar and limits, and what the rest of the
configuration must be. Which message waits for which is decided by the server; nats-server ignores
these keys.

    tradewind.order_by          subject | token:N (counted from 1) | header:NAME
    tradewind.order_in_flight   messages of one key in flight, 1 unless set
    tradewind.order_window      messages that may wait for busy keys before the consumer stops
                                reading on, 65536 unless set
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ReplayPolicy
from tradewind.api.errors import CONSUMER_INVALID_POLICY
from tradewind.api.names import ORDER_PREFIX

ORDER_BY_KEY: Final = "tradewind.order_by"
IN_FLIGHT_KEY: Final = "tradewind.order_in_flight"
WINDOW_KEY: Final = "tradewind.order_window"
TOKEN_MAX: Final = 256
IN_FLIGHT_MAX: Final = 1_000_000
WINDOW_DEFAULT: Final = 65_536
WINDOW_MAX: Final = 1_000_000

_HEADER_NAME: Final = re.compile(r"[!-9;-~]{1,128}", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_FORMS: Final = '"subject", "token:N" (N counted from 1) or "header:NAME"'


class OrderError(ValueError):
    """A key is invalid; the text says what would be right."""


class OrderSettings(msgspec.Struct, frozen=True):
    """The order of one consumer. `kind` is subject, token or header; `token` is counted from 1, and
    0 for the other kinds.
    """

    kind: str
    token: int = 0
    header: str = ""
    in_flight: int = 1
    window: int = WINDOW_DEFAULT

    def key_of(self, subject: str, headers: Mapping[str, str]) -> str:
        """The key of a message; empty if it has none."""
        if self.kind == "header":
            return headers.get(self.header, "")
        if self.kind == "subject":
            return subject
        tokens = subject.split(".")
        return tokens[self.token - 1] if self.token <= len(tokens) else ""

    @property
    def part(self) -> str:
        """The part of a message that is its key, in words."""
        if self.kind == "header":
            return f"header {self.header}"
        return f"token {self.token} of the subject" if self.kind == "token" else "subject"


def order_of(metadata: Mapping[str, str] | None) -> OrderSettings | None:
    """Parse the settings of a consumer, None if there are none; OrderError if a key is wrong."""
    given = {key: text for key, text in (metadata or {}).items() if key.startswith(ORDER_PREFIX)}
    if not given:
        return None
    for key in given:
        if key not in (ORDER_BY_KEY, IN_FLIGHT_KEY, WINDOW_KEY):
            known = f"{ORDER_BY_KEY}, {IN_FLIGHT_KEY} and {WINDOW_KEY}"
            raise OrderError(f"{_shown(key)} is unknown; valid keys: {known}")
    if ORDER_BY_KEY not in given:
        raise OrderError(f"{next(iter(given))}: requires {ORDER_BY_KEY}")
    text = given[ORDER_BY_KEY]
    kind, colon, rest = text.partition(":")
    in_flight = _number(given, IN_FLIGHT_KEY, 1, IN_FLIGHT_MAX)
    window = _number(given, WINDOW_KEY, WINDOW_DEFAULT, WINDOW_MAX)
    if kind == "subject" and not colon:
        return OrderSettings(kind, in_flight=in_flight, window=window)
    if kind == "token" and colon:
        if not _NUMBER.fullmatch(rest) or not 1 <= int(rest) <= TOKEN_MAX:
            raise OrderError(f"{ORDER_BY_KEY}: a token from 1 to {TOKEN_MAX}, not {_shown(rest)}")
        return OrderSettings(kind, int(rest), in_flight=in_flight, window=window)
    if kind == "header" and colon:
        if not _HEADER_NAME.fullmatch(rest):
            raise OrderError(
                f"{ORDER_BY_KEY}: a header name has 1 to 128 visible ASCII characters without "
                f"':', not {_shown(rest)}"
            )
        return OrderSettings(kind, header=rest, in_flight=in_flight, window=window)
    raise OrderError(f"{ORDER_BY_KEY} must be {_FORMS}, not {_shown(text)}")


def described_order(metadata: Mapping[str, str] | None) -> str:
    """The order in readable form; empty if there is none, or another server stored an invalid
    one.
    """
    try:
        order = order_of(metadata)
    except OrderError:
        return ""
    return "" if order is None else f"by {order.part}, {order.in_flight} in flight per key"


def require_order(config: ConsumerConfig) -> None:
    """OrderError unless the rest of a configuration goes with order per key."""
    if config.ack_policy is not AckPolicy.EXPLICIT:
        raise OrderError(
            f"{ORDER_BY_KEY}: requires ack_policy explicit, not {config.ack_policy.value}"
        )
    if config.replay_policy is not ReplayPolicy.INSTANT:
        raise OrderError(
            f"{ORDER_BY_KEY}: requires replay_policy instant, not {config.replay_policy.value}"
        )


def check_order(config: ConsumerConfig, old: ConsumerConfig | None = None) -> None:
    """ApiError unless a consumer can deliver in this order; `old` is its present configuration."""
    try:
        order = order_of(config.metadata)
        if order is not None:
            require_order(config)
    except OrderError as error:
        raise CONSUMER_INVALID_POLICY(err=str(error)) from None
    if old is not None:
        before, after = ((each.metadata or {}).get(ORDER_BY_KEY) for each in (old, config))
        if before != after:
            raise CONSUMER_INVALID_POLICY(
                err=f"{ORDER_BY_KEY}: cannot change from {_value(before)} to {_value(after)}; "
                "create another consumer"
            )


def _number(given: Mapping[str, str], key: str, default: int, most: int) -> int:
    if key not in given:
        return default
    text = given[key]
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise OrderError(f"{key}: a number from 1 to {most}, not {_shown(text)}")
    return int(text)


def _value(text: str | None) -> str:
    return "none" if text is None else _shown(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 64 else f"{text[:64]}...")
