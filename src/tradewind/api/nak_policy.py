"""The delay of refused messages: the settings in a consumer's metadata.

Owns the keys that begin with `tradewind.nak.`, their grammar, and how long the wait is. Never reads
a clock; random numbers are passed in. nats-server ignores these keys.

    tradewind.nak.delay           5s | 1s,10s,1m | exponential 1s x2 max 5m, each with: jitter 10%
    tradewind.nak.delay.CLASS     the same, for refusals whose header names this reason
    tradewind.nak.backoff         true: the `backoff` of the consumer counts for refusals, too
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from tradewind.durations import DURATION_NS_MAX, format_duration, parse_duration_ns

NAK_PREFIX: Final = "tradewind.nak."
DELAY_KEY: Final = "tradewind.nak.delay"
BACKOFF_KEY: Final = "tradewind.nak.backoff"
REASON_FIELD: Final = "Tradewind-Nak-Reason"
# The limits of a policy.
STEPS_MAX: Final = 100
CLASSES_MAX: Final = 100
FACTOR_MAX: Final = 100
# The same bound as for a delay that a client names.
DELAY_NS_MAX: Final = DURATION_NS_MAX // 4

_CLASS: Final = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
_PERCENT: Final = re.compile(r"[0-9]{1,3}%", re.ASCII)
_EXPONENTIAL: Final = re.compile(
    r"exponential\s+(\S+)\s+x([0-9]{1,3}(?:\.[0-9]{1,3})?)\s+max\s+(\S+)", re.ASCII
)
_FORMS: Final = '"5s", "1s,10s,1m" or "exponential 1s x2 max 5m", optionally with "jitter 10%"'
_FIELD_START: Final = f"\r\n{REASON_FIELD}:".lower().encode()


class NakPolicyError(ValueError):
    """A key is invalid; the text says what would be right."""


class DelayRule(msgspec.Struct, frozen=True):
    """The delay by the number of deliveries.

    Without `factor` the steps are used in order, and the last one repeats. With it, the first step
    is multiplied by it for each delivery after the first, up to `longest_ns`. A random part of up
    to `jitter` (0 to 1) is subtracted, so no wait is longer than configured.
    """

    steps_ns: tuple[int, ...]
    factor: float = 0.0
    longest_ns: int = 0
    jitter: float = 0.0

    def wait_ns(self, deliveries: int, chance: Callable[[], float]) -> int:
        """The delay after this many deliveries, at least one; `chance` returns numbers from 0 to
        below 1.
        """
        if self.factor:
            full_ns = self._power(deliveries - 1)
        else:
            full_ns = self.steps_ns[min(deliveries, len(self.steps_ns)) - 1]
        return full_ns - int(full_ns * self.jitter * chance()) if self.jitter else full_ns

    def _power(self, exponent: int) -> int:
        try:
            grown = self.steps_ns[0] * self.factor**exponent
        except OverflowError:
            return self.longest_ns
        return self.longest_ns if grown >= self.longest_ns else int(grown)

    def __str__(self) -> str:
        """The form in the metadata."""
        text = ",".join(format_duration(step_ns) for step_ns in self.steps_ns)
        if self.factor:
            text = f"exponential {text} x{self.factor:g} max {format_duration(self.longest_ns)}"
        return f"{text} jitter {self.jitter * 100:g}%" if self.jitter else text


class NakPolicy(msgspec.Struct, frozen=True):
    """The refusal settings of one consumer. `default` is for reasons without a rule."""

    default: DelayRule | None = None
    classes: dict[str, DelayRule] = {}
    uses_backoff: bool = False

    def wait_ns(
        self,
        reason: str,
        deliveries: int,
        backoff_ns: Sequence[int],
        chance: Callable[[], float],
    ) -> int:
        """How long a refused message waits; 0: not at all."""
        rule = self.classes.get(reason, self.default)
        if rule is not None:
            return rule.wait_ns(deliveries, chance)
        if self.uses_backoff and backoff_ns:
            return backoff_ns[min(deliveries, len(backoff_ns)) - 1]
        return 0

    def __str__(self) -> str:
        """The policy in readable form: `5s; busy: 1s,10s`."""
        parts = [str(self.default)] if self.default is not None else []
        parts += ["as backoff"] if self.uses_backoff else []
        parts += [f"{name}: {rule}" for name, rule in sorted(self.classes.items())]
        return "; ".join(parts)


def nak_policy_of(metadata: Mapping[str, str] | None) -> NakPolicy | None:
    """Parse the policy of a consumer, None if it has none; NakPolicyError if a key is wrong."""
    if not metadata or not any(key.startswith(NAK_PREFIX) for key in metadata):
        return None
    default: DelayRule | None = None
    classes: dict[str, DelayRule] = {}
    uses_backoff = False
    for key, value in metadata.items():
        if not key.startswith(NAK_PREFIX):
            continue
        if key == DELAY_KEY:
            default = _delay_rule(key, value)
        elif key == BACKOFF_KEY:
            if value not in ("true", "false"):
                raise NakPolicyError(f'{key}: "true" or "false", not {_shown(value)}')
            uses_backoff = value == "true"
        elif key.startswith(f"{DELAY_KEY}."):
            classes[_class_name(key)] = _delay_rule(key, value)
        else:
            known = f"{DELAY_KEY}, {DELAY_KEY}.CLASS and {BACKOFF_KEY}"
            raise NakPolicyError(f"{_shown(key)} is unknown; valid keys: {known}")
    if uses_backoff and default is not None:
        raise NakPolicyError(f"{BACKOFF_KEY} and {DELAY_KEY}: use only one of them")
    if len(classes) > CLASSES_MAX:
        raise NakPolicyError(f"{DELAY_KEY}.CLASS: at most {CLASSES_MAX} classes")
    return NakPolicy(default, classes, uses_backoff)


def described_nak_policy(metadata: Mapping[str, str] | None) -> str:
    """The policy in readable form; empty if there is none, or another server stored an invalid
    one.
    """
    try:
        policy = nak_policy_of(metadata)
    except NakPolicyError:
        return ""
    return "" if policy is None else str(policy)


def reason_of(header: bytes) -> str:
    """The class that the header of a refusal names; empty if it names none, or an impossible
    one.
    """
    if not header:
        return ""
    start = header.lower().find(_FIELD_START)
    if start < 0:
        return ""
    start += len(_FIELD_START)
    end = header.find(b"\r\n", start)
    text = header[start : end if end >= 0 else len(header)].strip().decode("ascii", "replace")
    return text if _CLASS.fullmatch(text) else ""


def is_reason(text: str) -> bool:
    """Whether a refusal may name this class."""
    return bool(_CLASS.fullmatch(text))


def _class_name(key: str) -> str:
    name = key.removeprefix(f"{DELAY_KEY}.")
    if not is_reason(name):
        raise NakPolicyError(f"{_shown(key)}: a class has 1 to 32 letters, digits, '-' or '_'")
    return name


def _delay_rule(key: str, text: str) -> DelayRule:
    rest, jitter = text.strip(), 0.0
    words = rest.rsplit(maxsplit=2)
    if len(words) == 3 and words[1] == "jitter" and _PERCENT.fullmatch(words[2]):
        rest, percent = words[0], int(words[2][:-1])
        if percent > 100:
            raise NakPolicyError(f"{key}: jitter must be 0% to 100%, not {percent}%")
        jitter = percent / 100
    if rest.startswith("exponential"):
        return _exponential_rule(key, text, rest, jitter)
    steps_ns = tuple(_duration(key, text, part.strip()) for part in rest.split(","))
    if len(steps_ns) > STEPS_MAX:
        raise NakPolicyError(f"{key} must have at most {STEPS_MAX} durations, not {len(steps_ns)}")
    return DelayRule(steps_ns, jitter=jitter)


def _exponential_rule(key: str, text: str, rest: str, jitter: float) -> DelayRule:
    match = _EXPONENTIAL.fullmatch(rest)
    if match is None:
        raise NakPolicyError(f"{key} must be {_FORMS}, not {_shown(text)}")
    first_ns, factor = _duration(key, text, match[1]), float(match[2])
    longest_ns = _duration(key, text, match[3])
    if not 1 <= factor <= FACTOR_MAX:
        raise NakPolicyError(f"{key}: factor must be x1 to x{FACTOR_MAX}, not x{match[2]}")
    if not 0 < first_ns <= longest_ns:
        raise NakPolicyError(f"{key}: the first delay must be above 0 and at most max")
    return DelayRule((first_ns,), factor, longest_ns, jitter)


def _duration(key: str, text: str, part: str) -> int:
    duration_ns = parse_duration_ns(part)
    if duration_ns is None:
        raise NakPolicyError(f"{key} must be {_FORMS}, not {_shown(text)}")
    if not 0 <= duration_ns <= DELAY_NS_MAX:
        raise NakPolicyError(f"{key}: delay must be 0s to 73 years, not {_shown(part)}")
    return duration_ns


def _shown(text: str) -> str:
    return repr(text if len(text) <= 64 else f"{text[:64]}...")
