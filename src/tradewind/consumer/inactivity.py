"""When an unused consumer is deleted.

Owns how long that takes and when it was last found in use. A consumer is in use while its deliver
subject has a subscriber, requests wait, or messages await an ack. To look costs a pass over all
requests, so it happens only when the last request, delivery or ack is long enough ago. Never
removes the consumer: it calls its owner, which does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.consumer.delivery import Delivery
from tradewind.durations import DURATION_NS_MAX

INACTIVE_DEFAULT_NS: Final = 5_000_000_000
# Added to a configured threshold, as the official server does (with some chance).
INACTIVE_SLACK_NS: Final = 100_000_000


class Inactivity:
    """The inactivity of one consumer. `on_inactive` is called when it was unused for its
    threshold.
    """

    __slots__ = ("_delivery", "_due_ns", "_looked_ns", "_on_inactive", "_threshold_ns")

    def __init__(self, delivery: Delivery, on_inactive: Callable[[], None]) -> None:
        self._delivery = delivery
        self._on_inactive = on_inactive
        self._threshold_ns = 0  # 0: it stays for ever
        self._looked_ns = 0
        # When to look again, by what the last look has found.
        self._due_ns = 0

    def configure(self, config: ConsumerConfig) -> None:
        """Restart the count with the threshold of this configuration."""
        self._threshold_ns = _threshold_ns(config)
        self._watch(0)

    def _watch(self, due_ns: int) -> None:
        """Look again at this time, unless the consumer was used since the last look."""
        self._due_ns = min(due_ns, DURATION_NS_MAX)
        threshold_ns = min(self._threshold_ns, DURATION_NS_MAX)
        self._delivery.watch_use(threshold_ns, self._looked_ns, self._due_ns)

    def deadline_ns(self) -> int:
        """When to check whether the consumer is in use; 0: it certainly is."""
        return self._delivery.inactive_at_ns()

    def check(self, now_ns: int) -> None:
        """Report the consumer as inactive unless it has waiting requests, subscribers or pending
        messages.
        """
        delivery = self._delivery
        self._looked_ns = now_ns
        self._watch(self._due_ns)
        if delivery.pulls is None:
            delivery.check_binding()
            if delivery.is_bound:
                return
        else:
            delivery.pulls.sweep_all()
            if delivery.pulls.count:
                self._watch(now_ns + self._threshold_ns)
                return
            latest_ns = delivery.acks.latest_due_ns
            if latest_ns and latest_ns + self._threshold_ns > now_ns:
                self._watch(latest_ns + self._threshold_ns)
                return
        self._watch(now_ns + self._threshold_ns)
        self._on_inactive()


def _threshold_ns(config: ConsumerConfig) -> int:
    """How long an unused consumer lives; 0: for ever."""
    if config.inactive_threshold > 0:
        return config.inactive_threshold + INACTIVE_SLACK_NS
    return 0 if config.durable_name else INACTIVE_DEFAULT_NS
