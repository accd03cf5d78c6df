"""Publishes sample orders to the stream ORDERS.

Owns the simulated shop: its regions, items and prices. The numbers are random but differ between
regions, to make charts interesting.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.client.errors import ClientError

if TYPE_CHECKING:
    from tradewind.sync import Connection

STREAM: Final = "ORDERS"
SUBJECTS: Final = ("orders.*",)
# How many orders come from a region, compared with the others.
REGIONS: Final = {"us": 5, "eu": 4, "asia": 3, "brazil": 2, "africa": 1}
ITEMS: Final = {"coffee": 4.5, "tea": 3.2, "kettle": 39.9, "grinder": 89.0, "beans": 16.8}
ROUND_SECONDS: Final = 0.1


class Order(msgspec.Struct):
    """The payload of one message."""

    id: int
    item: str
    amount: float


@dataclass
class PublishProgress:
    """The messages published so far, and why it ended if it did not end by itself."""

    count: int = 0
    error: str = ""


class OrderPublisher:
    """Publishes orders from a thread of its own until it is stopped."""

    def __init__(self, connection: Connection, per_second: float, seed: int) -> None:
        self._js = connection.jetstream()
        self._per_second = per_second
        self._random = random.Random(seed)  # noqa: S311 - orders for show, no secrets
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self.published = PublishProgress()
        self._next_id = connection.jetstream_manager().streams.info(STREAM).state.last_seq + 1

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, when all that was published is acknowledged."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            begun = time.monotonic()
            while not self._stop.wait(ROUND_SECONDS):
                due = int((time.monotonic() - begun) * self._per_second)
                for _ in range(due - self.published.count):
                    self._publish_one()
                self._js.publish_async_completed()
        except ClientError as error:
            self.published.error = str(error)
        with suppress(ClientError):
            self._js.publish_async_completed()

    def _publish_one(self) -> None:
        region, order = self.sample()
        self._js.publish_async(f"orders.{region}", msgspec.json.encode(order))
        self.published.count += 1

    def sample(self) -> tuple[str, Order]:
        """The next order and its region."""
        region = self._random.choices(list(REGIONS), list(REGIONS.values()))[0]
        item = self._random.choice(list(ITEMS))
        amount = round(ITEMS[item] * self._random.randint(1, 4) * self._random.uniform(0.9, 1.1), 2)
        order = Order(self._next_id, item, amount)
        self._next_id += 1
        return region, order
