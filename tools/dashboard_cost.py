"""What the dashboard costs a server with many streams: time of views, and processor of the server.

    .venv/bin/python tools/dashboard_cost.py tradewind 10000 10

makes 10,000 streams in memory with ten consumers each on our server (`official` for nats-server),
asks for each view once, refreshes some as an open page does, and then visits many streams. The
memory is that of the process in which the dashboard runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "kits"))

import tradewind
from harness import ServerProcess
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard

AT_ONCE = 64
WATCHED_SECONDS = 12
REFRESH_SECONDS = 2
VIEWS = (
    "/",
    "/streams",
    "/consumers",
    "/streams/S00001",
    "/streams/S00001/consumers",
    "/streams/S00001/consumers/c0",
    "/kv",
    "/objects",
    "/accounts",
    "/connections",
)
OPEN = VIEWS[:3]
VISITED = 300


def say(line: str) -> None:
    """One line of the result."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def held_mebibytes() -> float:
    """How much memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def processor_seconds(pid: int) -> float:
    """How long a process has run."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def fill(url: str, streams: int, consumers: int) -> None:
    """Make the streams."""
    async with tradewind.connect(url, timeout=60) as connection:
        manager = connection.jetstream_manager(timeout=60)
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            name = f"S{number:05}"
            async with gate:
                subjects = [f"s.{number}.>"]
                await manager.streams.add(name=name, subjects=subjects, storage="memory")
                for index in range(consumers):
                    await manager.consumers.add(name, durable_name=f"c{index}", mem_storage=True)

        await asyncio.gather(*(one(number) for number in range(streams)))


def watch(server: ServerProcess) -> None:
    """Look at the views."""
    settings = DashboardSettings(ConnectOptions(servers=server.url), port=0)
    with (
        running_dashboard(settings) as dashboard,
        httpx.Client(base_url=dashboard.url, timeout=60, trust_env=False) as visitor,
    ):
        say(f"memory before the first view: {held_mebibytes():.0f} MiB")
        for path in VIEWS:
            began = time.monotonic()
            size = len(visitor.get(path).content)
            say(f"{path:30} {time.monotonic() - began:6.2f} s {size:8} bytes")
        say(f"memory after these views: {held_mebibytes():.0f} MiB")
        for path in OPEN:
            began, used = time.monotonic(), processor_seconds(server.process.pid)
            while (passed := time.monotonic() - began) < WATCHED_SECONDS:
                visitor.get(path, headers={"X-Refresh": "1"})
                time.sleep(REFRESH_SECONDS)
            used = processor_seconds(server.process.pid) - used
            say(f"{path:30} open: the server takes {100 * used / passed:.2f} % of a core")
        began = time.monotonic()
        for number in range(VISITED):
            visitor.get(f"/streams/S{number:05}")
        passed = time.monotonic() - began
        say(f"{VISITED} other streams: {passed:.1f} s, memory {held_mebibytes():.0f} MiB")


def main() -> None:
    """Measure."""
    kind, streams, consumers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-js", "-sd", folder, "-a", "127.0.0.1", "-p", "-1"]
        server = ServerProcess(kind, flags).wait_ready()
        try:
            began = time.monotonic()
            asyncio.run(fill(server.url, streams, consumers))
            passed = time.monotonic() - began
            say(f"{streams} streams, {streams * consumers} consumers: {passed:.0f} s")
            watch(server)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
