"""What very many subscriptions cost across a leaf connection: time and memory of both servers.

    python -m benchmarks.leaf_interest                  a hundred thousand subjects, and a million
    python -m benchmarks.leaf_interest --counts 1000 10000

A client of the leaf node subscribes; it is over when the hub knows all subjects. Then the hub is
killed, comes back and is told everything anew. Processor times hardly depend on what else runs on
the machine.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
import urllib.request

from benchmarks.cli import installed
from benchmarks.leaf_workloads import CONNECT, HUB, LEAF, wait_for_link
from benchmarks.procfs import Usage, session_usage
from benchmarks.servers import Server, free_port

STEP = 1000
SECONDS_MAX = 1800.0


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--server", default=installed("tradewind-server"), help="of both sides")
    arguments = parser.parse_args()
    print("| subjects | s | leaf us each | hub us each | leaf B each | hub B each | anew, s |")
    print("|---|---|---|---|---|---|---|")
    for count in arguments.counts:
        measure(arguments.server, count)


def measure(template: str, count: int) -> None:
    """One row of the table."""
    pages = free_port()
    hub_config = f'http: "127.0.0.1:{pages}"\n' + HUB % "off"
    with (
        Server(template, hub_config) as hub,
        Server(template, LEAF.format(port=hub.http_port, mode="off")) as leaf,
    ):
        wait_for_link(hub, leaf)
        before = [session_usage(one.session) for one in (leaf, hub)]
        began_s = time.perf_counter()
        with socket.create_connection((leaf.host, leaf.port)) as client:
            client.sendall(b"CONNECT %s\r\n" % json.dumps(CONNECT).encode())
            for first in range(0, count, STEP):
                numbers = range(first, min(first + STEP, count))
                client.sendall(b"".join(b"SUB orders.%d.new %d\r\n" % (n, n + 1) for n in numbers))
            wait_told(pages, count)
            told_s = time.perf_counter() - began_s
            after = [session_usage(one.session) for one in (leaf, hub)]
            began_s = time.perf_counter()
            hub.restart(kill=True)
            wait_told(pages, count)
            anew_s = time.perf_counter() - began_s
    cpu = [f"{(b.cpu_s - a.cpu_s) / count * 1e6:.1f}" for a, b in zip(before, after, strict=True)]
    memory = [f"{grown(a, b) / count:.0f}" for a, b in zip(before, after, strict=True)]
    row = [f"{count:,}", f"{told_s:.1f}", *cpu, *memory, f"{anew_s:.1f}"]
    print(f"| {' | '.join(row)} |", flush=True)


def grown(before: Usage, after: Usage) -> int:
    """Bytes of memory that came since."""
    return (after.rss_kib - before.rss_kib) * 1024


def wait_told(port: int, count: int) -> None:
    """Until a hub knows so many subjects of its leaf node."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/leafz", timeout=60) as page:
            leafs = json.load(page)["leafs"] or []
        if leafs and leafs[0]["subscriptions"] >= count:
            return
        time.sleep(0.05)
    raise TimeoutError(f"the hub does not know {count} subjects")


if __name__ == "__main__":
    main()
