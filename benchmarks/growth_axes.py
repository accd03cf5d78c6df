"""What grows, and the operation that is measured while there is more and more of it.

Each axis prepares a server with a number of subjects, streams, consumers, deleted messages or
connections, and then measures the same operation: many outstanding for its CPU time, one at a time
for its latency. Never starts a server, and knows nothing of charts.
"""

import contextlib
import multiprocessing
import random
import resource
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks.procfs import Meter, session_usage
from benchmarks.secure_clients import CONNECT, client_context
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import (
    RELAXED,
    STREAM,
    WINDOW,
    consumer_request,
    create_stream,
    fill,
    publisher,
)

if TYPE_CHECKING:  # compiled before a measurement, not yet when this loads
    from benchmarks.loadgen.stream import Publisher

ROUNDS = 3  # the least of so many figures counts: neighbours only ever add to them
PUBLISHED = 20_000
REQUESTED = 20_000
ASKED = 2000
WAITED = 1000  # operations one at a time
PAYLOAD_SIZE = 16
KEPT_PART = 4  # of so many stored messages, all but one are deleted
HANDSHAKES_MAX = 64
SPARE_FILES = 100
ANSWER_S_MAX = 1800.0
STOP_S_MAX = 10.0
TLS = 'tls { cert_file: "{folder}/ec.pem", key_file: "{folder}/ec.key" }\nallow_non_tls: true\n'


@dataclass(frozen=True)
class Point:
    """The figures of one server with `size` things."""

    size: int
    cpu_us: float
    p50_us: float
    memory_mib: float


@dataclass(frozen=True)
class Axis:
    """Something that there can be much of: `sizes` are the numbers of it, `things` its name.

    `operation` is measured by `run`, which gets a running server with `config`.
    """

    name: str
    things: str
    operation: str
    sizes: tuple[int, ...]
    run: Callable[[Server, int], Point]
    config: str = RELAXED


def least_cpu_us(server: Server, count: int, run: Callable[[], object]) -> float:
    """The CPU time of the server for each of `count` operations that `run` makes."""
    costs_s = []
    for _ in range(ROUNDS):
        with Meter(server.session) as meter:
            run()
        costs_s.append(meter.server_cpu_s)
    return min(costs_s) / count * 1e6


def least_median_us(latencies_ns: Callable[[], Sequence[float]]) -> float:
    """The median of the latencies of operations one at a time, in the best of the rounds."""
    return min(statistics.median(latencies_ns()) for _ in range(ROUNDS)) / 1000


def anonymous_mib(server: Server) -> float:
    """The memory of the server without mapped files, which the kernel can take back."""
    return session_usage(server.session).anonymous_kib / 1024


def publishing_point(server: Server, size: int, load: "Publisher") -> Point:
    """The figures of publishes into streams that are prepared, to all subjects in turn."""
    memory_mib = anonymous_mib(server)
    count = max(PUBLISHED // size, 1) * size
    cpu_us = least_cpu_us(server, count, lambda: load.publish(count, window=WINDOW))

    def wait_for_each() -> Sequence[float]:
        load.publish(WAITED, window=1)
        return load.latencies_ns()

    return Point(size, cpu_us, least_median_us(wait_for_each), memory_mib)


def subjects(server: Server, size: int) -> Point:
    """Publishes into a stream with a message on each of `size` subjects."""
    with StreamApi(server) as api, publisher(server, PAYLOAD_SIZE, size) as load:
        create_stream(api)
        fill(load, size)
        return publishing_point(server, size, load)


def streams(server: Server, size: int) -> Point:
    """Publishes to `size` streams in turn, each of which has a message."""
    with StreamApi(server) as api:
        if size == 1:
            create_stream(api)
        else:
            configs = [
                {"name": f"S{k}", "subjects": [f"bench.{k}"], "storage": "file"}
                for k in range(size)
            ]
            api.request_all((f"STREAM.CREATE.{each['name']}", each) for each in configs)
        # Opened last, as it answers no PING while others work.
        with publisher(server, PAYLOAD_SIZE, size, size) as load:
            fill(load, size)
            return publishing_point(server, size, load)


def consumers(server: Server, size: int) -> Point:
    """Publishes into a stream with `size` consumers, each of a subject of its own."""
    with StreamApi(server) as api:
        create_stream(api, max_consumers=size + 1)
        api.request_all(
            consumer_request(f"C{k}", durable_name=f"C{k}", filter_subject=f"bench.{k}")
            for k in range(size)
        )
        with publisher(server, PAYLOAD_SIZE, size) as load:
            fill(load, size)
            return publishing_point(server, size, load)


def deletes(server: Server, size: int) -> Point:
    """Requests for the next message of a subject, between runs of `size` deleted messages."""
    with StreamApi(server) as api, publisher(server, PAYLOAD_SIZE, KEPT_PART) as load:
        create_stream(api)
        stored = size * KEPT_PART // (KEPT_PART - 1) // KEPT_PART * KEPT_PART + KEPT_PART
        fill(load, stored)
        for number in range(1, KEPT_PART):
            api.request(f"STREAM.PURGE.{STREAM}", {"filter": f"bench.{number}"})
        memory_mib = anonymous_mib(server)
        chance = random.Random(size)
        wanted = [
            (
                f"STREAM.MSG.GET.{STREAM}",
                {"seq": chance.randrange(1, stored - KEPT_PART), "next_by_subj": "bench.0"},
            )
            for _ in range(ASKED)
        ]
        cpu_us = least_cpu_us(server, ASKED, lambda: api.request_all(wanted))

        def ask_one_by_one() -> Sequence[float]:
            times_ns = []
            for request in wanted[:WAITED]:
                started_ns = time.perf_counter_ns()
                api.request(*request)
                times_ns.append(time.perf_counter_ns() - started_ns)
            return times_ns

        return Point(size, cpu_us, least_median_us(ask_one_by_one), memory_mib)


def requesting_point(server: Server, size: int) -> Point:
    """The figures of requests between two connections beside all others."""
    from benchmarks.loadgen.request import RequestReply

    memory_mib = anonymous_mib(server)
    host = server.host.encode()
    many = RequestReply(host, server.port, requesters=1, outstanding=64, payload_size=PAYLOAD_SIZE)
    with contextlib.closing(many):
        many.run(REQUESTED // 10)
        cpu_us = least_cpu_us(server, REQUESTED, lambda: many.run(REQUESTED))
        many.finish()
    one = RequestReply(host, server.port, requesters=1, outstanding=1, payload_size=PAYLOAD_SIZE)
    with contextlib.closing(one):
        point = Point(size, cpu_us, least_median_us(lambda: one.run(WAITED)), memory_mib)
        one.finish()
    return point


def room_for(size: int) -> int:
    """The number of connections that this process may open, at most `size`."""
    return min(size, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES)


def connections(server: Server, size: int) -> Point:
    """Requests beside `size` connections that do nothing."""
    from benchmarks.loadgen.idle import IdleConnections

    size = room_for(size)
    load = IdleConnections(server.host.encode(), server.port, count_max=size)
    with contextlib.closing(load):
        load.open(size, handshakes_max=HANDSHAKES_MAX)
        return requesting_point(server, size)


def secure_connections(server: Server, size: int) -> Point:
    """The same beside connections over TLS 1.3; those that are measured have none."""
    size = room_for(size)
    with held_connections(server.port, size):
        return requesting_point(server, size)


@contextlib.contextmanager
def held_connections(port: int, count: int) -> Iterator[None]:
    """Connections over TLS, held by another process while the block runs."""
    control, other = multiprocessing.Pipe()
    process = multiprocessing.Process(target=hold, args=(port, count, other), daemon=True)
    process.start()
    other.close()
    try:
        if not control.poll(ANSWER_S_MAX) or control.recv() != "open":
            from benchmarks.loadgen.link import LoadError

            raise LoadError(f"{count} connections over TLS were not open in {ANSWER_S_MAX:.0f} s")
        yield
    finally:
        with contextlib.suppress(OSError):
            control.send("close")
        process.join(STOP_S_MAX)
        process.kill()
        control.close()


def hold(port: int, count: int, control: Connection) -> None:
    """Connect `count` times, tell, and hold the connections until told to close them."""
    context = client_context("1.3")
    held = []
    for _ in range(count):
        plain = socket.create_connection(("127.0.0.1", port), 60.0)
        while not plain.recv(65536).endswith(b"\r\n"):
            pass
        secure = context.wrap_socket(plain)
        secure.sendall(CONNECT + b"PING\r\n")
        answer = b""
        while b"PONG\r\n" not in answer:
            piece = secure.recv(65536)
            if not piece:
                control.send("the server closed a connection")
                return
            answer += piece
        held.append(secure)
    control.send("open")
    with contextlib.suppress(EOFError):
        control.recv()


AXES = (
    Axis(
        "subjects",
        "subjects in a stream",
        "a publish to one of them",
        (1, 10, 100, 1000, 10_000, 100_000, 1_000_000),
        subjects,
    ),
    Axis("streams", "streams", "a publish to one of them", (1, 10, 100, 1000, 10_000), streams),
    Axis(
        "consumers",
        "consumers of a stream",
        "a publish that one of them may have",
        (1, 10, 100, 1000, 10_000, 100_000),
        consumers,
    ),
    Axis(
        "deletes",
        "deleted messages among others",
        "STREAM.MSG.GET of the next message of a subject",
        (1000, 10_000, 100_000, 1_000_000, 10_000_000),
        deletes,
    ),
    Axis(
        "connections",
        "idle connections",
        "a request with its reply",
        (1, 10, 100, 1000, 10_000),
        connections,
    ),
    Axis(
        "connections-tls",
        "idle connections over TLS",
        "a request with its reply",
        (1, 10, 100, 1000, 10_000),
        secure_connections,
        TLS,
    ),
)
