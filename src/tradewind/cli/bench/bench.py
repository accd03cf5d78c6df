"""`tradewind bench`: measures the performance of a server from the client's side.

Owns the commands for core messages, services and buckets; those for streams are in
`bench_streams.py`, the loops in `bench_workloads.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from tradewind.api.names import KV_STREAM
from tradewind.api.stream_types import StorageType
from tradewind.cli.bench import bench_workloads as work
from tradewind.cli.bench.bench_frame import (
    Bench,
    BucketFlag,
    ClientsFlag,
    CsvFlag,
    DurationFlag,
    MaxBytesFlag,
    MsgsFlag,
    MultiFlag,
    MultiMaxFlag,
    Output,
    ProgressFlag,
    PurgeFlag,
    ReplicasFlag,
    SizeFlag,
    SleepFlag,
    StorageFlag,
    SubjectArgument,
    ThroughputFlag,
    make_plan,
    ready_note,
    run_bench,
)
from tradewind.cli.bench.bench_run import Workload
from tradewind.cli.bench.bench_streams import app as js_app
from tradewind.cli.frame.frame import CommandApp, JsonFlag, Option
from tradewind.cli.frame.text_formats import parse_size
from tradewind.client.errors import BucketNotFoundError

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

app = CommandApp("Benchmarks")
service_app = CommandApp("Requests and replies")
kv_app = CommandApp("Key-value buckets")
app.add("service", service_app)
app.add("js", js_app)
app.add("kv", kv_app)

DEFAULT_BUCKET: Final = "benchbucket"


@app.command("pub")
def publish(
    subject: SubjectArgument,
    msgs: MsgsFlag = 100_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    throughput: ThroughputFlag = 0.0,
    sleep: SleepFlag = "",
    multisubject: MultiFlag = False,
    multisubjectmax: MultiMaxFlag = 100_000,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Publish core NATS messages."""
    plan = make_plan(
        msgs=msgs, size=size, clients=clients, duration=duration, rate=throughput, sleep=sleep
    )
    subjects = work.Subjects(subject, multisubject, multisubjectmax)

    async def prepare(connections: list[Connection]) -> list[Workload]:
        return [work.publish(each, subjects) for each in connections]

    details = {"subject": subjects.filter}
    title = "Core NATS publisher"
    run_bench(
        Bench(title=title, plan=plan, details=details, output=Output(csv, json, progress)),
        prepare,
    )


@app.command("sub")
def subscribe(
    subject: SubjectArgument,
    msgs: MsgsFlag = 100_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    multisubject: MultiFlag = False,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Receive messages sent by `bench pub` in another shell; each client receives all of them."""
    plan = make_plan(msgs=msgs * max(clients, 1), size=size, clients=clients, duration=duration)
    subjects = work.Subjects(subject, multisubject)

    async def prepare(connections: list[Connection]) -> list[Workload]:
        ready = ready_note(len(connections), f"Listening on {subjects.filter}")
        return [work.subscribe(each, subjects, ready) for each in connections]

    details = {"subject": subjects.filter}
    title = "Core NATS subscriber"
    run_bench(
        Bench(title=title, plan=plan, details=details, output=Output(csv, json, progress)),
        prepare,
    )


@service_app.command("request")
def service_request(
    subject: SubjectArgument,
    msgs: MsgsFlag = 10_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    throughput: ThroughputFlag = 0.0,
    sleep: SleepFlag = "",
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Send requests one at a time, each after the previous reply."""
    plan = make_plan(
        msgs=msgs, size=size, clients=clients, duration=duration, rate=throughput, sleep=sleep
    )

    async def prepare(connections: list[Connection]) -> list[Workload]:
        return [work.request(each, subject) for each in connections]

    details = {"subject": subject}
    title = "Service requester"
    run_bench(
        Bench(title=title, plan=plan, details=details, output=Output(csv, json, progress)),
        prepare,
    )


@service_app.command("serve")
def service_serve(
    subject: SubjectArgument,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    sleep: SleepFlag = "",
    json: JsonFlag = False,
) -> None:
    """Reply to requests until Ctrl-C."""
    plan = make_plan(msgs=clients, size=size, clients=clients, sleep=sleep)

    async def prepare(connections: list[Connection]) -> list[Workload]:
        ready = ready_note(len(connections), f"Listening on {subject}")
        return [work.serve(each, subject, ready) for each in connections]

    details = {"subject": subject}
    title = "Service server"
    run_bench(
        Bench(title=title, plan=plan, details=details, output=Output(json=json, progress=False)),
        prepare,
    )


# ------------------------------------------------------------------ buckets


@kv_app.command("put")
def kv_put(
    bucket: BucketFlag = DEFAULT_BUCKET,
    msgs: MsgsFlag = 10_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    throughput: ThroughputFlag = 0.0,
    sleep: SleepFlag = "",
    history: Annotated[int, Option("--history", min=1, max=64, help="Values kept per key")] = 1,
    storage: StorageFlag = "file",
    replicas: ReplicasFlag = 1,
    maxbytes: MaxBytesFlag = "1GB",
    purge: PurgeFlag = False,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Put values one at a time per client; creates the bucket if it does not exist."""
    plan = make_plan(
        msgs=msgs, size=size, clients=clients, duration=duration, rate=throughput, sleep=sleep
    )
    size_bytes = parse_size(maxbytes, "--maxbytes")

    async def prepare(connections: list[Connection]) -> list[Workload]:
        buckets = connections[0].jetstream().kv
        try:
            await buckets.open(bucket)
        except BucketNotFoundError:
            await buckets.create(
                bucket,
                history=history,
                storage=StorageType(storage),
                replicas=replicas,
                max_bytes=size_bytes,
            )
        if purge:
            await connections[0].jetstream().manager.streams.purge(f"{KV_STREAM}{bucket}")
        return [work.kv_put(await each.jetstream().kv.open(bucket)) for each in connections]

    run_bench(
        Bench(
            title="KV writer",
            plan=plan,
            details={"bucket": bucket},
            output=Output(csv, json, progress),
        ),
        prepare,
    )


@kv_app.command("get")
def kv_get(
    bucket: BucketFlag = DEFAULT_BUCKET,
    msgs: MsgsFlag = 10_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    throughput: ThroughputFlag = 0.0,
    sleep: SleepFlag = "",
    randomize: Annotated[
        int,
        Option(
            "--randomize", min=0, help="Pick random keys out of this many instead of going in order"
        ),
    ] = 0,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Get values written by `bench kv put`."""
    plan = make_plan(
        msgs=msgs, size=size, clients=clients, duration=duration, rate=throughput, sleep=sleep
    )

    async def prepare(connections: list[Connection]) -> list[Workload]:
        return [
            work.kv_get(await each.jetstream().kv.open(bucket), randomize) for each in connections
        ]

    run_bench(
        Bench(
            title="KV reader",
            plan=plan,
            details={"bucket": bucket},
            output=Output(csv, json, progress),
        ),
        prepare,
    )
