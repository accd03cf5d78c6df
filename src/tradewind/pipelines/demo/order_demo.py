"""The demo without Spark: a server, live orders, a consumer that packs them, and the dashboard.

Owns the order of the parts and the texts. It needs no extra, and says which one the whole demo
needs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

import tradewind.sync
from tradewind.client.errors import ClientError
from tradewind.extra_packages import install_command
from tradewind.pipelines.demo.demo_server import (
    Companion,
    DemoSettings,
    Screen,
    ensure_stream,
    start_server,
)
from tradewind.pipelines.demo.orders import REGIONS, STREAM, Order, OrderPublisher
from tradewind.pipelines.errors import JobError
from tradewind.pipelines.machine.signals import stop_event
from tradewind.pipelines.notation.text_charts import bar

if TYPE_CHECKING:
    from tradewind.sync import Connection

CONSUMER: Final = "packer"
BATCH: Final = 100
FETCH_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.25
CATCH_UP_SECONDS_MAX: Final = 15.0
BAR_WIDTH: Final = 34


@dataclass
class PackedOrders:
    """The orders that the consumer has acknowledged; `error` says why it failed, if it did."""

    count: int = 0
    revenue: dict[str, float] = field(default_factory=dict)
    error: str = ""


class OrderPacker:
    """Reads and acknowledges orders in a thread of its own until it is stopped."""

    def __init__(self, connection: Connection) -> None:
        self._js = connection.jetstream()
        connection.jetstream_manager().consumers.add(
            STREAM, durable_name=CONSUMER, ack_policy="explicit"
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=CONSUMER, daemon=True)
        self.packed = PackedOrders()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the messages that it has fetched."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            consumer = self._js.consumers.get(STREAM, CONSUMER)
            while not self._stop.is_set():
                for message in consumer.fetch(BATCH, expires=FETCH_SECONDS):
                    region = message.subject.rpartition(".")[2]
                    amount = msgspec.json.decode(message.data, type=Order).amount
                    self.packed.revenue[region] = self.packed.revenue.get(region, 0.0) + amount
                    self.packed.count += 1
                    message.ack()
        except (ClientError, msgspec.DecodeError) as error:
            self.packed.error = str(error)


def run_order_demo(
    settings: DemoSettings,
    say: Callable[[str], None],
    show: Callable[[list[str]], None],
    dashboard: Companion,
) -> None:
    """Run until Ctrl-C or for `settings.seconds`; JobError if a part of it fails."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    say("Spark is not installed: this demo has a server, orders, a consumer and the dashboard.")
    say(f"Its pipeline, SQL and lake tables need the extra: {install_command('spark')}")
    with ExitStack() as opened:
        server = start_server(settings, opened, Screen(say, lambda _moment: None))
        say(f"The dashboard is on {opened.enter_context(dashboard(server.url, server.system_url))}")
        say(f"In another terminal: {settings.program} -s {server.url} consumer report {STREAM}")
        connection = opened.enter_context(tradewind.sync.connect(server.url, name="orders"))
        ensure_stream(connection)
        stop = opened.enter_context(stop_event())
        publisher = OrderPublisher(connection, settings.orders_per_second, time.time_ns())
        packer = OrderPacker(connection)
        packer.start()
        publisher.start()
        end = None if settings.seconds is None else time.monotonic() + settings.seconds
        try:
            while not stop.wait(POLL_SECONDS) and (end is None or time.monotonic() < end):
                show(_lines(publisher, packer))
                _check(publisher, packer)
            publisher.stop()
            _catch_up(connection)
        finally:
            publisher.stop()
            packer.stop()
        _check(publisher, packer)
        messages = connection.jetstream_manager().streams.info(STREAM).state.messages
    for text in _lines(publisher, packer):
        say(text)
    say(f"The stream {STREAM} has {messages:,} orders; they are kept in {settings.folder}.")


def _catch_up(connection: Connection) -> None:
    """Wait until the consumer has acknowledged everything."""
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    consumers = connection.jetstream_manager().consumers
    while time.monotonic() < deadline:
        info = consumers.info(STREAM, CONSUMER)
        if not (info.num_pending or info.num_ack_pending):
            return
        time.sleep(POLL_SECONDS)


def _check(publisher: OrderPublisher, packer: OrderPacker) -> None:
    if publisher.published.error:
        raise JobError(f"orders cannot be published: {publisher.published.error}")
    if packer.packed.error:
        raise JobError(f"orders cannot be packed: {packer.packed.error}")


def _lines(publisher: OrderPublisher, packer: OrderPacker) -> list[str]:
    """The state of the demo: how much there is, and a bar for each region."""
    packed = packer.packed
    published = publisher.published.count
    lines = [f"{published:,} orders published -> {packed.count:,} packed by {CONSUMER}"]
    revenue = {region: packed.revenue[region] for region in REGIONS if region in packed.revenue}
    largest = max(revenue.values(), default=0.0)
    for region, amount in revenue.items():
        drawn = bar(amount, largest, BAR_WIDTH)
        lines.append(f"{region:<6}  {drawn:<{BAR_WIDTH}}  {amount:>12,.2f}")
    return lines
