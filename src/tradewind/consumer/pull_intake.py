"""The way of a pull request from its arrival to the queue of waiting requests.

Owns that each request ends in one of three ways: it waits in the queue, it is refused with a
status, or, while the disk cannot be read, it is taken again later, before the requests after it.
The delivery collects the requests of a turn, and serves those that wait. Texts and limits are those
of `pull_requests`.
"""

from __future__ import annotations

from typing import Final

from tradewind.api.consumer_types import ConsumerConfig, PriorityPolicy
from tradewind.consumer.delivery import Delivery
from tradewind.consumer.pinned_client import PinnedClient
from tradewind.consumer.pull_requests import (
    BODY_BYTES_MAX,
    PRIORITY_MAX,
    RefusedRequestError,
    check_pull,
    decode_pull,
)
from tradewind.durations import later
from tradewind.errors import StoreError
from tradewind.faults import Faults

INTERNAL_ERROR: Final = b"500 Internal Server Error"
# Bytes of refused requests of one turn in which errors are looked for closely, which takes up to a
# microsecond per byte; the status of the others says only that they are not JSON.
REFUSED_BYTES_PER_TURN: Final = 2 * BODY_BYTES_MAX


class PullIntake:
    """The intake of one consumer with this configuration; a push consumer refuses all requests.
    `label` names it in the log.
    """

    __slots__ = (
        "_closely_left",
        "_config",
        "_delivery",
        "_faults",
        "_has_rules",
        "_label",
        "_pinned",
    )

    def __init__(
        self,
        delivery: Delivery,
        pinned: PinnedClient,
        config: ConsumerConfig,
        faults: Faults,
        label: str,
    ) -> None:
        self._delivery = delivery
        self._pinned = pinned
        self._faults = faults
        self._label = label
        self._closely_left = REFUSED_BYTES_PER_TURN
        self.configure(config)

    def configure(self, config: ConsumerConfig) -> None:
        """Apply the limits of a configuration to future requests."""
        self._config = config
        # Whether a request can break a rule by its number of messages and its time.
        self._has_rules = (
            config.max_batch > 0
            or config.max_expires > 0
            or config.priority_policy != PriorityPolicy.NONE
        )
        if self._delivery.pulls is not None:
            self._delivery.pulls.has_rules = self._has_rules

    def take_all(self) -> None:
        """Take the requests that arrived in this turn; StoreError if the store cannot be read."""
        requests = self._delivery.take_requests()
        self._closely_left = REFUSED_BYTES_PER_TURN
        for index, request in enumerate(requests):
            reply, header, payload = request
            is_plain = not header and not self._has_rules
            if is_plain and self._delivery.add_plain_request(reply, payload):
                continue
            try:
                self._take(reply, header, payload)
            except StoreError:
                # This one is tried again, with those after it.
                self._delivery.return_requests(requests[index:])
                raise

    def end_all(self, status: bytes, *, counts: bool) -> None:
        """End all waiting requests with a status; with `counts` also report how much is missing.

        Requests that arrived in the same turn are not in the queue yet.
        """
        self._closely_left = REFUSED_BYTES_PER_TURN
        for request in self._delivery.take_requests():
            try:
                self._take(*request)
            except StoreError:
                self._delivery.send_status(request[0], status)
        if self._delivery.pulls is not None:
            self._delivery.pulls.end_all(status, counts=counts)

    def _take(self, reply: bytes, header: bytes, payload: bytes) -> None:
        """Add a request to the queue, or refuse it with a status."""
        if self._delivery.pulls is None:
            self._delivery.send_status(reply, b"409 Consumer is push based")
            return
        try:
            self._enter(reply, header, payload)
        except RefusedRequestError as error:
            self._closely_left = max(self._closely_left - min(len(payload), BODY_BYTES_MAX), 0)
            self._delivery.send_status(reply, str(error).encode())
        except StoreError:
            raise
        except Exception as error:
            # Other requesters of this consumer are not affected.
            self._faults.contain("pull request", error, f"of '{self._label}'")
            self._delivery.send_status(reply, INTERNAL_ERROR)

    def _enter(self, reply: bytes, header: bytes, payload: bytes) -> None:
        delivery = self._delivery
        closely_max = min(self._closely_left, BODY_BYTES_MAX)
        request, has_group = decode_pull(header, payload, closely_max=closely_max)
        check_pull(request, self._config, has_group=has_group)
        now_ns = delivery.turn.monotonic_ns
        self._pinned.check(request.id)
        pulls = delivery.pulls
        assert pulls is not None
        wanted = pulls.sweep_all() if request.no_wait or pulls.count >= pulls.count_max else 0
        if request.no_wait:
            delivery.active_ns = now_ns
            acks = delivery.acks
            left = delivery.cursor.pending() + acks.queue_count + acks.parked_count
            if left == 0 and request.expires == 0:
                raise RefusedRequestError("404 No Messages")
            if 0 < left < wanted:
                raise RefusedRequestError("408 Requests Pending")
        delivery.active_ns = now_ns
        entered = pulls.add_request(
            reply,
            request.batch,
            request.max_bytes,
            later(now_ns, request.expires) if request.expires else 0,
            max(request.idle_heartbeat, 0),
            request.no_wait,
            request.min_pending,
            request.min_ack_pending,
            request.priority if has_group else PRIORITY_MAX + 1,
            request.id.encode(),
            has_group,
        )
        if not entered and request.idle_heartbeat <= 0:
            raise RefusedRequestError("409 Exceeded MaxWaiting")
