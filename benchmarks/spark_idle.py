"""What a streaming query costs that has nothing to do, and how often one that has work connects.

The first is the CPU time of the driver's Python, its Java and all Python workers, as a share of one
core, while the stream that is followed gets nothing. The second is how many connections the server
has seen for each micro-batch with rows.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import tradewind.sync
from benchmarks.procfs import TreeClock

IDLE_SECONDS = 15.0
# Java compiles and collects what starting has left behind.
READABLE_SECONDS = 8.0
WAIT_SECONDS = 120.0


def measure_idle(
    spark: Any, url: str, monitor_port: int, server_pid: int, checkpoint: Path, batches: int
) -> dict[str, list[float]]:
    """Feed a query batch by batch, then leave it alone."""
    pause = threading.Event()
    ours, servers = TreeClock(os.getpid()), TreeClock(server_pid)

    def idle_cpu() -> float:
        """Percent of one core, of all our processes but the server."""
        cpu_s, start_s = ours.read_s() - servers.read_s(), time.perf_counter()
        pause.wait(IDLE_SECONDS)
        wall_s = time.perf_counter() - start_s
        return (ours.read_s() - servers.read_s() - cpu_s) / wall_s * 100

    with tradewind.sync.connect(url) as connection:
        connection.jetstream_manager().streams.add(name="IDLE", subjects=["idle.>"])
        connection.jetstream_manager().streams.add(name="COPY", subjects=["copy.>"])
        js = connection.jetstream()
        frame = spark.readStream.format("jetstream").options(servers=url, stream="IDLE").load()
        query = (
            frame.selectExpr("concat('copy.', subject) as subject", "data")
            .writeStream.format("jetstream")
            .options(servers=url, stream="COPY", checkpointLocation=str(checkpoint))
            .start()
        )

        def feed(count: int) -> None:
            for _ in range(count):
                seq = js.publish("idle.x", b"x").seq
                deadline = time.monotonic() + WAIT_SECONDS
                while connection.jetstream_manager().streams.info("COPY").state.messages < seq:
                    if time.monotonic() > deadline or not query.isActive:
                        raise AssertionError(f"no row came in {WAIT_SECONDS:g} s")
                    pause.wait(0.05)

        feed(3)
        before = total_connections(monitor_port)
        feed(batches)
        made = total_connections(monitor_port) - before
    pause.wait(READABLE_SECONDS)
    waiting = idle_cpu()
    query.stop()
    pause.wait(READABLE_SECONDS)
    return {
        "connections made for each micro-batch, source and sink": [made / batches],
        "a query that waits, CPU % of one core": [waiting],
        "Spark without a query, CPU % of one core": [idle_cpu()],
    }


def total_connections(monitor_port: int) -> int:
    """How many connections the server has seen."""
    with urlopen(f"http://127.0.0.1:{monitor_port}/varz") as answer:
        return int(json.loads(answer.read())["total_connections"])
