"""`python -m benchmarks.spark`: measures the Spark source and sink and prints the medians.

One store of 128 B messages is made once; the same rows are written to Parquet. Each round then
reads them in turn: with the compiled decoder alone (one core), with Spark from the blocks, from
Parquet and through a server, to the sink `noop`, and writes them from Parquet to a stream. "Table
and tail" is the stream with an Iceberg table that lacks its last hundredth; the look at the table
and the read of the tail count. All columns are read, or two of them. "From memory" are batches that
no source has to read. The server is ours, and nats-server on a copy of the same store. Last, a
streaming query follows a stream that gets 10,000 messages a second, and another one a stream that
gets nothing.

Each figure of a job of Spark is given in rows per second and in microseconds of CPU per row, of
Spark, its Python processes and the servers together: the latter hardly depends on what else runs.
Where a server takes part, its own share of that is given too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figures import format_value, spread
from benchmarks.procfs import TreeClock, session_usage
from benchmarks.servers import Server
from benchmarks.spark_floor import premade
from benchmarks.spark_idle import measure_idle
from benchmarks.spark_tables import COLUMNS, make_table
from benchmarks.spark_writes import measure_tail, write_stream
from tradewind.pipelines.tables.table_reading import read_stream
from tradewind.spark.columnar.arrow import arrow_schema
from tradewind.spark.columnar.columns import MESSAGES
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.processes.spark_session import get_session
from tradewind.spark.providers.blocks import BlocksProvider
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.index_file import IndexBlock, StreamIndex, encode_index
from tradewind.store.format.meta import StreamMeta

PAYLOAD_BYTES = 128
SUBJECTS = 100
FLUSH_MESSAGES = 1000
BLOCK_BYTES = 8 * 1024 * 1024
BLOCK_MESSAGES = 49_000
BILLION = 1_000_000_000
FEW_COLUMNS = "seq,subject"

# What is timed, and the server that takes part in it.
Job = tuple[Callable[[], None], Server | None]


def parser() -> argparse.ArgumentParser:
    """All flags."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    flags.add_argument("--rows", type=int, default=3_000_000, metavar="N")
    flags.add_argument("--rounds", type=int, default=3, metavar="N")
    flags.add_argument("--quick", action="store_true", help="20,000 rows, one round")
    flags.add_argument(
        "--only", default="", metavar="WORDS", help="only jobs that have one of these in their name"
    )
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
        results = measure(base, rows, rounds, arguments.only)
    for what, values in results.items():
        apart = spread(values)
        cells = (
            what,
            format_value(statistics.median(values)),
            "n/a" if apart is None else f"{apart:.0%}",
        )
        print(f"| {' | '.join(cells)} |" if arguments.markdown else f"{cells[0]:60}{cells[1]:>12}")
    return 0


def measure(base: Path, rows: int, rounds: int, only: str = "") -> dict[str, list[float]]:
    """All figures, each with the values of the rounds; or those of some jobs of Spark."""
    results: dict[str, list[float]] = {}
    make_store(base / "store", rows)
    write_parquet(base / "store", base / "rows.parquet")
    if not only:
        results["plan a stream of a billion messages, CPU s"] = [
            plan_billion(base / "billion") for _ in range(rounds)
        ]
        results["decode alone, rows per CPU s of one core"] = [
            rows / decode(base / "store", rows) for _ in range(rounds)
        ]
    (base / "served").mkdir()
    (base / "store" / "jetstream").rename(base / "served" / "jetstream")
    shutil.copytree(base / "served", base / "peer")
    with ExitStack() as running:
        ours = running.enter_context(_server("tradewind-server", base / "served"))
        peer = running.enter_context(_server("nats-server", base / "peer"))
        spark = get_session("local[2]", {"spark.driver.memory": "1g", "spark.ui.enabled": "false"})
        running.callback(spark.stop)
        make_table(_url(ours), base / "lake", table_parts(base / "served"), rows)
        jobs = make_jobs(spark, base, {"Tradewind": ours, "nats-server": peer}, rows)
        words = [word.strip() for word in only.split(",")]
        jobs = {what: job for what, job in jobs.items() if any(word in what for word in words)}
        clock = TreeClock(os.getpid())
        for job, _ in jobs.values():
            job()  # Spark's first query of a kind takes seconds
        for _ in range(rounds):
            for what, (job, server) in jobs.items():
                for figure, value in timed(job, clock, server, rows).items():
                    results.setdefault(f"Spark {what}, {figure}", []).append(value)
        if not only:
            tail_batches = 60 if rounds > 1 else 8
            results |= measure_tail(spark, _url(ours), base / "checkpoint", batches=tail_batches)
            idle_s = 30 if rounds > 1 else 5
            results |= measure_idle(
                spark, _url(ours), ours.http_port, ours.session, base / "idle", idle_s
            )
    for columns in ("", f" ({FEW_COLUMNS})"):
        for unit in ("rows/s", "CPU us/row"):
            for kind in ("blocks", "memory", "table and tail"):
                one, other = (f"Spark from {which}{columns}, {unit}" for which in (kind, "Parquet"))
                if one in results and other in results:
                    pairs = zip(results[one], results[other], strict=True)
                    results[f"{kind} / Parquet{columns}, {unit}"] = [a / b for a, b in pairs]
    return results


def _server(program: str, store: Path) -> Server:
    command = f"{Path(sys.executable).with_name(program)} -c {{conf}}"
    config = f'http: "127.0.0.1:{{port}}"\njetstream {{ store_dir: "{store}" }}'
    return Server(command, config)


def _url(server: Server) -> str:
    return f"nats://127.0.0.1:{server.port}"


def make_jobs(spark: Any, base: Path, servers: dict[str, Server], rows: int) -> dict[str, Job]:
    """What is measured, in the order in which the jobs take turns."""
    blocks = {"stream": "ORDERS", "storeDir": str(base / "served")}
    few = blocks | {"columns": FEW_COLUMNS}
    parquet = str(base / "rows.parquet")

    def read_parquet(*columns: str) -> Any:
        return spark.read.parquet(parquet).select(*columns)

    batch = next(pq.ParquetFile(base / "rows.parquet" / "0.parquet").iter_batches(BLOCK_MESSAGES))
    types = ", ".join(f"{name} {column.ddl}" for name, column in MESSAGES.items())
    in_memory = premade(spark, batch, types, rows)

    jobs: dict[str, Job] = {
        "from blocks": (lambda: drain(_load(spark, blocks)), None),
        "from Parquet": (lambda: drain(read_parquet("*")), None),
        "from memory": (lambda: drain(in_memory), None),
        f"from blocks ({FEW_COLUMNS})": (lambda: drain(_load(spark, few)), None),
        f"from Parquet ({FEW_COLUMNS})": (
            lambda: drain(read_parquet(*FEW_COLUMNS.split(","))),
            None,
        ),
    }
    ours = servers["Tradewind"]
    for columns in ("*", FEW_COLUMNS):
        shown = "" if columns == "*" else f" ({columns})"
        jobs[f"from table and tail{shown}"] = (
            partial(_drain_table, spark, _url(ours), columns.split(",")),
            ours,
        )
    for name, server in servers.items():
        url = _url(server)
        network = {"stream": "ORDERS", "servers": url}
        backup = network | {"readMode": "backup"}
        jobs[f"through {name}"] = (partial(_drain_stream, spark, network), server)
        jobs[f"through {name} as a backup"] = (partial(_drain_stream, spark, backup), server)
        jobs[f"to {name}"] = (partial(write_stream, read_parquet("*"), url, rows), server)
    return jobs


def _drain_stream(spark: Any, options: dict[str, str]) -> None:
    drain(_load(spark, options))


def _drain_table(spark: Any, url: str, columns: list[str]) -> None:
    """All of it, with the look at the table and the read of the tail."""
    drain(read_stream(spark, "ORDERS", url).select(*columns))


def timed(
    job: Callable[[], None], clock: TreeClock, server: Server | None, rows: int
) -> dict[str, float]:
    """Rows per second of a job, and CPU per row of all our processes and of its server."""
    served_start_s = session_usage(server.session).cpu_s if server else 0.0
    cpu_start_s, start_s = clock.read_s(), time.perf_counter()
    job()
    wall_s, cpu_s = time.perf_counter() - start_s, clock.read_s() - cpu_start_s
    figures = {"rows/s": rows / wall_s, "CPU us/row": cpu_s / rows * 1e6}
    if server:
        served_s = session_usage(server.session).cpu_s - served_start_s
        figures["of it CPU us/row of the server"] = served_s / rows * 1e6
    return figures


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
        store.table.store(b"orders.%d" % (index % SUBJECTS), b"", payload, now_ns + index * 1000)
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
        with pq.ParquetWriter(path / f"{number}.parquet", arrow_schema(MESSAGES)) as writer:
            for batch in task.batches(tuple(MESSAGES)):
                writer.write_batch(batch)


def table_parts(root: Path) -> Iterator[Iterator[pa.RecordBatch]]:
    """The rows that a table has, in as many parts as the Parquet files."""
    for task in provider(root).tasks("ORDERS", RowFilter(), os.cpu_count() or 1):
        yield task.batches(COLUMNS)


def decode(root: Path, rows: int) -> float:
    """CPU seconds to decode everything into Arrow, in this process."""
    start = time.process_time()
    found = sum(
        batch.num_rows
        for task in provider(root).tasks("ORDERS", RowFilter(), 0)
        for batch in task.batches(tuple(MESSAGES))
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
