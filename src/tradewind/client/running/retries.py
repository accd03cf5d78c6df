"""How a message ends whose handler did not return: retry policies, and outcomes to raise.

Owns the policy and the exceptions, and nothing that happens. Deliveries are counted by the server,
so a policy holds across processes and restarts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tradewind.client.core.duration_input import DurationInput, duration_ns
from tradewind.client.errors import ClientError, OptionsError
from tradewind.durations import SECOND_NS

ATTEMPTS_MAX: Final = 1_000_000
DELAYS_MAX: Final = 100
FACTOR_MAX: Final = 100.0
SECONDS_MAX: Final = 10 * 365 * 86400.0
_REASON: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


def seconds_of(name: str, value: object) -> float:
    """Seconds of a duration: a number of seconds, a timedelta, or a text such as "30s"."""
    seconds = duration_ns(name, value) / SECOND_NS
    if seconds > SECONDS_MAX:
        raise OptionsError(f"{name} must be at most 10 years, not {value!r}; numbers are seconds")
    return seconds


class Retry:
    """When a message whose handler raised is delivered again, and when it is given up.

    >>> Retry(attempts=3, delay="10s")          # 10 s, 20 s, then given up
    >>> Retry(delay=["1s", "1m", "1h"])         # these delays; the last one repeats
    >>> Retry(on=(OSError, TimeoutError))       # any other error: given up at once

    `attempts` is how often a message is delivered in all; None leaves that to the `max_deliver` of
    the consumer, which always applies too. A single `delay` grows by `factor` up to `max_delay`.
    `jitter` is the share by which a delay is randomly shortened. With `delay=None` the NAK policy
    of the consumer decides; without a policy that means at once.
    """

    def __init__(
        self,
        attempts: int | None = 5,
        delay: DurationInput | Sequence[DurationInput] | None = 1.0,
        *,
        factor: float = 2.0,
        max_delay: DurationInput = 300.0,
        jitter: float = 0.1,
        on: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> None:
        if attempts is not None and not _is_between(attempts, 1, ATTEMPTS_MAX, int):
            raise OptionsError(f"attempts: None, or 1 to {ATTEMPTS_MAX}, not {attempts!r}")
        if not _is_between(factor, 1, FACTOR_MAX, int | float):
            raise OptionsError(f"factor: 1 to {FACTOR_MAX:g}, not {factor!r}")
        if not _is_between(jitter, 0, 1, int | float):
            raise OptionsError(f"jitter: a share from 0 to 1, not {jitter!r}")
        kinds = on if isinstance(on, tuple) else (on,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise OptionsError(f"on: an exception class or a tuple of them, not {on!r}")
        self.attempts = attempts
        self.on = kinds
        self._factor = float(factor)
        self._jitter = float(jitter)
        self._delay_max = seconds_of("max_delay", max_delay)
        self._delays = _delays(delay)
        self._grows = not isinstance(delay, list | tuple)

    def covers(self, error: Exception) -> bool:
        """Whether a message may be retried after this error."""
        return isinstance(error, self.on)

    def delay_after(self, attempt: int, chance: float) -> float | None:
        """Seconds until the next attempt after this one (1 is the first); None: the consumer's.

        `chance` is a random number from 0 to 1.
        """
        if not self._delays:
            return None
        if self._grows:
            try:
                seconds = self._delays[0] * self._factor ** (attempt - 1)
            except OverflowError:
                seconds = self._delay_max
            seconds = min(seconds, max(self._delay_max, self._delays[0]))
        else:
            seconds = self._delays[min(attempt, len(self._delays)) - 1]
        return seconds * (1 - self._jitter * chance)

    def __repr__(self) -> str:
        return f"Retry(attempts={self.attempts}, delay={self._delays})"


def _delays(delay: object) -> tuple[float, ...]:
    if delay is None:
        return ()
    if not isinstance(delay, list | tuple):
        return (seconds_of("delay", delay),)
    if not 1 <= len(delay) <= DELAYS_MAX:
        raise OptionsError(f"delay: a duration, or a list of 1 to {DELAYS_MAX}, not {len(delay)}")
    return tuple(seconds_of(f"delay[{index}]", each) for index, each in enumerate(delay))


def _is_between(value: object, low: float, high: float, kind: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, kind):  # type: ignore[arg-type]
        return False
    return bool(low <= value <= high)  # type: ignore[operator]


class HandlerOutcome(ClientError):  # noqa: N818 - a choice, not a fault
    """Base of what a handler raises to choose how its message ends."""


class RetryLater(HandlerOutcome):
    """Redeliver the message after `delay`, or when the consumer's policy says.

    The limits of the retry policy do not apply, only the `max_deliver` of the consumer. `reason` is
    the class of errors of a NAK policy: 1 to 32 letters, digits, `-` or `_`.
    """

    def __init__(self, delay: DurationInput | None = None, *, reason: str = "") -> None:
        self.delay = None if delay is None else seconds_of("delay", delay)
        if reason and not _REASON.fullmatch(reason):
            raise OptionsError(f"reason: 1 to 32 letters, digits, '-' or '_', not {reason[:64]!r}")
        self.reason = reason
        super().__init__(f"to be retried{f' ({reason})' if reason else ''}")


class GiveUp(HandlerOutcome):
    """The message is never to be delivered again; it becomes a dead letter if the consumer has
    a stream for them.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "given up by the handler")


class Skip(HandlerOutcome):
    """The message needs no handling: it is acknowledged, and counted as skipped."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "skipped by the handler")


class HandlerTimeoutError(ClientError, TimeoutError):
    """A handler took longer than its `timeout`."""
