"""What is measured of JetStream: publishing, reading, many consumers and streams, memory, latency.

Both servers get the same promise to keep: `RELAXED` syncs every two minutes, the default of
nats-server, and `DURABLE` before every acknowledgement. Never starts a server: the runner does.
"""

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.figures import percentile
from benchmarks.measure import QUICK_PART, WARM_UP_PART, Result, Scale, Workload, throughput
from benchmarks.procfs import Meter, session_usage
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi

if TYPE_CHECKING:  # compiled by benchmarks.build before a workload runs, not yet when this loads
    from benchmarks.loadgen.stream import Publisher, Reader

RELAXED = 'jetstream { store_dir: "{folder}/store", sync_interval: "2m" }\n'
DURABLE = 'jetstream { store_dir: "{folder}/store", sync_interval: always }\n'
STREAM = "BENCH"
SUBJECT_COUNT = 16
WINDOW = 4000  # acknowledgements outstanding
FILL_STEP = 500_000  # what is stored before a measurement, per run of the generator
PULL_BATCH = 500
DURABLE_S_MAX = 5.0  # a server that waits for the disk is not given more time
MIXED_S_MAX = 10.0  # nor is one that has a replay to serve
CREATE_COUNT = 5  # consumers of each kind; their median is the figure
WAITING_BATCH = 10_000
DUPLICATES_NS = 600_000_000_000
REPLAY_QUICK_PART = 50
LARGE_QUICK_PART = 500
CROWD_QUICK_PART = 50


@contextlib.contextmanager
def publisher(
    server: Server, payload_size: int, subject_count: int, stream_count: int = 1
) -> "Iterator[Publisher]":
    """A connection that publishes; it is closed at the end."""
    from benchmarks.loadgen.stream import Publisher

    load = Publisher(
        server.host.encode(),
        server.port,
        stream=STREAM.encode(),
        payload_size=payload_size,
        subject_count=subject_count,
        stream_count=stream_count,
    )
    try:
        yield load
    finally:
        load.close()


@contextlib.contextmanager
def reader(
    server: Server, payload_size: int, subject_count: int, subject: str = "_INBOX.reader.*"
) -> "Iterator[Reader]":
    """A connection that gets messages on a subject; it is closed at the end."""
    from benchmarks.loadgen.stream import Reader

    load = Reader(
        server.host.encode(), server.port, payload_size=payload_size, subject_count=subject_count
    )
    try:
        load.subscribe(subject.encode())
        yield load
    finally:
        load.close()


def create_stream(api: StreamApi, name: str = STREAM, **settings: Any) -> None:
    """A stream on files for `bench.>` unless the settings say otherwise."""
    config = {"name": name, "subjects": ["bench.>"], "storage": "file", "retention": "limits"}
    # nats-server may find the files again that it is still removing.
    while api.request(f"STREAM.CREATE.{name}", {**config, **settings})["state"]["last_seq"]:
        api.request(f"STREAM.DELETE.{name}")


def consumer_request(name: str, **settings: Any) -> tuple[str, dict[str, Any]]:
    """The request for a consumer of all messages without acknowledgements, unless set."""
    config = {"name": name, "deliver_policy": "all", "ack_policy": "none", **settings}
    return f"CONSUMER.CREATE.{STREAM}.{name}", {"stream_name": STREAM, "config": config}


def fill(load: "Publisher", count: int) -> None:
    """Stores messages in steps, so that a slow server is not taken for one that hangs."""
    while count:
        count -= load.publish(min(count, FILL_STEP), window=WINDOW)


def publishing(
    *,
    count: int,
    payload_size: int = 128,
    subject_count: int = SUBJECT_COUNT,
    ids: bool = False,
    window: int = WINDOW,
    time_limit_s: float = 0.0,
    metadata: Mapping[str, str] | None = None,
) -> Callable[[Server, Scale], Result]:
    """Publishes and waits for acknowledgements; what counts are acknowledged messages."""

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        total = scale.count(count, REPLAY_QUICK_PART)
        with StreamApi(server) as api:
            create_stream(api, metadata=dict(metadata or {}))
        with publisher(server, payload_size, subject_count) as load:
            limit_s = time_limit_s / QUICK_PART if scale.quick else time_limit_s
            # What is outstanding when the time is over must still be answered, on a slow disk too.
            open_max = scale.count(window) if limit_s and window > 1 else window
            load.publish(max(total // WARM_UP_PART, 1), window=open_max, time_limit_s=limit_s)
            with Meter(server.session) as meter:
                done = load.publish(total, window=open_max, ids=ids, time_limit_s=limit_s)
            latencies_ns = sorted(load.latencies_ns())
        throughput(result, meter, done, server.session)
        if window == 1:
            result.figures["p50_us"] = percentile(latencies_ns, 0.50) / 1000
            result.figures["p99_us"] = percentile(latencies_ns, 0.99) / 1000
        return result

    return run


def pulling(*, count: int, acknowledge: bool) -> Callable[[Server, Scale], Result]:
    """Fetches stored messages in batches, one request at a time."""

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        total = scale.count(count, REPLAY_QUICK_PART)
        with StreamApi(server) as api, publisher(server, 128, SUBJECT_COUNT) as load:
            create_stream(api)
            fill(load, total)
            policy = "explicit" if acknowledge else "none"
            api.request(*consumer_request("C", durable_name="C", ack_policy=policy))
            with (
                reader(server, 128, SUBJECT_COUNT) as receiver,
                Meter(server.session) as meter,
            ):
                receiver.pull(
                    f"{STREAM}.C".encode(),
                    total,
                    batch=PULL_BATCH,
                    outstanding=1,
                    acknowledge=acknowledge,
                )
            if acknowledge:
                check_settled(api, "C", total)
        throughput(result, meter, total, server.session)
        return result

    return run


def check_settled(api: StreamApi, consumer: str, count: int) -> None:
    """LoadError unless the consumer has taken every acknowledgement."""
    from benchmarks.loadgen.link import LoadError

    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        info = api.request(f"CONSUMER.INFO.{STREAM}.{consumer}")
        if info["ack_floor"]["stream_seq"] == count and info["num_ack_pending"] == 0:
            return
    raise LoadError(f"acknowledgements are missing: floor {info['ack_floor']} of {count}")


def push_replay(server: Server, scale: Scale) -> Result:
    """A push consumer without acknowledgements sends everything that is stored."""
    result = Result()
    total = scale.count(500_000, REPLAY_QUICK_PART)
    with StreamApi(server) as api, publisher(server, 128, SUBJECT_COUNT) as load:
        create_stream(api)
        fill(load, total)
        with (
            reader(server, 128, SUBJECT_COUNT, "deliver.x") as receiver,
            Meter(server.session) as meter,
        ):
            api.request(*consumer_request("P", deliver_subject="deliver.x"))
            receiver.receive(total)
    throughput(result, meter, total, server.session)
    return result


def pull_filtered(
    server: Server, api: StreamApi, name: str, total: int, subject_count: int, **settings: Any
) -> Meter:
    """Makes a consumer and reads all that it has, `total` messages; both are measured."""
    chosen = str(settings.get("filter_subject", "")).rpartition(".")[2]
    first, step = (int(chosen), subject_count) if chosen.isdecimal() else (0, 1)
    with reader(server, 16, subject_count) as receiver:
        receiver.expect(first=first, step=step)
        with Meter(server.session) as meter:
            api.request(*consumer_request(name, **settings))
            receiver.pull(
                f"{STREAM}.{name}".encode(), total, batch=1000, outstanding=2, acknowledge=False
            )
    return meter


def sparse_filter(server: Server, scale: Scale) -> Result:
    """A filter for one of 1,000 subjects in 5 M messages: what is passed over costs, too."""
    result = Result()
    subject_count = 1000
    total = scale.count(5_000_000, LARGE_QUICK_PART)
    with StreamApi(server) as api, publisher(server, 16, subject_count) as load:
        create_stream(api)
        fill(load, total)
        matching = total // subject_count
        meter = pull_filtered(
            server, api, "ONE", matching, subject_count, filter_subject="bench.500"
        )
    throughput(result, meter, matching, server.session)
    result.figures = {
        "filtered_ms": meter.wall_s * 1000,
        "filtered_cpu_ms": meter.server_cpu_s * 1000,
    }
    return result


def full_filter(server: Server, scale: Scale) -> Result:
    """A filter that matches everything, beside no filter at all."""
    result = Result()
    total = scale.count(1_000_000, LARGE_QUICK_PART)
    with StreamApi(server) as api, publisher(server, 16, 1000) as load:
        create_stream(api, subjects=["bench.*", "other.>"])
        fill(load, total)
        pull_filtered(server, api, "WARM", total, 1000)
        none = pull_filtered(server, api, "NONE", total, 1000)
        every = pull_filtered(server, api, "ALL", total, 1000, filter_subject="bench.*")
    throughput(result, every, total, server.session)
    result.figures = {
        "unfiltered_per_cpu": total / none.server_cpu_s,
        "filter_all_per_cpu": total / every.server_cpu_s,
        "filter_growth": every.server_cpu_s / none.server_cpu_s,
    }
    return result


def creating_consumers(server: Server, scale: Scale) -> Result:
    """How long it takes to create a consumer on 10 M messages of 1,000 subjects."""
    result = Result()
    total = scale.count(10_000_000, LARGE_QUICK_PART)
    kinds: dict[str, dict[str, Any]] = {
        "create_ms": {},
        "create_one_ms": {"filter_subject": "bench.500"},
        "create_wildcard_ms": {"filter_subject": "bench.*"},
    }
    with StreamApi(server) as api, publisher(server, 16, 1000) as load:
        create_stream(api, subjects=["bench.*", "other.>"])
        fill(load, total)
        for key, settings in kinds.items():
            times_ms = []
            for number in range(CREATE_COUNT):
                request = consumer_request(f"{key}-{number}", durable_name=f"{key}-{number}")
                request[1]["config"].update(settings)
                started = time.perf_counter()
                api.request(*request)
                times_ms.append((time.perf_counter() - started) * 1000)
            result.figures[key] = statistics.median(times_ms)
    return result


def many_consumers(server: Server, scale: Scale) -> Result:
    """1,000 pull consumers with a subject each: to make, to have, and to serve all at once."""
    result = Result()
    count = scale.count(1000, CROWD_QUICK_PART)
    published = scale.count(20_000, CROWD_QUICK_PART) // count * count
    with StreamApi(server) as api, publisher(server, 128, count) as load:
        create_stream(api)
        load.publish(count, window=WINDOW)
        before = session_usage(server.session)
        requests = [
            consumer_request(f"C{k}", durable_name=f"C{k}", filter_subject=f"bench.{k}")
            for k in range(count)
        ]
        with Meter(server.session) as creating:
            api.request_all(requests)
        after = session_usage(server.session)
        with Meter(server.session) as idle:
            load.publish(published, window=WINDOW)
        with reader(server, 128, count) as receiver:
            receiver.expect(by_subject=True)
            body = f'{{"batch":{WAITING_BATCH},"expires":600000000000}}'
            for k in range(count):
                subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.C{k} _INBOX.reader.{k}"
                receiver.send(f"PUB {subject} {len(body)}\r\n{body}\r\n".encode())
            receiver.receive(count + published)
            with Meter(server.session) as serving, background(receiver, published):
                load.publish(published, window=WINDOW)
    throughput(result, serving, published, server.session)
    result.figures = {
        "created_per_cpu": count / creating.server_cpu_s,
        "created_kib": (after.rss_kib - before.rss_kib) / count,
        "published_per_cpu": published / idle.server_cpu_s,
        "delivered_per_cpu": published / serving.server_cpu_s,
    }
    return result


@contextlib.contextmanager
def background(receiver: "Reader", count: int) -> Iterator[None]:
    """Receives in another thread; the block ends when `count` messages are there."""
    failures: list[Exception] = []

    def receive() -> None:
        try:
            receiver.receive(count)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        yield
    except BaseException:
        receiver.stop()
        raise
    finally:
        thread.join()
    if failures:
        raise failures[0]


def many_streams(server: Server, scale: Scale) -> Result:
    """10,000 streams with a subject each: to make, to have, and to publish to all in turn."""
    result = Result()
    count = scale.count(10_000, LARGE_QUICK_PART)
    published = scale.count(200_000, CROWD_QUICK_PART) // count * count
    requests = [
        (
            f"STREAM.CREATE.S{k}",
            {"name": f"S{k}", "subjects": [f"bench.{k}"], "storage": "file"},
        )
        for k in range(count)
    ]
    with StreamApi(server) as api, publisher(server, 128, count, count) as load:
        before = session_usage(server.session)
        with Meter(server.session) as creating:
            api.request_all(requests)
        after = session_usage(server.session)
        load.publish(count, window=WINDOW)
        with Meter(server.session) as meter:
            load.publish(published, window=WINDOW)
    throughput(result, meter, published, server.session)
    result.figures = {
        "created_per_cpu": count / creating.server_cpu_s,
        "created_kib": (after.rss_kib - before.rss_kib) / count,
        "published_per_cpu": published / meter.server_cpu_s,
    }
    return result


def many_ids(server: Server, scale: Scale) -> Result:
    """A table of 1 M message ids: to fill it, and to find every one of them again."""
    result = Result()
    total = scale.count(1_000_000, LARGE_QUICK_PART)
    with StreamApi(server) as api, publisher(server, 16, SUBJECT_COUNT) as load:
        create_stream(api, duplicate_window=DUPLICATES_NS)
        before = session_usage(server.session)
        with Meter(server.session) as filling:
            load.publish(total, window=WINDOW, ids=True)
        after = session_usage(server.session)
        with Meter(server.session) as meter:
            load.repeat(0, total, window=WINDOW)
    throughput(result, meter, total, server.session)
    result.figures = {
        "published_per_cpu": total / filling.server_cpu_s,
        "duplicates_per_cpu": total / meter.server_cpu_s,
        "id_bytes": (after.anonymous_kib - before.anonymous_kib) * 1024 / total,
    }
    return result


def memory(server: Server, scale: Scale) -> Result:
    """The memory of the server after 1 M messages of 128 B were stored and read once."""
    result = Result()
    total = scale.count(1_000_000, LARGE_QUICK_PART)
    with StreamApi(server) as api, publisher(server, 128, SUBJECT_COUNT) as load:
        create_stream(api)
        with Meter(server.session) as meter:
            fill(load, total)
        api.request(*consumer_request("C"))
        with reader(server, 128, SUBJECT_COUNT) as receiver:
            receiver.pull(
                f"{STREAM}.C".encode(), total, batch=1000, outstanding=2, acknowledge=False
            )
        usage = session_usage(server.session)
    throughput(result, meter, total, server.session)
    result.figures = {
        "rss_mib": usage.rss_kib / 1024,
        "anonymous_mib": usage.anonymous_kib / 1024,
    }
    return result


def mixed(server: Server, scale: Scale) -> Result:
    """One message at a time is published while another connection replays the stream, again and
    again; who starves the replay shows it in its rate.
    """
    result = Result()
    stored = scale.count(500_000, REPLAY_QUICK_PART)
    published = scale.count(20_000, REPLAY_QUICK_PART)
    with StreamApi(server) as api, publisher(server, 128, SUBJECT_COUNT) as load:
        create_stream(api)
        fill(load, stored)
        replay = Replay(server, stored)
        replay.start()
        try:
            replay.started.wait()
            with Meter(server.session) as meter:
                before = replay.received
                done = load.publish(published, window=1, time_limit_s=MIXED_S_MAX)
                replayed = replay.received - before
        finally:
            replay.stop()
        latencies_ns = sorted(load.latencies_ns())
        create_stream(api, "CHECK", subjects=["check.>"])  # the server still answers
    if replay.failure is not None:
        raise replay.failure
    throughput(result, meter, done, server.session)
    result.figures = {
        "p50_us": percentile(latencies_ns, 0.50) / 1000,
        "p99_us": percentile(latencies_ns, 0.99) / 1000,
        "replayed_per_s": replayed / meter.wall_s,
    }
    return result


class Replay(threading.Thread):
    """Push consumers, one after the other, each read up to `count` messages, until stopped."""

    def __init__(self, server: Server, count: int) -> None:
        super().__init__()
        self.started = threading.Event()
        self.failure: Exception | None = None
        self._server = server
        self._count = count
        self._done = 0
        self._receiver: Reader | None = None
        self._stopping = False

    @property
    def received(self) -> int:
        """Messages of all replays so far."""
        receiver = self._receiver
        return self._done + (receiver.received if receiver is not None else 0)

    def run(self) -> None:
        """The thread."""
        number = 0
        try:
            with StreamApi(self._server) as api:
                while not self._stopping:
                    number += 1
                    self._replay(api, number)
        except Exception as error:
            self.failure = error
        finally:
            self.started.set()

    def _replay(self, api: StreamApi, number: int) -> None:
        subject = f"deliver.r{number}"
        with reader(self._server, 128, SUBJECT_COUNT, subject) as receiver:
            self._receiver = receiver
            if self._stopping:
                return
            api.request(*consumer_request(f"R{number}", deliver_subject=subject))
            self.started.set()
            receiver.receive(self._count)
            self._done, self._receiver = self._done + receiver.received, None

    def stop(self) -> None:
        """Ends the thread, in the middle of a replay if need be."""
        self._stopping = True
        while self.is_alive():
            if (receiver := self._receiver) is not None:
                receiver.stop()
            self.join(0.01)


STREAM_WORKLOADS = (
    Workload("js-publish-128", "to a stream, 128 B", publishing(count=500_000), RELAXED),
    Workload(
        "js-publish-1k",
        "to a stream, 1 KiB",
        publishing(count=200_000, payload_size=1024),
        RELAXED,
    ),
    Workload("js-publish-id", "with message ids", publishing(count=300_000, ids=True), RELAXED),
    Workload(
        "js-publish-100k",
        "to 100,000 subjects",
        publishing(count=300_000, subject_count=100_000),
        RELAXED,
    ),
    Workload("js-sync", "one message at a time", publishing(count=20_000, window=1), RELAXED),
    Workload("js-pull-none", "fetch, ack none", pulling(count=500_000, acknowledge=False), RELAXED),
    Workload(
        "js-pull-explicit", "fetch, ack each", pulling(count=500_000, acknowledge=True), RELAXED
    ),
    Workload("js-push", "push replay, ack none", push_replay, RELAXED),
    Workload(
        "js-fsync-128",
        "synced before acks, 128 B",
        publishing(count=300_000, time_limit_s=DURABLE_S_MAX),
        DURABLE,
    ),
    Workload(
        "js-fsync-1k",
        "synced before acks, 1 KiB",
        publishing(count=200_000, payload_size=1024, time_limit_s=DURABLE_S_MAX),
        DURABLE,
    ),
    Workload(
        "js-fsync-sync",
        "synced, one message at a time",
        publishing(count=20_000, window=1, time_limit_s=DURABLE_S_MAX),
        DURABLE,
    ),
    Workload("js-filter-one", "1 of 1,000 subjects in 5 M messages", sparse_filter, RELAXED),
    Workload("js-filter-all", "a filter that matches all, 1 M messages", full_filter, RELAXED),
    Workload("js-create", "a consumer on 10 M messages", creating_consumers, RELAXED),
    Workload("js-consumers-1k", "1,000 consumers on a stream", many_consumers, RELAXED),
    Workload("js-streams-10k", "10,000 streams", many_streams, RELAXED),
    Workload("js-ids-1m", "1 M message ids", many_ids, RELAXED),
    Workload("js-memory", "memory after 1 M messages", memory, RELAXED),
    Workload("js-mixed", "publish during a replay", mixed, RELAXED),
)
