"""The common parts of all benchmarks: flags, connections, progress and report.

Owns the steps of a benchmark from its flags to its results. All clients run in this process, each
with its own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tradewind.cli.bench.bench_report import BenchReport
from tradewind.cli.bench.bench_run import BenchPlan, Share, Workload, make_shares, run_shares
from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.command_loop import connect_async, run_until_stopped
from tradewind.cli.frame.frame import Argument, Option
from tradewind.cli.frame.output import line, note, print_json
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_size
from tradewind.client.core.nuid import Nuid

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

SubjectArgument = Annotated[str, Argument(help="Subject of the messages")]
MsgsFlag = Annotated[int, Option("--msgs", min=1, help="Number of messages, shared by all clients")]
SizeFlag = Annotated[str, Option("--size", help="Message size", metavar="BYTES")]
ClientsFlag = Annotated[int, Option("--clients", min=1, help="Number of concurrent clients")]
DurationFlag = Annotated[
    str, Option("--duration", help="Run for this long instead of --msgs", metavar="DURATION")
]
ThroughputFlag = Annotated[
    float, Option("--throughput", min=0, help="Limit to this many messages per second")
]
SleepFlag = Annotated[str, Option("--sleep", help="Pause between messages", metavar="DURATION")]
MultiFlag = Annotated[
    bool, Option("--multisubject", help="Use a different subject for each message")
]
MultiMaxFlag = Annotated[
    int, Option("--multisubjectmax", min=1, help="Number of different subjects")
]
CsvFlag = Annotated[
    str, Option("--csv", help="Also write the results to this CSV file", metavar="FILE")
]
ProgressFlag = Annotated[bool, Option("--progress/--no-progress", help="Show a progress bar")]
StreamFlag = Annotated[str, Option("--stream", help="Stream name")]
CreateFlag = Annotated[bool, Option("--create", help="Create or update the stream")]
PurgeFlag = Annotated[bool, Option("--purge", help="Purge the stream first")]
StorageFlag = Annotated[
    str,
    Option(
        "--storage",
        help="Storage for a new stream or bucket",
        click_type=OneOf("file", "memory"),
    ),
]
ReplicasFlag = Annotated[
    int, Option("--replicas", min=1, max=5, help="Replicas of a new stream or bucket")
]
MaxBytesFlag = Annotated[
    str, Option("--maxbytes", help="Maximum size of a new stream or bucket", metavar="BYTES")
]
BatchFlag = Annotated[int, Option("--batch", min=1, help="Messages per batch")]
DedupFlag = Annotated[bool, Option("--dedup", help="Deduplicate with message IDs")]
DedupWindowFlag = Annotated[
    str, Option("--dedupwindow", help="Deduplication window", metavar="DURATION")
]
ConsumerFlag = Annotated[str, Option("--consumer", help="Consumer name")]
AcksFlag = Annotated[
    str,
    Option("--acks", help="Acknowledgement policy", click_type=OneOf("explicit", "none", "all")),
]
DoubleAckFlag = Annotated[
    bool, Option("--doubleack", help="Wait for the server to confirm each acknowledgement")
]
BucketFlag = Annotated[str, Option("--bucket", help="Bucket name")]


@dataclass(frozen=True, slots=True)
class Output:
    """How the result is given out."""

    csv: str = ""
    json: bool = False
    progress: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A benchmark: its name, what its clients do, and how the result is given out."""

    title: str
    plan: BenchPlan
    details: dict[str, Any]
    output: Output


Prepare = Callable[["list[Connection]"], Awaitable[Sequence[Workload]]]


def make_plan(
    *, msgs: int, size: str, clients: int, duration: str = "", rate: float = 0.0, sleep: str = ""
) -> BenchPlan:
    """The plan of the clients that the flags describe."""
    return BenchPlan(
        messages=msgs,
        size_bytes=parse_size(size, "--size"),
        clients=clients,
        duration_seconds=parse_duration_ns(duration, "--duration") / 1e9,
        rate=rate,
        sleep_seconds=parse_duration_ns(sleep, "--sleep") / 1e9,
    )


def run_bench(bench: Bench, prepare: Prepare) -> None:
    """Run a benchmark and print its figures; `prepare` gives each connection its workload."""
    run_until_stopped(_measure(bench, prepare))


async def _measure(bench: Bench, prepare: Prepare) -> None:
    """Connect, prepare, run, report; if it is stopped, report what was done until then."""
    plan = bench.plan
    amount = f"duration={plan.duration_seconds:g}s" if plan.duration_seconds else ""
    named = {"clients": plan.clients, "size": plan.size_bytes, **bench.details}
    details = ", ".join(f"{key}={value}" for key, value in named.items())
    note(f"Starting {bench.title} benchmark [{amount or f'msgs={plan.messages:,}'}, {details}]")
    connections: list[Connection] = []
    shares = make_shares(plan)
    total = None if plan.duration_seconds else plan.messages
    try:
        while len(connections) < plan.clients:
            name = f"tradewind bench {len(connections) + 1}"
            connections.append(await connect_async(name=name))
        workloads = await prepare(connections)
        with ProgressBar(
            bench.title, total, shown=bench.output.progress and not bench.output.json
        ) as bar:

            def watch(now: Sequence[Share]) -> None:
                bar.set(sum(share.done_count for share in now))

            await run_shares(shares, workloads, watch)
    finally:
        await asyncio.gather(*(each.close() for each in connections), return_exceptions=True)
        if any(share.done_count for share in shares):
            _show(bench, BenchReport(bench.title, shares))


def _show(bench: Bench, report: BenchReport) -> None:
    if bench.output.csv:
        Path(bench.output.csv).write_text(report.csv(Nuid().next()))
    if bench.output.json:
        print_json(report.as_dict())
        return
    for text in report.lines():
        line(text)


def ready_note(count: int, text: str) -> Callable[[], None]:
    """Says that all are ready, when the last one is."""
    waiting = [count]

    def ready() -> None:
        waiting[0] -= 1
        if not waiting[0]:
            note(text)

    return ready
