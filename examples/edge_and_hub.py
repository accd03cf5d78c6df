"""Devices that store data locally while their hub is down, and a hub that gets each message once.

    python examples/edge_and_hub.py                          ten devices
    python examples/edge_and_hub.py --devices 3 --no-spark
    python examples/edge_and_hub.py --folder edge            keeps its files

Each device is a process with a Tradewind server inside. The hub is a nats-server cluster of three,
on this machine; a stream with three replicas collects the streams of all devices, and a pipeline on
Spark reads that one. The leader of the stream is killed, then the whole hub, then a device. At the
end all readings are counted. It needs `pip install '.[cluster,spark]'` and takes about a
minute.
"""
# ruff: noqa: T201, S603 - an example talks to the terminal, and starts what it names

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tradewind
import tradewind.sync
from tradewind.errors import ClientError, StreamNotFoundError
from tradewind.options import JetStreamOptions, LeafOptions, LeafRemoteOptions, Secret

if TYPE_CHECKING:
    from tradewind.sync import Connection

STREAM = "READINGS"
PAUSE_SECONDS = 0.02
PATIENCE_SECONDS = 300
PIPELINE = """\
pipeline: readings
checkpoint: state
trigger: 1 second
spark: {ui: false}
sources:
  readings: {stream: READINGS}
steps:
  numbers:
    sql: select substring(subject, 10) as device, cast(cast(data as string) as bigint) as number
      from readings
sinks:
  lake: {from: numbers, parquet: lake}
"""


# ---------------------------------------------------------------------- a device


async def run_device(name: str, folder: str, hubs: list[str]) -> None:
    """A device: it stores readings until it gets a line, and serves until its input ends."""
    async with tradewind.Server(
        server_name=name,
        # By its domain the hub can name the JetStream of this device.
        jetstream=JetStreamOptions(enabled=True, store_dir=folder, domain=name),
        leafnodes=LeafOptions(remotes=(LeafRemoteOptions(urls=tuple(map(Secret, hubs))),)),
    ) as server:
        print(server.url, flush=True)
        told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        await store_readings(name, server.url, told)
        await asyncio.to_thread(sys.stdin.read)


async def store_readings(name: str, url: str, told: asyncio.Task[str]) -> None:
    """Publish numbers into the device's own stream until `told` is done."""
    async with tradewind.connect(url) as connection:
        js = connection.jetstream()
        # Its subject is its own: what two devices both store would cross the hub.
        await js.manager.streams.add(name=STREAM, subjects=[f"readings.{name}"])
        # After a crash it continues after what is stored.
        number = (await js.manager.streams.info(STREAM)).state.last_seq
        while not told.done():
            number += 1
            await js.publish(f"readings.{name}", b"%d" % number, msg_id=f"{name}-{number}")
            await asyncio.sleep(PAUSE_SECONDS)


class Device:
    """The process of a device, as its operator sees it."""

    def __init__(self, name: str, folder: Path, hubs: list[str]) -> None:
        self.name = name
        self._command = [sys.executable, __file__, "--device", name, str(folder / name), *hubs]
        self.start()

    def start(self) -> None:
        """Start it; it continues with what it has stored."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this program, which then ends its devices
        )
        assert self._process.stdout is not None
        self._url = self._process.stdout.readline().strip()

    def stored(self) -> int:
        """How many readings are in its own stream; none before it has made it."""
        with tradewind.sync.connect(self._url) as connection:
            try:
                return connection.jetstream_manager().streams.info(STREAM).state.messages
            except StreamNotFoundError:
                return 0

    def stop_readings(self) -> int:
        """No more readings; how many there are."""
        assert self._process.stdin is not None
        self._process.stdin.write("enough\n")
        self._process.stdin.flush()
        before = -1
        while before != (before := self.stored()):
            time.sleep(3 * PAUSE_SECONDS)
        return before

    def kill(self) -> None:
        """As a power cut would."""
        self._process.kill()
        with self._process:
            pass  # its pipes are closed, and its end is waited for


# ---------------------------------------------------------------------- the hub


class Hub:
    """A nats-server cluster of three, run by `tradewind cluster`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.up()

    def up(self) -> None:
        """Start what does not run."""
        document = json.loads(self._call("up", "--port", "0", "--domain", "hub", "--json"))
        self.url: str = document["url"]
        self.leaf_urls: list[str] = document["leafnode_urls"]
        self.nodes: list[str] = [node["name"] for node in document["nodes"]]

    def kill(self, name: str) -> None:
        """Kill one server as a crash would."""
        self._call("kill", str(self.nodes.index(name) + 1))

    def stop(self) -> None:
        """Stop all."""
        self._call("stop")

    def _call(self, command: str, *more: str) -> str:
        words = [sys.executable, "-m", "tradewind.cli", "cluster", command, *more]
        done = subprocess.run(
            [*words, "--dir", str(self._folder)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout


def collect(connection: Connection, devices: list[Device]) -> None:
    """Make the stream of the hub: one source for each device, named by its domain."""
    connection.jetstream_manager().streams.add(
        name=STREAM,
        num_replicas=3,
        sources=[
            {"name": STREAM, "external": {"api": f"$JS.{device.name}.API", "deliver": ""}}
            for device in devices
        ],
    )


def arrived(connection: Connection) -> Counter[tuple[str, int]]:
    """All readings in the stream of the hub: which device, which number."""
    found: Counter[tuple[str, int]] = Counter()
    count = connection.jetstream_manager().streams.info(STREAM).state.messages
    consumer = connection.jetstream().consumers.ordered(STREAM)
    while found.total() < count:
        for message in consumer.fetch(min(count - found.total(), 500)):
            found[message.subject.removeprefix("readings."), int(message.data)] += 1
    return found


# ---------------------------------------------------------------------- Spark


class Pipeline:
    """`tradewind pipeline run`, started again when it fails, as a service would be."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "readings.yaml").write_text(PIPELINE)
        self._environment = {**os.environ, "NATS_URL": url}
        self.starts = 0
        self._run()

    def _run(self) -> None:
        self.starts += 1
        words = [sys.executable, "-m", "tradewind.cli", "pipeline", "run", "readings.yaml"]
        with (self._folder / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*words, "--quiet"],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def rows(self) -> Counter[tuple[str, int]]:
        """All rows that it has written; it is started again if it has ended."""
        from pyarrow import parquet

        if self._process.poll() is not None:
            self._run()
        found: Counter[tuple[str, int]] = Counter()
        for file in (self._folder / "lake").rglob("*.parquet"):
            table = parquet.read_table(file, partitioning=None)
            numbers = table["number"].to_pylist()
            found.update(zip(table["device"].to_pylist(), numbers, strict=True))
        return found

    def stop(self) -> None:
        """As Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()


# ---------------------------------------------------------------------- the story


def wait_for(what: str, is_so: Callable[[], bool]) -> float:
    """Wait until something holds; how long it took."""
    began = time.monotonic()
    while True:
        # There is no leader at times.
        with contextlib.suppress(ClientError):
            if is_so():
                return time.monotonic() - began
        if time.monotonic() > began + PATIENCE_SECONDS:
            raise SystemExit(f"waited {PATIENCE_SECONDS} s in vain until {what}")
        time.sleep(0.1)


class Story:
    """What happens, in order."""

    def __init__(
        self, hub: Hub, devices: list[Device], connection: Connection, pipeline: Pipeline | None
    ) -> None:
        self.hub = hub
        self.devices = devices
        self.connection = connection
        self.pipeline = pipeline

    def at_hub(self) -> int:
        """How many readings the hub has."""
        return self.connection.jetstream_manager().streams.info(STREAM).state.messages

    def at_devices(self) -> int:
        """How many readings the devices have."""
        return sum(device.stored() for device in self.devices)

    def wait_until_caught_up(self) -> str:
        """Until the hub has what the devices have now."""
        wanted = self.at_devices()
        seconds = wait_for("the hub has all readings", lambda: self.at_hub() >= wanted)
        return f"{seconds:.0f} s later the hub has those {wanted} readings"

    def kill_leader(self) -> None:
        """One server of the hub dies: the two others continue."""
        cluster = self.connection.jetstream_manager().streams.info(STREAM).cluster
        assert cluster is not None
        self.hub.kill(cluster.leader)
        print(f"3. {cluster.leader}, which led the stream, was killed")
        print(f"   {self.wait_until_caught_up()}")
        self.hub.up()

    def kill_hub(self) -> None:
        """All servers of the hub die: devices continue alone; one of them has a power cut, too."""
        for name in self.hub.nodes:
            self.hub.kill(name)
        before = self.at_devices()
        print("4. the whole hub was killed")
        self.devices[0].kill()
        self.devices[0].start()
        wanted = before + 50 * len(self.devices)
        wait_for("the devices have stored more", lambda: self.at_devices() >= wanted)
        print(
            f"   in the meantime the devices have stored {self.at_devices() - before} "
            "readings at home,"
        )
        print(f"   though {self.devices[0].name} was killed and started again")
        self.hub.up()
        print(f"5. the hub is back; {self.wait_until_caught_up()}")

    def count(self) -> bool:
        """Whether every reading is everywhere once."""
        expected = Counter(
            (device.name, number)
            for device in self.devices
            for number in range(1, device.stop_readings() + 1)
        )
        total = expected.total()
        wait_for("the hub has all readings", lambda: self.at_hub() >= total)
        is_right = report("6. stream of the hub", expected, arrived(self.connection))
        if self.pipeline is not None:
            rows = self.pipeline.rows
            wait_for("the pipeline has all rows", lambda: rows().total() >= total)
            is_right &= report("7. rows of the pipeline", expected, rows())
            print(f"   starts of the pipeline: {self.pipeline.starts}")
        return is_right


def report(what: str, expected: Counter[Any], found: Counter[Any]) -> bool:
    """Say how many there are, lost and doubled; whether that is right."""
    lost, doubled = (expected - found).total(), (found - expected).total()
    print(f"{what}: {found.total()} of {expected.total()}, {lost} lost, {doubled} twice")
    return not lost and not doubled


@contextlib.contextmanager
def running(folder: Path, count: int, *, has_spark: bool) -> Iterator[Story]:
    """The hub, the devices and the pipeline; all are gone afterwards."""
    with contextlib.ExitStack() as stack:
        hub = Hub(folder / "hub")
        stack.callback(hub.stop)
        print("1. a hub of three servers:", ", ".join(hub.nodes))
        devices = []
        for number in range(1, count + 1):
            devices.append(Device(f"device-{number}", folder, hub.leaf_urls))
            stack.callback(devices[-1].kill)
        # It loses its server more than once, which is no news here.
        connection = tradewind.sync.connect(hub.url, timeout=15, on_event=lambda _: None)
        stack.callback(connection.close)
        collect(connection, devices)
        pipeline = Pipeline(folder / "pipeline", hub.url) if has_spark else None
        if pipeline is not None:
            stack.callback(pipeline.stop)
        yield Story(hub, devices, connection, pipeline)


def main(folder: Path, count: int, *, has_spark: bool) -> int:
    """Tell the story; 0 if every reading is everywhere once."""
    with running(folder, count, has_spark=has_spark) as story:
        print(f"2. {count} devices store readings; {story.wait_until_caught_up()}")
        if story.pipeline is not None:
            rows = story.pipeline.rows
            wait_for("the pipeline has rows", lambda: bool(rows()))
        story.kill_leader()
        story.kill_hub()
        return 0 if story.count() else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--folder", type=Path, help="a new folder for all files, which stay")
    parser.add_argument("--device", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.device:
        name, store, *hubs = given.device
        asyncio.run(run_device(name, store, hubs))
    else:
        with tempfile.TemporaryDirectory() as place:
            where = (given.folder or Path(place)).absolute()
            sys.exit(main(where, given.devices, has_spark=not given.no_spark))
