"""Decides when a read renews the time to live of a key, so that reads cause few writes.

Owns the memory of the last renewals of one bucket object, which is bounded. It never contacts the
server. The age of a value is the difference of two clocks, either of which may be wrong: a value
that seems to come from the future counts as due, and whatever the clocks say, one client renews a
key at most once per tenth of its time to live, measured on the monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tradewind.durations import SECOND_NS

# A value is renewed when a tenth of its time to live has passed.
PERIODS_PER_TTL: Final = 10
KEYS_MAX: Final = 10_000


class Renewals:
    """The last renewals by this client; those of the keys that were renewed longest ago go first.

    A key that was forgotten is renewed once more than necessary.
    """

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._renewed_at: OrderedDict[str, float] = OrderedDict()

    def begin_if_due(self, key: str, ttl_ns: int, age_ns: int, now: float) -> bool:
        """Whether to renew a key now, which is remembered; `now` is monotonic, in seconds."""
        period_ns = ttl_ns // PERIODS_PER_TTL
        if 0 <= age_ns < period_ns:
            return False
        renewed_at = self._renewed_at.get(key)
        if renewed_at is not None and now - renewed_at < period_ns / SECOND_NS:
            return False
        self._renewed_at[key] = now
        self._renewed_at.move_to_end(key)
        if len(self._renewed_at) > self._keys_max:
            self._renewed_at.popitem(last=False)
        return True
