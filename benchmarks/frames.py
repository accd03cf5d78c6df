"""Rows per second of a processor that become frames, and the cost of the first answer of SQL.

    .venv/bin/python -m benchmarks.frames [--rows 1000000] [--size 128]

A stream is filled through our server, then read from its blocks and through each server, with and
without decoding. Only the CPU time of the reading process counts; a row is the best of three runs.
The last rows are whole processes of `tradewind sql`, from their start to their end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tradewind.sync
from tradewind import frames
from tradewind.frames.frame_source import FrameSource

ROUNDS = 3
SQL_ROWS = 100_000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=128)
    given = parser.parse_args()
    print(f"{'read':44} rows per CPU s")
    for kind in ("tradewind", "nats-server"):
        with tempfile.TemporaryDirectory() as folder, server(kind, Path(folder)) as url:
            fill(url, "PLAIN", given.rows, lambda number: b"x" * given.size)
            fill(url, "EVENTS", SQL_ROWS, order)
            plain = frames.stream("PLAIN", servers=url)
            blocks = frames.stream("PLAIN", store=folder)
            decoded = frames.stream("EVENTS", servers=url, decode="json")
            rate(f"{kind}: blocks, all columns", given.rows, blocks)
            rate(f"{kind}: blocks, seq", given.rows, blocks.select("seq"))
            rate(f"{kind}: network, all columns", given.rows, plain)
            rate(f"{kind}: network, JSON decoded", SQL_ROWS, decoded)
            first_answers(kind, url)


def order(number: int) -> bytes:
    """An order as JSON."""
    region = number % 5
    return json.dumps({"id": number, "region": f"r{region}", "amount": number * 0.25}).encode()


def taken(source: FrameSource) -> int:
    """The number of rows of a source, each batch of which is dropped."""
    return sum(batch.num_rows for batch in source.reader())


def rate(name: str, rows: int, source: FrameSource) -> None:
    """Print how many rows a read makes in one second of the processor."""
    found = []
    for _ in range(ROUNDS):
        before = time.process_time()
        assert taken(source) == rows
        found.append(time.process_time() - before)
    print(f"{name:44} {round(rows / min(found)):>14,}")


def first_answers(kind: str, url: str) -> None:
    """Print the CPU time of a process that answers one question."""
    text = "select region, count(*) as orders, sum(amount) as amount from EVENTS group by region"
    command = [sys.executable, "-m", "tradewind.cli", "--server", url, "sql", text, "--csv"]
    found = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "TRADEWIND_SQL_ENGINE": "duckdb"}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"{kind}: sql, group by over {SQL_ROWS:,} messages      {min(found):.2f} CPU s")


def fill(url: str, stream: str, rows: int, payload: Callable[[int], bytes]) -> None:
    """Publish the messages of a stream."""
    with tradewind.sync.connect(url) as connection:
        connection.jetstream_manager().streams.add(name=stream, subjects=[f"{stream.lower()}.*"])
        js = connection.jetstream()
        for number in range(rows):
            js.publish_async(f"{stream.lower()}.{number % 10}", payload(number))
        js.publish_async_completed()


@contextmanager
def server(kind: str, folder: Path) -> Iterator[str]:
    """A server on a port of its own."""
    program = [sys.executable, "-m", "tradewind.server.server_main"]
    command = program if kind == "tradewind" else [str(Path(sys.prefix) / "bin" / "nats-server")]
    ports = folder / "ports"
    ports.mkdir()
    flags = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    flags += ["--ports_file_dir", str(ports)]
    with subprocess.Popen([*command, *flags], stderr=subprocess.DEVNULL) as process:
        try:
            while not (written := list(ports.glob("*.ports"))):
                time.sleep(0.05)
            yield json.loads(written[0].read_text())["nats"][0]
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
