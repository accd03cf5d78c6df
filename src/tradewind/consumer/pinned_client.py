"""The one client that a priority group with the policy `pinned_client` is served through.

Owns since when a client is pinned and until when it has to ask again. The delivery knows the pin
itself and chooses the client by the first request that it serves; it gets the new pin from here.
"""

from __future__ import annotations

from collections.abc import Callable

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.consumer.delivery import Delivery
from tradewind.consumer.pull_requests import RefusedRequestError
from tradewind.consumer.queued_advisories import QueuedAdvisories
from tradewind.durations import later


class PinnedClient:
    """The pinned client of one consumer, which has this `config`. `pinned_ns` is wall time,
    `due_ns` monotonic; both are 0 exactly while no client is pinned.
    """

    __slots__ = (
        "_account_name",
        "_advisories",
        "_delivery",
        "_new_id",
        "config",
        "pinned_ns",
    )

    def __init__(
        self,
        delivery: Delivery,
        advisories: QueuedAdvisories,
        config: ConsumerConfig,
        account_name: str,
        new_id: Callable[[], str],
    ) -> None:
        self._delivery = delivery
        self._advisories = advisories
        self.config = config
        self._account_name = account_name
        self._new_id = new_id
        self.pinned_ns = 0

    @property
    def pin(self) -> bytes:
        """The valid pin; empty while no client is pinned."""
        pulls = self._delivery.pulls
        return pulls.pin_id if pulls is not None else b""

    @property
    def due_ns(self) -> int:
        """When the pinned client has to have asked again; 0 while no client is pinned."""
        pulls = self._delivery.pulls
        return pulls.pin_due_ns if pulls is not None else 0

    def check(self, pin: str) -> None:
        """Check the pin of a request and prolong it; RefusedRequestError for any other pin."""
        if self.pin and pin:
            if pin.encode() != self.pin:
                raise RefusedRequestError("423 Nats-Pin-Id mismatch")
            self._prolong()

    def new_pin(self) -> bytes:
        """Create the pin for a request without one, which gets all messages from now on."""
        pin = self._new_id()
        self.pinned_ns = self._delivery.turn.now_ns
        self._prolong()
        self._advisories.add(
            "consumer_group_pinned",
            account=self._account_name,
            group=self.config.priority_groups[0],
            pinned_id=pin,
        )
        return pin.encode()

    def unpin(self, reason: str) -> None:
        """Release the pin, because the client is silent or an administrator wants it."""
        if not self.pin:
            return
        pulls = self._delivery.pulls
        assert pulls is not None, "a client that pulls is pinned"
        pulls.unpin()
        self.pinned_ns = pulls.pin_due_ns = 0
        self._advisories.add(
            "consumer_group_unpinned",
            account=self._account_name,
            group=self.config.priority_groups[0],
            reason=reason,
        )

    def _prolong(self) -> None:
        pulls = self._delivery.pulls
        assert pulls is not None, "a client that pulls is pinned"
        pulls.pin_due_ns = later(self._delivery.turn.monotonic_ns, self.config.priority_timeout)
