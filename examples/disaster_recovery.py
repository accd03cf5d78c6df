"""A stream fails over to another server and comes back, planned and after a loss.

    python examples/disaster_recovery.py                on two free ports
    python examples/disaster_recovery.py 4301 4302      on two ports of your choice

The two servers would be on two machines, in two places; `tradewind dr` does the same from a shell.
"""
# ruff: noqa: T201 - an example talks to the terminal

import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tradewind
import tradewind.sync
from tradewind.options import JetStreamOptions, RemoteOptions, Secret
from tradewind.recovery import DisasterRecovery

STREAM = "ORDERS"


def free_port() -> int:
    """Both servers must know the address of the other one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Site:
    """A server that can mirror the streams of the other one."""

    def __init__(self, name: str, port: int, other: str, other_port: int, folder: Path) -> None:
        self.url = f"nats://127.0.0.1:{port}"
        remote = RemoteOptions(
            name=other,
            urls=(Secret(f"nats://127.0.0.1:{other_port}"),),
            prefix=f"$JS.{other}.API",
        )
        self._jetstream = JetStreamOptions(
            enabled=True, store_dir=str(folder / name), remotes=(remote,)
        )
        self._settings = {"server_name": name, "port": port}

    def run(self) -> tradewind.ServerThread:
        """Until it is left; its data stays."""
        return tradewind.serve(jetstream=self._jetstream, **self._settings)


@contextmanager
def recovery(origin: Site | None, standby: Site) -> Iterator[DisasterRecovery]:
    """Both sides, or what is left of them."""
    with tradewind.sync.connect(standby.url) as there:
        if origin is None:
            yield DisasterRecovery(None, there)
            return
        with tradewind.sync.connect(origin.url) as here:
            yield DisasterRecovery(here, there, origin_place=origin.url, standby_place=standby.url)


def publish(site: Site, *bodies: str) -> None:
    """Store orders at one of the sites."""
    with tradewind.sync.connect(site.url) as connection:
        for body in bodies:
            connection.jetstream().publish("orders.new", body.encode(), msg_id=body)


def handle(site: Site, count: int) -> list[str]:
    """What the consumer of a site gets next."""
    with tradewind.sync.connect(site.url) as connection:
        handled = []
        consumer = connection.jetstream().consumers.get(STREAM, "packer")
        for message in consumer.fetch(count, expires=5):
            handled.append(message.data.decode())
            message.ack_sync()
        return handled


def wait_until_protected(pair: DisasterRecovery) -> None:
    """The mirror connects and catches up."""
    while not (pair.status(STREAM).can_fail_over and pair.status(STREAM).rpo_ns == 0):
        time.sleep(0.05)


def make_streams(origin: Site, standby: Site) -> None:
    """A stream with a consumer at the origin, and its mirror at the standby."""
    with tradewind.sync.connect(origin.url) as connection:
        manager = connection.jetstream_manager()
        manager.streams.add(name=STREAM, subjects=["orders.>"])
        manager.consumers.add(STREAM, durable_name="packer", ack_policy="explicit")
    with tradewind.sync.connect(standby.url) as connection:
        mirror = {"name": STREAM, "external": {"api": "$JS.east.API"}}
        connection.jetstream_manager().streams.add(name=STREAM, mirror=mirror)


def main(folder: Path, east_port: int, west_port: int) -> None:
    """A planned failover and failback, then an unplanned one."""
    east = Site("east", east_port, "west", west_port, folder)
    west = Site("west", west_port, "east", east_port, folder)
    with west.run():
        with east.run():
            make_streams(east, west)
            publish(east, "apples", "pears", "plums")
            print(f"east handles {handle(east, 1)}")
            with recovery(east, west) as pair:
                wait_until_protected(pair)
                pair.failover(STREAM, folder / "1.json")
                publish(west, "figs")
                print(f"west handles {handle(west, 2)}")
                pair.failback(STREAM, folder / "2.json", standby_api="$JS.west.API")
                wait_until_protected(pair)
                pair.record(STREAM)  # what `tradewind dr watch` does every few seconds
        print("east is lost")
        with recovery(None, west) as pair:
            lost = pair.failover(STREAM, folder / "3.json", is_lost=True)
            print(f"west has everything up to sequence {lost.last_seq}")
            publish(west, "grapes")
            print(f"west handles {handle(west, 2)}")
        with east.run():
            publish(east, "dates")  # by a client that does not know about it
            with recovery(east, west) as pair:
                print(f"east is back: {pair.status(STREAM).state}")
                back = pair.failback(STREAM, folder / "4.json", standby_api="$JS.west.API")
                print(f"saved: {back.saved_messages} message")
                pair.publish_saved(Path(back.saved_file), STREAM)
            print(f"east handles {handle(east, 1)}")


if __name__ == "__main__":
    ports = [int(word) for word in sys.argv[1:]] or [free_port(), free_port()]
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), *ports)
