"""`tradewind bench js`: measures writing to and reading from streams.

Owns the streams and consumers that these benchmarks need; the loops are in `bench_workloads.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tradewind.api.consumer_types import AckPolicy
from tradewind.api.stream_types import StorageType, StreamConfig
from tradewind.cli.bench import bench_workloads as work
from tradewind.cli.bench.bench_frame import (
    AcksFlag,
    BatchFlag,
    Bench,
    ClientsFlag,
    ConsumerFlag,
    CreateFlag,
    CsvFlag,
    DedupFlag,
    DedupWindowFlag,
    DoubleAckFlag,
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
    StreamFlag,
    SubjectArgument,
    ThroughputFlag,
    make_plan,
    run_bench,
)
from tradewind.cli.bench.bench_run import BenchPlan, Workload
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import CommandApp, JsonFlag, with_flags
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_size
from tradewind.client.api_errors import ConsumerNotFoundError, StreamNotFoundError
from tradewind.client.core.nuid import Nuid
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.jetstream import JetStream
    from tradewind.client.streams.consumers import Consumer
    from tradewind.client.streams.setting_types import StreamSettings

app = CommandApp("Streams")
pub_app = CommandApp("Publish to a stream")
get_app = CommandApp("Read messages without a consumer")
app.add("pub", pub_app)
app.add("get", get_app)

DEFAULT_STREAM: Final = "benchstream"
DEFAULT_CONSUMER: Final = "nats-bench"
BATCH_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """The stream of a benchmark."""

    name: str
    create: bool = False
    purge: bool = False
    storage: str = "file"
    replicas: int = 1
    max_bytes: str = "1GB"
    dedup_window: str = "2m"
    subjects: tuple[str, ...] = ()
    allow_atomic: bool = False

    async def make(self, js: JetStream) -> None:
        """Have the stream as it is wanted."""
        streams = js.manager.streams
        if self.create:
            window_ns = parse_duration_ns(self.dedup_window, "--dedupwindow")
            settings: StreamSettings = {
                "subjects": list(self.subjects),
                "storage": StorageType(self.storage),
                "num_replicas": self.replicas,
                "max_bytes": parse_size(self.max_bytes, "--maxbytes"),
                "duplicate_window": window_ns / SECOND_NS,
                "allow_direct": True,
            }
            if self.allow_atomic:
                settings["allow_atomic"] = True
            try:
                await streams.info(self.name)
            except StreamNotFoundError:
                await streams.add(StreamConfig(name=self.name), **settings)
            else:
                settings.pop("storage")
                await streams.update(self.name, **settings)
        await self._check(js)
        if self.purge:
            await streams.purge(self.name)

    async def _check(self, js: JetStream) -> None:
        try:
            await js.manager.streams.info(self.name)
        except StreamNotFoundError:
            raise CommandError(
                f"stream {self.name!r} does not exist",
                "create it: tradewind bench js pub async SUBJECT --create",
            ) from None


@dataclass(frozen=True)
class TargetFlags:
    """Flags of all benchmarks that publish into a stream: which one, and on which subjects."""

    stream: StreamFlag = DEFAULT_STREAM
    create: CreateFlag = False
    purge: PurgeFlag = False
    storage: StorageFlag = "file"
    replicas: ReplicasFlag = 1
    maxbytes: MaxBytesFlag = "1GB"
    multisubject: MultiFlag = False
    multisubjectmax: MultiMaxFlag = 100_000

    def subjects(self, subject: str) -> work.Subjects:
        """The subjects to publish on: `subject`, or with `multisubject` many below it."""
        return work.Subjects(subject, self.multisubject, self.multisubjectmax)

    def plan(self, subjects: work.Subjects, **more: Any) -> StreamPlan:
        """The stream."""
        return StreamPlan(
            name=self.stream,
            create=self.create,
            purge=self.purge,
            storage=self.storage,
            replicas=self.replicas,
            max_bytes=self.maxbytes,
            subjects=(subjects.filter,),
            **more,
        )


def _check_batch(batch: int) -> None:
    if not 1 <= batch <= BATCH_MAX:
        raise CommandError(f"--batch: 1 to {BATCH_MAX:,}, not {batch}", exit_code=EXIT_USAGE)


def _js_publish(
    kind: str,
    subject: str,
    plan: BenchPlan,
    stream: StreamPlan,
    output: Output,
    *,
    subjects: work.Subjects,
    batch: int,
    dedup: bool,
) -> None:
    _check_batch(batch)
    ids = Nuid().next() if dedup else ""

    async def prepare(connections: list[Connection]) -> list[Workload]:
        await stream.make(connections[0].jetstream())
        made = []
        for each in connections:
            js = each.jetstream(publish_window=batch)
            if kind == "sync":
                made.append(work.publish_sync(js, subjects, ids=ids))
            elif kind == "async":
                made.append(work.publish_async(js, subjects, ids=ids))
            else:
                made.append(work.publish_batches(js, subjects, batch))
        return made

    titles = {"sync": "synchronous", "async": "asynchronous", "atomic": "atomic batch"}
    title = f"JetStream {titles[kind]} publisher"
    details = {"subject": subject, "stream": stream.name, "batch": batch}
    run_bench(Bench(title=title, plan=plan, details=details, output=output), prepare)


@pub_app.command("sync")
@with_flags(TargetFlags)
def js_publish_sync(
    subject: SubjectArgument,
    msgs: MsgsFlag = 10_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    throughput: ThroughputFlag = 0.0,
    sleep: SleepFlag = "",
    dedup: DedupFlag = False,
    dedupwindow: DedupWindowFlag = "2m",
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
    *,
    flags: TargetFlags,
) -> None:
    """Publish to a stream, waiting for each acknowledgement."""
    subjects = flags.subjects(subject)
    kept = flags.plan(subjects, dedup_window=dedupwindow)
    plan = make_plan(
        msgs=msgs, size=size, clients=clients, duration=duration, rate=throughput, sleep=sleep
    )
    output = Output(csv, json, progress)
    _js_publish("sync", subject, plan, kept, output, subjects=subjects, batch=1, dedup=dedup)


@pub_app.command("async")
@with_flags(TargetFlags)
def js_publish_async(
    subject: SubjectArgument,
    msgs: MsgsFlag = 100_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    throughput: ThroughputFlag = 0.0,
    sleep: SleepFlag = "",
    batch: BatchFlag = 500,
    dedup: DedupFlag = False,
    dedupwindow: DedupWindowFlag = "2m",
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
    *,
    flags: TargetFlags,
) -> None:
    """Publish to a stream with up to --batch messages awaiting acknowledgement."""
    subjects = flags.subjects(subject)
    kept = flags.plan(subjects, dedup_window=dedupwindow)
    plan = make_plan(
        msgs=msgs, size=size, clients=clients, duration=duration, rate=throughput, sleep=sleep
    )
    output = Output(csv, json, progress)
    _js_publish("async", subject, plan, kept, output, subjects=subjects, batch=batch, dedup=dedup)


@pub_app.command("atomic", aliases=("batch",))
@with_flags(TargetFlags)
def js_publish_atomic(
    subject: SubjectArgument,
    msgs: MsgsFlag = 100_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    batch: BatchFlag = 500,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
    *,
    flags: TargetFlags,
) -> None:
    """Publish to a stream in atomic batches."""
    subjects = flags.subjects(subject)
    kept = flags.plan(subjects, allow_atomic=True)
    plan = make_plan(msgs=msgs, size=size, clients=clients, duration=duration)
    output = Output(csv, json, progress)
    _js_publish("atomic", subject, plan, kept, output, subjects=subjects, batch=batch, dedup=False)


# ------------------------------------------------------------------ reading


async def _consumer(js: JetStream, stream: str, name: str, acks: str) -> Consumer:
    """The consumer of a benchmark; the one with the default name is recreated."""
    consumers = js.manager.consumers
    if name == DEFAULT_CONSUMER:
        with suppress(ConsumerNotFoundError):
            await consumers.delete(stream, name)
    try:
        return await js.consumers.get(stream, name)
    except ConsumerNotFoundError:
        await consumers.add(
            stream, durable_name=name, ack_policy=AckPolicy(acks), max_ack_pending=-1
        )
        return await js.consumers.get(stream, name)


def _read(
    title: str,
    plan: BenchPlan,
    output: Output,
    stream: StreamPlan,
    consumer: tuple[str, str],
    make: Callable[[Consumer], Workload],
) -> None:
    """A benchmark of readers that share a consumer."""
    name, acks = consumer

    async def prepare(connections: list[Connection]) -> list[Workload]:
        js = connections[0].jetstream()
        await stream.make(js)
        shared = await _consumer(js, stream.name, name, acks)
        pending = shared.cached_info.num_pending
        if not plan.duration_seconds and pending < plan.messages:
            raise CommandError(
                f"stream {stream.name!r} has {pending:,} messages for consumer {name!r}, not "
                f"{plan.messages:,}",
                f"read those:    --msgs {pending}",
                "or add more:   tradewind bench js pub async SUBJECT --create",
            )
        return [
            make(await each.jetstream().consumers.get(stream.name, name)) for each in connections
        ]

    details = {"stream": stream.name, "consumer": name, "acks": acks}
    run_bench(Bench(title=title, plan=plan, details=details, output=output), prepare)


@app.command("fetch")
def js_fetch(
    msgs: MsgsFlag = 100_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    batch: BatchFlag = 500,
    stream: StreamFlag = DEFAULT_STREAM,
    consumer: ConsumerFlag = DEFAULT_CONSUMER,
    acks: AcksFlag = "explicit",
    doubleack: DoubleAckFlag = False,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Read from a consumer, one batch at a time."""
    plan = make_plan(msgs=msgs, size=size, clients=clients, duration=duration)
    settle = work.settler(acks, twice=doubleack)
    output = Output(csv, json, progress)
    _check_batch(batch)
    _read(
        "JetStream fetcher",
        plan,
        output,
        StreamPlan(name=stream),
        (consumer, acks),
        lambda shared: work.fetch(shared, batch, settle),
    )


@app.command("consume")
def js_consume(
    msgs: MsgsFlag = 100_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    batch: BatchFlag = 500,
    stream: StreamFlag = DEFAULT_STREAM,
    consumer: ConsumerFlag = DEFAULT_CONSUMER,
    acks: AcksFlag = "explicit",
    doubleack: DoubleAckFlag = False,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Read from a consumer continuously, with --batch messages in flight."""
    plan = make_plan(msgs=msgs, size=size, clients=clients, duration=duration)
    settle = work.settler(acks, twice=doubleack)
    output = Output(csv, json, progress)
    _check_batch(batch)
    _read(
        "JetStream consumer",
        plan,
        output,
        StreamPlan(name=stream),
        (consumer, acks),
        lambda shared: work.consume(lambda: shared.consume(batch), settle),
    )


@app.command("ordered")
def js_ordered(
    msgs: MsgsFlag = 100_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    batch: BatchFlag = 500,
    stream: StreamFlag = DEFAULT_STREAM,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Read a stream with an ordered consumer; each client reads all messages."""
    _check_batch(batch)
    plan = make_plan(msgs=msgs * max(clients, 1), size=size, clients=clients, duration=duration)
    settle = work.settler("none")

    async def prepare(connections: list[Connection]) -> list[Workload]:
        await _check_count(connections[0].jetstream(), stream, msgs, plan)

        def workload(js: JetStream) -> Workload:
            return work.consume(lambda: js.consumers.ordered(stream).consume(batch), settle)

        return [workload(each.jetstream()) for each in connections]

    output = Output(csv, json, progress)
    title = "JetStream ordered consumer"
    run_bench(Bench(title=title, plan=plan, details={"stream": stream}, output=output), prepare)


async def _check_count(js: JetStream, stream: str, msgs: int, plan: BenchPlan) -> tuple[int, int]:
    """The first and last message of a stream, which has as many as are to be read."""
    await StreamPlan(name=stream).make(js)
    state = (await js.manager.streams.info(stream)).state
    if not state.messages or (not plan.duration_seconds and state.messages < msgs):
        raise CommandError(
            f"stream {stream!r} has {state.messages:,} messages, not {msgs:,}",
            f"read those:    --msgs {state.messages}",
            "or add more:   tradewind bench js pub async SUBJECT --create",
        )
    return state.first_seq, state.last_seq


@get_app.command("sync")
def js_get_sync(
    msgs: MsgsFlag = 10_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    stream: StreamFlag = DEFAULT_STREAM,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Get messages by sequence, one at a time."""
    plan = make_plan(msgs=msgs, size=size, clients=clients, duration=duration)

    async def prepare(connections: list[Connection]) -> list[Workload]:
        first, last = await _check_count(connections[0].jetstream(), stream, 1, plan)
        return [work.get_direct(each.jetstream(), stream, first, last) for each in connections]

    output = Output(csv, json, progress)
    title = "JetStream synchronous getter"
    run_bench(Bench(title=title, plan=plan, details={"stream": stream}, output=output), prepare)


@get_app.command("batch")
def js_get_batch(
    msgs: MsgsFlag = 100_000,
    size: SizeFlag = "128",
    clients: ClientsFlag = 1,
    duration: DurationFlag = "",
    batch: BatchFlag = 500,
    stream: StreamFlag = DEFAULT_STREAM,
    csv: CsvFlag = "",
    progress: ProgressFlag = True,
    json: JsonFlag = False,
) -> None:
    """Get messages in batches without a consumer (direct get)."""
    plan = make_plan(msgs=msgs, size=size, clients=clients, duration=duration)
    _check_batch(batch)

    async def prepare(connections: list[Connection]) -> list[Workload]:
        first, _ = await _check_count(connections[0].jetstream(), stream, 1, plan)
        return [
            work.get_batches(each.jetstream(), stream, ">", first, batch) for each in connections
        ]

    output = Output(csv, json, progress)
    title = "JetStream batch getter"
    run_bench(Bench(title=title, plan=plan, details={"stream": stream}, output=output), prepare)
