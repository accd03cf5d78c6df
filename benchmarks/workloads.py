"""What is measured: every workload as a function from a running server to its figures.

Those of core messaging are here, those of streams in `stream_workloads`.

Each opens its connections and warms up first, and measures only the part between. Never starts a
server and never compares two: the runner does.
"""

import contextlib
import resource
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.batch_workloads import BATCH_WORKLOADS
from benchmarks.chain_workloads import CHAIN_WORKLOADS
from benchmarks.direct_workloads import DIRECT_WORKLOADS
from benchmarks.durable_workloads import DURABLE_WORKLOADS
from benchmarks.encrypted_workloads import ENCRYPTED_WORKLOADS
from benchmarks.feature_workloads import FEATURE_WORKLOADS
from benchmarks.figures import percentile
from benchmarks.leaf_workloads import LEAF_WORKLOADS
from benchmarks.measure import WARM_UP_PART, Result, Scale, Workload, throughput
from benchmarks.procfs import Meter, session_usage
from benchmarks.replica_workloads import REPLICA_WORKLOADS
from benchmarks.request_workloads import REQUEST_WORKLOADS
from benchmarks.schedule_workloads import SCHEDULE_WORKLOADS
from benchmarks.secure_workloads import SECURE_WORKLOADS
from benchmarks.servers import Server
from benchmarks.start_workloads import START_WORKLOADS
from benchmarks.stream_workloads import STREAM_WORKLOADS
from benchmarks.waiting_workloads import WAITING_WORKLOADS

if TYPE_CHECKING:  # compiled by benchmarks.build before a workload runs, not yet when this loads
    from benchmarks.loadgen.flow import Flow

INFLIGHT_MAX = 20_000
SUBJECT_COUNT = 16
# Subscribers, and messages of 16 B, 128 B and 1 KiB that take about a second
CLIENT_COUNTS = {
    1: (4_000_000, 2_000_000, 500_000),
    4: (2_000_000, 1_000_000, 200_000),
    16: (500_000, 300_000, 60_000),
}
# An account that exports what another imports, each with a user of its name.
SHARING_USERS = (b"exporter", b"importer")
SHARING = """
accounts {
  E {
    users: [ {user: exporter, password: exporter} ]
    exports: [ {service: "service.>"}, {stream: "core.>"} ]
  }
  I {
    users: [ {user: importer, password: importer} ]
    imports: [
      {service: {account: E, subject: "service.>"}}, {stream: {account: E, subject: "core.>"}}
    ]
  }
}
"""
SPARE_FILES = 256  # of the open-files limit, for what is not a benchmark connection


def subscriptions(filters: list[bytes], group: bytes = b"") -> bytes:
    """The SUB lines for these filters, with the identifiers 1, 2, 3 and so on."""
    middle = b" " + group if group else b""
    return b"".join(
        b"SUB %b%b %d\r\n" % (name, middle, identifier)
        for identifier, name in enumerate(filters, 1)
    )


@contextlib.contextmanager
def open_flow(
    server: Server,
    publishers: int,
    subscribers: int,
    payload_size: int,
    *,
    queue: bool = False,
    users: tuple[bytes, bytes] = (b"", b""),
) -> "Iterator[Flow]":
    """Opens the connections of a publish/subscribe load and closes them at the end."""
    from benchmarks.loadgen.flow import Flow

    flow = Flow(
        server.host.encode(),
        server.port,
        publishers=publishers,
        subscribers=subscribers,
        payload_size=payload_size,
        inflight_max=INFLIGHT_MAX,
        queue=queue,
        publisher=users[0],
        subscriber=users[1],
    )
    try:
        yield flow
    finally:
        flow.close()


def measure_flow(server: Server, flow: "Flow", count: int) -> Meter:
    """Warms up, then measures `count` published messages until the last has arrived."""
    flow.run(max(count // WARM_UP_PART, 1000))
    with Meter(server.session) as meter:
        flow.run(count)
    flow.finish()
    return meter


def pub_sub(
    *,
    count: int,
    payload_size: int = 128,
    publishers: int = 1,
    subscribers: int = 1,
    queue: bool = False,
    users: tuple[bytes, bytes] = (b"", b""),
) -> Callable[[Server, Scale], Result]:
    """Publishers to subscribers, who log in as `users`; what counts are deliveries, or publishes if
    nobody subscribes.
    """

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        published = scale.count(count) // publishers * publishers
        subjects = [b"core.%d" % index for index in range(SUBJECT_COUNT)]
        with open_flow(
            server, publishers, subscribers, payload_size, queue=queue, users=users
        ) as flow:
            flow.subscribe(subscriptions([b"core.>"], b"workers" if queue else b""))
            flow.set_subjects(subjects, delivered=subscribers > 0)
            meter = measure_flow(server, flow, published)
        fan = 1 if queue else max(subscribers, 1)
        throughput(result, meter, published * fan, server.session)
        return result

    return run


def independent_clients(
    *, count: int, payload_size: int, subscribers: int
) -> Callable[[Server, Scale], Result]:
    """A publisher and subscribers that know nothing of each other, in threads of their own."""

    def run(server: Server, scale: Scale) -> Result:
        from benchmarks.loadgen.clients import Clients

        result = Result()
        total = scale.count(count)
        clients = Clients(
            server.host.encode(), server.port, subscribers=subscribers, payload_size=payload_size
        )
        try:
            with ThreadPoolExecutor(subscribers) as threads:

                def send(part: int) -> None:
                    receiving = [
                        threads.submit(clients.receive, index, part) for index in range(subscribers)
                    ]
                    clients.publish(part)
                    for one in receiving:
                        one.result()

                send(max(total // WARM_UP_PART, 1000))
                with Meter(server.session) as meter:
                    send(total)
            clients.finish()
        finally:
            clients.close()
        throughput(result, meter, total * subscribers, server.session)
        return result

    return run


def request_reply(
    *, count: int, requesters: int, outstanding: int, users: tuple[bytes, bytes] = (b"", b"")
) -> Callable[..., Result]:
    """Round trips through one responder; what counts are requests with their replies.

    Responder and requesters log in as `users`.
    """

    def run(server: Server, scale: Scale) -> Result:
        from benchmarks.loadgen.request import RequestReply

        result = Result()
        total = scale.count(count) // requesters * requesters
        load = RequestReply(
            server.host.encode(),
            server.port,
            requesters=requesters,
            outstanding=outstanding,
            payload_size=128,
            responder=users[0],
            requester=users[1],
        )
        try:
            load.run(max(total // WARM_UP_PART, requesters))
            with Meter(server.session) as meter:
                latencies_ns = load.run(total)
            load.finish()
        finally:
            load.close()
        throughput(result, meter, total, server.session)
        ordered = sorted(latencies_ns)
        result.figures["p50_us"] = percentile(ordered, 0.50) / 1000
        result.figures["p99_us"] = percentile(ordered, 0.99) / 1000
        return result

    return run


def many_filters(count: int) -> tuple[list[bytes], list[bytes]]:
    """`count` filters, 3 in 4 with wildcards, and for each a subject that no other matches."""
    filters: list[bytes] = []
    subjects: list[bytes] = []
    for index in range(count):
        kind = index % 4
        filters.append(
            (b"load.a%d.x.y", b"load.a%d.*.y", b"load.a%d.>", b"load.*.b%d.y")[kind] % index
        )
        subjects.append((b"load.z.b%d.y" if kind == 3 else b"load.a%d.x.y") % index)
    return filters, subjects


def many_subscriptions(server: Server, scale: Scale) -> Result:
    """The price of 100,000 subscriptions: to make them, to match them, and to others.

    The same publisher and subscriber are measured alone and then among all the others; their
    subjects are as many as those of the matching load, so that caches help neither.
    """
    result = Result()
    total, count, subject_count = scale.count(100_000), scale.count(300_000), 10_000
    filters, matching = many_filters(total)
    stride = max(total // subject_count, 1) | 1  # odd, so that all four kinds take part
    published = [matching[index * stride % total] for index in range(subject_count)]
    with open_flow(server, 1, 1, 128) as pair, open_flow(server, 1, 1, 128) as crowd:
        pair.subscribe(subscriptions([b"one.>"]))
        pair.set_subjects([b"one.s%d" % i for i in range(subject_count)], delivered=True)
        alone = measure_flow(server, pair, count)
        lines = subscriptions(filters)
        before = session_usage(server.session)
        with Meter(server.session) as subscribing:
            crowd.subscribe(lines)
        after = session_usage(server.session)
        among = measure_flow(server, pair, count)
        crowd.set_subjects(published, delivered=True)
        match = measure_flow(server, crowd, count)
        crowd.set_subjects([b"load.n%d.x.z" % i for i in range(subject_count)], delivered=False)
        no_match = measure_flow(server, crowd, count)
    throughput(result, match, count, server.session)
    del result.figures["wall"], result.figures["per_cpu"]
    result.figures["subscribe_ms"] = subscribing.wall_s * 1000
    result.figures["subscription_bytes"] = (after.rss_kib - before.rss_kib) * 1024 / total
    for key, meter, done in (
        ("subscribe_per_cpu", subscribing, total),
        ("alone_per_cpu", alone, count),
        ("among_per_cpu", among, count),
        ("match_per_cpu", match, count),
        ("no_match_per_cpu", no_match, count),
    ):
        result.figures[key] = done / meter.server_cpu_s
    result.figures["growth"] = among.server_cpu_s / alone.server_cpu_s
    return result


def idle_connections(server: Server, scale: Scale) -> Result:
    """Connections that say nothing: what they cost to open, to keep, and to keep alive."""
    from benchmarks.loadgen.idle import IdleConnections

    result = Result()
    file_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    count = min(scale.count(10_000), file_limit - SPARE_FILES)
    hold_s = 1.0 if scale.quick else 5.0
    load = IdleConnections(server.host.encode(), server.port, count_max=count)
    try:
        before = session_usage(server.session)
        with Meter(server.session) as connecting:
            load.open(count, handshakes_max=64)
        load.hold(hold_s / 2)  # the server's own work after a connect is not idleness
        with Meter(server.session) as idle:
            load.hold(hold_s)
        after = session_usage(server.session)
    finally:
        load.close()
    throughput(result, connecting, count, server.session)
    del result.figures["wall"]
    result.figures["connect_s"] = connecting.wall_s
    result.figures["connects_per_cpu"] = result.figures.pop("per_cpu")
    result.figures["connection_kib"] = (after.rss_kib - before.rss_kib) / count
    result.figures["idle_cpu_ms"] = idle.server_cpu_s * 1000 / idle.wall_s
    return result


def starts(server: Server, scale: Scale) -> Result:
    """From exec to the first INFO, again and again; `server` itself has warmed the disk up."""
    walls, cpus = [], []
    for _ in range(scale.count(20)):
        with server.another() as fresh:
            walls.append(fresh.start_wall_s)
            cpus.append(fresh.start_cpu_s)
    return Result(
        {
            "start_ms": statistics.median(walls) * 1000,
            "start_cpu_ms": statistics.median(cpus) * 1000,
        },
        {"count": len(walls)},
    )


WORKLOADS = (
    Workload("pubsub-16", "1 to 1, 16 B", pub_sub(count=3_000_000, payload_size=16)),
    Workload("pubsub-128", "1 to 1, 128 B", pub_sub(count=2_000_000)),
    Workload("pubsub-1k", "1 to 1, 1 KiB", pub_sub(count=1_000_000, payload_size=1024)),
    Workload("fanout-8", "1 publisher to 8 subscribers", pub_sub(count=500_000, subscribers=8)),
    *(
        Workload(
            f"clients-{subscribers}-{name}",
            f"1 publisher to {subscribers} in threads of their own, {name} B",
            independent_clients(count=count, payload_size=size, subscribers=subscribers),
        )
        for subscribers, counts in CLIENT_COUNTS.items()
        for (name, size), count in zip(
            (("16", 16), ("128", 128), ("1k", 1024)), counts, strict=True
        )
    ),
    Workload("fanin-64", "64 publishers to 1 subscriber", pub_sub(count=2_000_000, publishers=64)),
    Workload(
        "queue-8",
        "1 publisher to a group of 8",
        pub_sub(count=1_500_000, subscribers=8, queue=True),
    ),
    Workload("publish-only", "nobody subscribes", pub_sub(count=5_000_000, subscribers=0)),
    Workload(
        "request-1",
        "1 client, 1 request outstanding",
        request_reply(count=40_000, requesters=1, outstanding=1),
    ),
    Workload(
        "request-32",
        "32 clients, 16 requests outstanding each",
        request_reply(count=256_000, requesters=32, outstanding=16),
    ),
    Workload(
        "pubsub-import",
        "1 to 1, 128 B, to another account",
        pub_sub(count=2_000_000, users=SHARING_USERS),
        SHARING,
    ),
    Workload(
        "request-import",
        "request-32 to a service of another account",
        request_reply(count=256_000, requesters=32, outstanding=16, users=SHARING_USERS),
        SHARING,
    ),
    Workload("subs-100k", "100,000 subscriptions, 3 in 4 wildcards", many_subscriptions),
    Workload("idle-10k", "10,000 idle connections", idle_connections),
    Workload("start", "from exec to the first INFO", starts),
    Workload(
        "start-js",
        "the same with JetStream on an empty folder",
        starts,
        'jetstream { store_dir: "{folder}" }\n',
    ),
    *STREAM_WORKLOADS,
    *DIRECT_WORKLOADS,
    *DURABLE_WORKLOADS,
    *START_WORKLOADS,
    *WAITING_WORKLOADS,
    *ENCRYPTED_WORKLOADS,
    *SECURE_WORKLOADS,
    *CHAIN_WORKLOADS,
    *FEATURE_WORKLOADS,
    *REPLICA_WORKLOADS,
    *LEAF_WORKLOADS,
    *BATCH_WORKLOADS,
    *SCHEDULE_WORKLOADS,
    *REQUEST_WORKLOADS,
)
