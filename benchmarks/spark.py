"""`python -m benchmarks.spark`: measures the Spark source and sink and prints the medians.

One store of 128 B messages is made once; the same rows are written to Parquet. Each round then
reads them in turn: with the compiled decoder alone (one core), with Spark from the blocks, from
Parquet and through a server, all columns to the sink `noop`, and writes them from Parquet to a
stream. Last, a streaming query follows a stream that gets 10,000 messages a second, and another one
a stream that gets nothing.

Each figure of a job of Spark is given in rows per second and in microseconds of CPU per row, of
Spark, its Python processes and the server together: the latter hardly depends on what else runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

from benchmarks.figures import format_value, spread
from benchmarks.procfs import tree_cpu_s
from benchmarks.servers import Server
from benchmarks.spark_idle import measure_idle
from benchmarks.spark_writes import measure_tail, write_stream
from tradewind.spark.arrow import arrow_schema
from tradewind.spark.blocks import BlocksProvider
from tradewind.spark.filters import RowFilter
from tradewind.spark.options import COLUMNS, SourceOptions
from tradewind.spark.session import get_session
from tradewind.store.disk import OsDisk
from tradewind.store.index_file import IndexBlock, StreamIndex, encode_index
from tradewind.store.meta import StreamMeta
from tradewind.store.stream_folder import StoreRoot

PAYLOAD_BYTES = 128
SUBJECTS = 100
FLUSH_MESSAGES = 1000
BLOCK_BYTES = 8 * 1024 * 1024
BLOCK_MESSAGES = 49_000
BILLION = 1_000_000_000


def parser() -> argparse.ArgumentParser:
    """All flags."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    flags.add_argument("--rows", type=int, default=3_000_000, metavar="N")
    flags.add_argument("--rounds", type=int, default=3, metavar="N")
    flags.add_argument("--quick", action="store_true", help="20,000 rows, one round")
    flags.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    return flags


def main(argv: list[str] | None = None) -> int:
    """Runs the command."""
    arguments = parser().parse_args(argv)
    rows, rounds = (20_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    if arguments.markdown:
        print("| what | median | spread |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="tradewind-spark-") as name:
        base = Path(name)
        results = measure(base, rows, rounds)
    for what, values in results.items():
        apart = spread(values)
        cells = (
            what,
            format_value(statistics.median(values)),
            "n/a" if apart is None else f"{apart:.0%}",
        )
        print(f"| {' | '.join(cells)} |" if arguments.markdown else f"{cells[0]:60}{cells[1]:>12}")
    return 0


def measure(base: Path, rows: int, rounds: int) -> dict[str, list[float]]:
    """All figures, each with the values of the rounds."""
    results: dict[str, list[float]] = {}
    results["plan a stream of a billion messages, CPU s"] = [
        plan_billion(base / "billion") for _ in range(rounds)
    ]
    make_store(base / "store", rows)
    write_parquet(base / "store", base / "rows.parquet")
    results["decode alone, rows per CPU s of one core"] = [
        rows / decode(base / "store", rows) for _ in range(rounds)
    ]
    command = f"{Path(sys.executable).with_name('tradewind-server')} -c {{conf}}"
    config = f'http: "127.0.0.1:{{port}}"\njetstream {{ store_dir: "{base / "served"}" }}'
    (base / "served").mkdir()
    (base / "store" / "jetstream").rename(base / "served" / "jetstream")
    with Server(command, config) as server:
        spark = get_session("local[2]", {"spark.driver.memory": "1g", "spark.ui.enabled": "false"})
        url = f"nats://127.0.0.1:{server.port}"
        blocks = {"stream": "ORDERS", "storeDir": str(base / "served")}
        network = {"stream": "ORDERS", "servers": url}
        parquet = str(base / "rows.parquet")
        jobs: dict[str, Callable[[], None]] = {
            "from blocks": lambda: drain(_load(spark, blocks)),
            "from Parquet": lambda: drain(spark.read.parquet(parquet)),
            "through the server": lambda: drain(_load(spark, network)),
            "to a stream": lambda: write_stream(spark.read.parquet(parquet), url, rows),
        }
        for job in jobs.values():
            job()  # Spark's first query of a kind takes seconds
        for _ in range(rounds):
            for what, job in jobs.items():
                wall_s, cpu_s = timed(job)
                results.setdefault(f"Spark {what}, rows/s", []).append(rows / wall_s)
                results.setdefault(f"Spark {what}, CPU us/row", []).append(cpu_s / rows * 1e6)
        results |= measure_tail(spark, url, base / "checkpoint", batches=60 if rounds > 1 else 8)
        results |= measure_idle(
            spark, url, server.http_port, server.session, base / "idle", 30 if rounds > 1 else 5
        )
        spark.stop()
    for unit in ("rows/s", "CPU us/row"):
        ours, theirs = results[f"Spark from blocks, {unit}"], results[f"Spark from Parquet, {unit}"]
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        results[f"blocks / Parquet, {unit}"] = ratios
    return results


def timed(job: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds of a job, the latter of all our processes."""
    cpu_start_s, start_s = tree_cpu_s(os.getpid()), time.perf_counter()
    job()
    return time.perf_counter() - start_s, tree_cpu_s(os.getpid()) - cpu_start_s


def _load(spark: Any, options: dict[str, str]) -> Any:
    return spark.read.format("jetstream").options(**options).load()


def drain(frame: Any) -> None:
    """Read everything."""
    frame.write.format("noop").mode("overwrite").save()


def make_store(root: Path, rows: int) -> None:
    """A stream of 128 B messages that no compression makes smaller."""
    root.mkdir()
    place = StoreRoot(OsDisk(str(root)), str(root))
    folder = place.stream("$G", "ORDERS")
    config = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "file", "num_replicas": 1}
    folder.create(StreamMeta(config, time.time_ns()))
    _, store, _ = folder.open(time.time_ns())
    noise = Random(1).randbytes(1 << 20)
    now_ns = time.time_ns()
    for index in range(rows):
        place_in_noise = index * 131 % (len(noise) - PAYLOAD_BYTES)
        payload = noise[place_in_noise : place_in_noise + PAYLOAD_BYTES]
        store.store(b"orders.%d" % (index % SUBJECTS), b"", payload, now_ns + index * 1000)
        if index % FLUSH_MESSAGES == 0:
            store.flush()
    store.commit()
    store.close()
    place.close()


def provider(root: Path) -> BlocksProvider:
    return BlocksProvider(SourceOptions(stream=("ORDERS",), store_dir=str(root)))


def write_parquet(root: Path, path: Path) -> None:
    """The same rows as a folder of Parquet files, one for each part that we would read."""
    path.mkdir()
    for number, task in enumerate(provider(root).tasks("ORDERS", RowFilter(), os.cpu_count() or 1)):
        with pq.ParquetWriter(path / f"{number}.parquet", arrow_schema(COLUMNS)) as writer:
            for batch in task.batches(COLUMNS):
                writer.write_batch(batch)


def decode(root: Path, rows: int) -> float:
    """CPU seconds to decode everything into Arrow, in this process."""
    start = time.process_time()
    found = sum(
        batch.num_rows
        for task in provider(root).tasks("ORDERS", RowFilter(), 0)
        for batch in task.batches(COLUMNS)
    )
    assert found == rows
    return time.process_time() - start


def plan_billion(root: Path) -> float:
    """CPU seconds to plan a read of a stream of a billion messages with its index.db.

    The blocks are files of the right size without content; nothing of them is read.
    """
    place = StoreRoot(OsDisk(str(root)), str(root))
    folder = place.stream("$G", "ORDERS")
    messages = Path(folder.path) / "msgs"
    if not messages.exists():
        config = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "file"}
        folder.create(StreamMeta(config, time.time_ns()))
        make_billion(messages)
    place.close()
    start = time.process_time()
    planned = provider(root)
    planned.states()
    assert sum(len(task.part) for task in planned.tasks("ORDERS", RowFilter(), 0)) > 20_000
    return time.process_time() - start


def make_billion(messages: Path) -> None:
    """Block files without content, and the index.db of a stream that has them."""
    blocks = []
    last = 0
    for number in range(1, BILLION // BLOCK_MESSAGES + 2):
        with (messages / f"{number}.blk").open("wb") as file:
            os.truncate(file.fileno(), BLOCK_BYTES)
        first, last = last + 1, last + BLOCK_MESSAGES
        blocks.append(IndexBlock(number, BLOCK_BYTES, first, first, last, last))
    index = StreamIndex(last, BLOCK_BYTES * len(blocks), 1, 1, last, last)
    index.blocks = blocks
    (messages / "index.db").write_bytes(encode_index(index, "ORDERS"))


if __name__ == "__main__":
    sys.exit(main())
