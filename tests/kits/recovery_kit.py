"""An origin and a standby that mirrors it, and what is done to them in drills."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tradewind.sync
from harness import ServerProcess, wait_for
from jetstream_servers import keep_streams_folder
from move_kit import REQUEST_SECONDS, make_stream
from ports import free_ports
from tradewind.errors import TradewindError
from tradewind.recovery import DisasterRecovery

STREAM = "ORDERS"
NEW = "orders.new"
OFFICIAL = "official"
# Requests that change something; a kill right after one of these is a case of its own.
CHANGES = (
    "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE",
    "CONSUMER.CREATE", "CONSUMER.PAUSE", "CONSUMER.RESET",
)  # fmt: skip


class Site:
    """A server that can be killed and comes back under its address."""

    def __init__(self, kind: str, folder: Path, name: str, port: int, more: str) -> None:
        self.kind = kind
        self.url = f"nats://127.0.0.1:{port}"
        folder.mkdir()
        self._config = folder / "server.conf"
        self._config.write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{port}"\n'
            + more.replace("STORE", f'store_dir: "{folder}", domain: {name}')
        )
        self.start()

    def start(self) -> None:
        self.process = ServerProcess(self.kind, ["-c", str(self._config)])

    def kill(self) -> None:
        self.process.process.kill()
        self.process.process.wait()
        self.process.stop()


class Sites:
    """Two servers that reach each other: ours by remotes, others by a leaf connection."""

    origin_api, standby_api = "$JS.a.API", "$JS.b.API"

    def __init__(self, folder: Path, origin: str = "tradewind", standby: str = "tradewind") -> None:
        ports = free_ports(3)
        if OFFICIAL in (origin, standby):
            hub = f'jetstream {{ STORE }}\nleafnodes {{ listen: "127.0.0.1:{ports[2]}" }}\n'
            leaf = (
                "jetstream { STORE }\nleafnodes { reconnect: 1s\n remotes: "
                f'[ {{ url: "nats-leaf://127.0.0.1:{ports[2]}" }} ] }}\n'
            )
            configs = (hub, leaf) if origin == OFFICIAL else (leaf, hub)
        else:
            remote = 'jetstream {{ STORE, remotes {{ {} {{ url: "nats://127.0.0.1:{}" }} }} }}\n'
            configs = (remote.format("b", ports[1]), remote.format("a", ports[0]))
        self.origin = Site(origin, folder / "a", "a", ports[0], configs[0])
        self.standby = Site(standby, folder / "b", "b", ports[1], configs[1])
        self.urls = (self.origin.url, self.standby.url)
        for site, name in ((self.origin, "a"), (self.standby, "b")):
            site.process.wait_ready()
            if site.kind == OFFICIAL:
                keep_streams_folder(folder / name)

    def stop(self) -> None:
        self.origin.process.stop()
        self.standby.process.stop()

    def make(self, count: int, **config: Any) -> None:
        """A stream with a consumer at the origin, and its mirror, which has caught up."""
        make_stream(self.origin.url, STREAM, count=count, **config)
        self.make_mirror()

    def make_mirror(self) -> None:
        mirror = {"name": STREAM, "external": {"api": self.origin_api, "deliver": ""}}
        with self.recovery() as recovery, connect(self.standby.url) as connection:
            connection.jetstream_manager().streams.add(name=STREAM, mirror=mirror)
            wait_for(
                lambda: recovery.status(STREAM).lag_messages == 0,
                lambda: recovery.status(STREAM),
                seconds=60,
            )

    @contextmanager
    def recovery(
        self, *, has_origin: bool = True, is_cut: bool = False, **options: Any
    ) -> Iterator[DisasterRecovery]:
        """The object that runs the recovery; with `is_cut` it is killed right after its first
        change of a server.
        """
        cut = Cut() if is_cut else None
        with connect(self.standby.url, on_api_call=cut) as standby:
            options = {
                "origin_place": self.origin.url,
                "standby_place": self.standby.url,
                **options,
            }
            if not has_origin:
                yield DisasterRecovery(None, standby, ack_seconds=2, **options)
                return
            with connect(self.origin.url, on_api_call=cut) as origin:
                yield DisasterRecovery(origin, standby, ack_seconds=2, **options)


class KilledToolError(Exception):
    """Stands for the end of the process that changes over."""


class Cut:
    """Ends the recovery when a server has made a change that is not recorded yet."""

    def __call__(self, subject: str, request: bytes, _answer: bytes) -> None:
        is_reader = b'"mem_storage":true' in request  # which only compares
        if any(name in subject for name in CHANGES) and not is_reader:
            raise KilledToolError


def connect(url: str, **options: Any) -> Any:
    return tradewind.sync.connect(url, timeout=REQUEST_SECONDS, reconnect_wait=0.05, **options)


def wait_until_protected(recovery: DisasterRecovery) -> None:
    """A remote that was away is tried again after up to half a minute."""
    wait_for(
        lambda: recovery.status(STREAM).can_fail_over,
        lambda: recovery.status(STREAM),
        seconds=60,
    )


def with_kills(sites: Sites, act: Callable[[DisasterRecovery], Any], path: Path) -> int:
    """Begin something and go on with it, killed behind every single change; gives how many."""
    kills = 0
    while True:
        try:
            with sites.recovery(is_cut=True) as recovery:
                if path.exists():
                    recovery.resume(path)
                else:
                    act(recovery)
                return kills
        except KilledToolError:
            kills += 1
            assert kills < 100


class Writer(threading.Thread):
    """Publishes numbers from `first` on to one server until it is gone; those that were
    acknowledged are in `acknowledged`.
    """

    def __init__(self, url: str, first: int, count: int) -> None:
        super().__init__()
        self._url, self._numbers = url, range(first, first + count)
        self.acknowledged: list[int] = []

    def run(self) -> None:
        with connect(self._url, reconnect=False) as connection:
            js = connection.jetstream()
            for number in self._numbers:
                try:
                    js.publish(NEW, str(number).encode(), msg_id=f"n{number}")
                except TradewindError:
                    return
                self.acknowledged.append(number)


def drawn(seed: int, low: int, high: int) -> int:
    return random.Random(seed).randrange(low, high)
