"""Heavy requests and events, each with what has to be there before it.

Owns the list that `bystander` goes through. `prepare` may take its time; while `act` runs, and for
a second after it, somebody else's PINGs are timed. Sizes are within what both servers allow without
a special configuration.
"""

import contextlib
import json
import socket
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Scale
from benchmarks.servers import Server
from benchmarks.stream_api import GREETING, StreamApi
from benchmarks.stream_workloads import (
    RELAXED,
    STREAM,
    WINDOW,
    consumer_request,
    create_stream,
    fill,
    publisher,
)

HTTP = RELAXED + 'http: "127.0.0.1:{port}"\n'
# What a bystander does again and again.
PING, LOGIN, SUBSCRIBE = "ping", "login", "subscribe"
# The password is "correct", with the usual cost.
PASSWORDS = HTTP + (
    "authorization { users: [ { user: good,"
    ' password: "$2a$11$ma.QpPeO93XY9I55BYsznORsZ5JZcpJJ4ISgKranjWhklTaURRyAy" } ] }\n'
)
GOOD_LOGIN = GREETING.replace(b"CONNECT {", b'CONNECT {"user":"good","pass":"correct",')
BAD_LOGIN = GREETING.replace(b"CONNECT {", b'CONNECT {"user":"good","pass":"wrong",')
FLOOD_S = 5.0
FLOOD_CONNECTIONS = 100
PUSH_CONSUMERS = 5000
READ_BYTES = 1 << 20
QUICK_PART = 100
INBOX = "_INBOX.heavy"
EVENT_S_MAX = 60.0
FIRST_WRITES = 500
CROWD = 1000
LARGE_REQUESTS = 20
BATCH_MESSAGES = 1000
BATCH_BODY = bytes(31 * 1024)


class Stage:
    """A server with a connection for requests, and the means to prepare and to act."""

    def __init__(self, server: Server, scale: Scale, greeting: bytes = GREETING) -> None:
        self.server = server
        self.greeting = greeting
        self._scale = scale
        self._stack = contextlib.ExitStack()
        self.api = self._stack.enter_context(StreamApi(server, greeting))
        self._peer: socket.socket | None = None
        # The reply subjects of what `prepare` has fetched.
        self.replies: list[bytes] = []

    @property
    def peer(self) -> socket.socket:
        """A connection that `prepare` and `act` share."""
        if self._peer is None:
            self._peer = self.connect()
        return self._peer

    def close(self) -> None:
        """End all connections."""
        self._stack.close()

    def count(self, full: int) -> int:
        """So many, or a part for a quick look."""
        return self._scale.count(full, QUICK_PART)

    def restart(self) -> None:
        """Have the server stopped and started again, and connect anew."""
        self._stack.close()
        self._peer = None
        self.server.restart()
        self.api = self._stack.enter_context(StreamApi(self.server, self.greeting))

    def store(self, count: int, subjects: int = 16, size: int = 128, **settings: Any) -> None:
        """The stream of the benchmark with so many messages."""
        create_stream(self.api, **settings)
        self.publish(count, subjects, size)

    def publish(self, count: int, subjects: int = 16, size: int = 128) -> None:
        """So many messages to the subjects `bench.0`, `bench.1` and so on, all acknowledged."""
        with publisher(self.server, size, subjects) as load:
            fill(load, self.count(count))

    def update(self, **settings: Any) -> None:
        """Change the stream of the benchmark."""
        config = self.api.request(f"STREAM.INFO.{STREAM}")["config"]
        self.api.request(f"STREAM.UPDATE.{STREAM}", {**config, **settings})

    def consumer(self, name: str, **settings: Any) -> None:
        """Make a durable consumer."""
        self.api.request(*consumer_request(name, durable_name=name, **settings))

    def connect(self) -> socket.socket:
        """A connection for what is not a request; the stage closes it."""
        peer = socket.create_connection((self.server.host, self.server.port), EVENT_S_MAX)
        self._stack.enter_context(contextlib.closing(peer))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(self.greeting)
        round_trip(peer)
        return peer

    def wait(self, condition: Callable[[dict[str, Any]], bool], endpoint: str) -> None:
        """Ask until the answer is as wanted."""
        while not condition(self.api.request(endpoint)):
            pass


def round_trip(peer: socket.socket) -> bytes:
    """Everything sent so far has been handled; gives what came meanwhile."""
    peer.sendall(b"PING\r\n")
    received = b""
    while b"PONG\r\n" not in received[-4096:]:
        data = peer.recv(READ_BYTES)
        if not data:
            raise OSError("the server closed the connection")
        received += data
    return received


def receive(peer: socket.socket, subject: bytes, count: int) -> list[bytes]:
    """The reply subjects of `count` messages to `subject`."""
    replies: list[bytes] = []
    rest = b""
    while len(replies) < count:
        data = peer.recv(READ_BYTES)
        if not data:
            raise OSError("the server closed the connection")
        lines = (rest + data).split(b"\r\n")
        rest = lines.pop()
        for line in lines:
            words = line.split(b" ")
            if words[0] == b"MSG" and len(words) == 5:
                replies.append(words[3])
    return replies


def pull(peer: socket.socket, consumer: str, batch: int) -> list[bytes]:
    """Fetch messages without acknowledging them; gives their reply subjects."""
    peer.sendall(f"SUB {INBOX} 9\r\n".encode())
    body = json.dumps({"batch": batch, "expires": 30_000_000_000}).encode()
    request = f"PUB $JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer} {INBOX} {len(body)}\r\n"
    peer.sendall(request.encode() + body + b"\r\n")
    return receive(peer, INBOX.encode(), batch)


@dataclass(frozen=True)
class Kind:
    """Something heavy: what must be there, and what is done while a bystander is timed."""

    name: str
    summary: str
    prepare: Callable[[Stage], None]
    act: Callable[[Stage], None]
    config: str = HTTP
    deed: str = PING
    greeting: bytes = GREETING


def nothing(stage: Stage) -> None:
    """No preparation."""


# ------------------------------------------------------------------ atomic batches


def part(number: int, body: bytes, *more: bytes, reply: bytes = b"") -> bytes:
    """A message of an atomic batch."""
    lines = (b"NATS/1.0", b"Nats-Batch-Id: b", b"Nats-Batch-Sequence: %d" % number, *more)
    header = b"\r\n".join(lines) + b"\r\n\r\n"
    size = len(header) + len(body)
    head = b"HPUB bench.%d %s %d %d\r\n" % (number, reply, len(header), size)
    return head + header + body + b"\r\n"


def stage_batch(*more: bytes) -> Callable[[Stage], None]:
    """All but the last message of a batch of 1,000, of 31 KiB each."""

    def prepare(stage: Stage) -> None:
        create_stream(stage.api, allow_atomic=True)
        stage.peer.sendall(b"SUB %s 9\r\n" % INBOX.encode())
        for number in range(1, BATCH_MESSAGES):
            stage.peer.sendall(part(number, BATCH_BODY, *more))
        round_trip(stage.peer)

    return prepare


def commit_batch(stage: Stage) -> None:
    """Send the last one, and wait for the acknowledgement."""
    last = part(BATCH_MESSAGES, BATCH_BODY, b"Nats-Batch-Commit: 1", reply=INBOX.encode())
    stage.peer.sendall(last)
    received = b""
    while b'"count":%d' % BATCH_MESSAGES not in received:
        data = stage.peer.recv(READ_BYTES)
        if not data or b'"error"' in received:
            raise OSError(f"the batch was not stored: {received!r}")
        received += data


# ------------------------------------------------------------------ configurations


def many_subjects(count: int) -> list[str]:
    return [f"many.{number}.*" for number in range(count)]


def create_with_subjects(stage: Stage) -> None:
    create_stream(stage.api, subjects=many_subjects(stage.count(5000)))


def many_streams(stage: Stage) -> None:
    stage.api.request_all(
        (f"STREAM.CREATE.S{number}", {"name": f"S{number}", "subjects": [f"s.{number}.>"]})
        for number in range(stage.count(5000))
    )


def many_filters(stage: Stage) -> None:
    filters = [f"bench.{number}" for number in range(stage.count(3000))]
    stage.consumer("C", filter_subjects=filters)


def many_consumers(stage: Stage) -> None:
    create_stream(stage.api, max_consumers=-1)
    stage.api.request_all(
        consumer_request(f"c{number}", durable_name=f"c{number}", filter_subject=f"bench.{number}")
        for number in range(stage.count(1000))
    )


def large_requests(stage: Stage) -> None:
    metadata = {f"key{number}": "x" * 40 for number in range(6800)}
    for number in range(LARGE_REQUESTS):
        config = {
            "name": "L",
            "subjects": ["l.>"],
            "metadata": metadata,
            "description": f"{number}",
        }
        with contextlib.suppress(Exception):  # one of the servers may find it too large
            stage.api.request("STREAM.CREATE.L", config)


def refused_requests(stage: Stage) -> None:
    """Lists of objects that are decoded, and then refused for something else."""
    sources = [{"name": f"o{number}", "filter_subject": "a.*"} for number in range(8000)]
    for _ in range(LARGE_REQUESTS):
        with contextlib.suppress(Exception):
            stage.api.request("STREAM.CREATE.L", {"name": "other", "sources": sources})


# ------------------------------------------------------------------ contents


def million(stage: Stage) -> None:
    stage.store(1_000_000)


def subjects_100k(stage: Stage) -> None:
    stage.store(1_000_000, 100_000, 16)


def subjects_200k(stage: Stage) -> None:
    stage.store(200_000, 200_000, 16, max_msgs_per_subject=1)


def subjects_200k_restarted(stage: Stage) -> None:
    subjects_200k(stage)
    stage.restart()


def history_200k_restarted(stage: Stage) -> None:
    stage.store(1_000_000, 200_000, 16)
    stage.restart()


def subjects_500k(stage: Stage) -> None:
    stage.store(500_000, 500_000, 16)


def mostly_deleted(stage: Stage) -> None:
    million(stage)
    for number in range(15):
        stage.api.request(f"STREAM.PURGE.{STREAM}", {"filter": f"bench.{number}"})


def gigabytes(stage: Stage) -> None:
    stage.store(1_600_000, 16, 1024)


def interest(stage: Stage) -> None:
    create_stream(stage.api, retention="interest")
    stage.consumer("slow", ack_policy="explicit")
    stage.publish(1_000_000, 16, 16)


def open_deliveries(stage: Stage) -> None:
    create_stream(stage.api, retention="interest")
    stage.consumer("C", ack_policy="all", max_ack_pending=-1)
    stage.publish(200_000, 16, 16)
    stage.replies = pull(stage.peer, "C", stage.count(200_000))


def streams_500_restarted(stage: Stage) -> None:
    stage.api.request_all(
        (f"STREAM.CREATE.S{number}", {"name": f"S{number}", "subjects": [f"s.{number}"]})
        for number in range(FIRST_WRITES)
    )
    publish_to_each(stage)
    stage.restart()


def publish_to_each(stage: Stage) -> None:
    peer = stage.connect()
    count = FIRST_WRITES
    peer.sendall(b"SUB _INBOX.each 1\r\n")
    peer.sendall(b"".join(b"PUB s.%d _INBOX.each 1\r\nx\r\n" % number for number in range(count)))
    received = 0
    while received < count:
        received += peer.recv(READ_BYTES).count(b"MSG _INBOX.each")


# ------------------------------------------------------------------ consumers


def unacknowledged(stage: Stage) -> None:
    stage.store(200_000, 16, 16)
    stage.consumer("C", ack_policy="explicit", max_ack_pending=-1, ack_wait=3_600_000_000_000)
    stage.replies = pull(stage.peer, "C", stage.count(100_000))


def acknowledge_each(stage: Stage) -> None:
    for start in range(0, len(stage.replies), 1000):
        part = stage.replies[start : start + 1000]
        stage.peer.sendall(b"".join(b"PUB %s 4\r\n+ACK\r\n" % reply for reply in part))
        round_trip(stage.peer)


def acknowledge_some(stage: Stage) -> None:
    """One each time the state of the consumer may have been written."""
    for reply in stage.replies[:2000]:
        stage.peer.sendall(b"PUB %s 4\r\n+ACK\r\n" % reply)
        round_trip(stage.peer)


def acknowledge_last(stage: Stage) -> None:
    stage.peer.sendall(b"PUB %s 4\r\n+ACK\r\n" % stage.replies[-1])
    round_trip(stage.peer)


def reject_all(stage: Stage) -> None:
    stage.peer.sendall(b"".join(b"PUB %s 4\r\n-NAK\r\n" % reply for reply in stage.replies))
    round_trip(stage.peer)
    pull(stage.peer, "C", len(stage.replies))


def redelivery(stage: Stage) -> None:
    stage.store(100_000, 16, 16)
    stage.consumer("C", ack_policy="explicit", max_ack_pending=-1, ack_wait=3_000_000_000)
    pull(stage.peer, "C", stage.count(100_000))


def pull_again(stage: Stage) -> None:
    pull(stage.peer, "C", stage.count(100_000))


def last_per_subject(stage: Stage) -> None:
    stage.consumer("L", deliver_policy="last_per_subject", filter_subject="bench.>")


def watchers_restarted(stage: Stage) -> None:
    subjects_200k(stage)
    for number in range(5):
        name = f"w{number}"
        stage.consumer(name, deliver_policy="last_per_subject", filter_subject="bench.>")
    stage.restart()


def first_pull(stage: Stage) -> None:
    pull(stage.connect(), "w0", 1000)


def delete_consumers(stage: Stage) -> None:
    stage.api.request_all(
        (f"CONSUMER.DELETE.{STREAM}.c{number}", {}) for number in range(stage.count(1000))
    )


# ------------------------------------------------------------------ reading


def direct(body: dict[str, Any], end: bytes) -> Callable[[Stage], None]:
    """Read messages without a consumer, until the answer that ends it."""
    return asked(f"$JS.API.DIRECT.GET.{STREAM}", body, end)


def own(name: str, body: dict[str, Any]) -> Callable[[Stage], None]:
    """A request that only our server knows."""
    return asked(f"$TW.API.STREAM.{name}.{STREAM}", body, b'"success":true')


def asked(subject: str, body: dict[str, Any], end: bytes) -> Callable[[Stage], None]:
    """One request, until the answer that ends it."""

    def act(stage: Stage) -> None:
        peer = stage.connect()
        text = json.dumps(body).encode()
        peer.sendall(
            f"SUB {INBOX} 9\r\nPUB {subject} {INBOX} {len(text)}\r\n".encode() + text + b"\r\n"
        )
        received = b""
        while end not in received:
            data = peer.recv(READ_BYTES)
            if not data:
                raise OSError("the server closed the connection")
            received = received[-256:] + data
            if b" 503\r\n" in received:
                raise OSError("nobody answers")

    return act


def truncated(stage: Stage) -> None:
    """Half of a million messages can be brought back."""
    million(stage)
    own("TRUNCATE", {"newest": stage.count(500_000), "keep_for": 3_600_000_000_000})(stage)


def backup(stage: Stage) -> None:
    """All of the stream, each part acknowledged."""
    peer = stage.connect()
    peer.sendall(f"SUB {INBOX} 9\r\n".encode())
    round_trip(peer)
    stage.api.request(f"STREAM.SNAPSHOT.{STREAM}", {"deliver_subject": INBOX})
    while True:
        line = b""
        while not line.endswith(b"\r\n"):
            line += peer.recv(1)
        words = line.split()
        if words[0] not in (b"MSG", b"HMSG"):
            continue
        missing = int(words[-1]) + 2
        while missing:
            missing -= len(peer.recv(min(missing, READ_BYTES)))
        if words[0] == b"HMSG" or int(words[-1]) == 0:
            return
        if len(words) == 5:
            peer.sendall(b"PUB %s 0\r\n\r\n" % words[3])


# ------------------------------------------------------------------ connections


def subscribe(stage: Stage) -> None:
    peer = stage.peer
    lines = (
        b"SUB load.%d.* %d\r\n" % (number, number + 10) for number in range(stage.count(200_000))
    )
    peer.sendall(b"".join(lines))
    round_trip(peer)


def leave(stage: Stage) -> None:
    stage.peer.close()


def connect_many(stage: Stage) -> None:
    for _ in range(CROWD):
        stage.connect()


def flood_logins(stage: Stage) -> None:
    """Wrong passwords, one after the other on each of many connections, for some seconds."""
    end_s = time.monotonic() + FLOOD_S

    def log_in_wrongly() -> None:
        while time.monotonic() < end_s:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((stage.server.host, stage.server.port), 10) as peer,
            ):
                peer.sendall(BAD_LOGIN + b"PING\r\n")
                while peer.recv(READ_BYTES):
                    pass

    with ThreadPoolExecutor(FLOOD_CONNECTIONS) as threads:
        for _ in range(FLOOD_CONNECTIONS):
            threads.submit(log_in_wrongly)


def push_consumers(stage: Stage) -> None:
    create_stream(stage.api, max_consumers=2 * PUSH_CONSUMERS)
    stage.api.request_all(
        consumer_request(f"p{number}", deliver_subject=f"push.{number}", ack_policy="none")
        for number in range(stage.count(PUSH_CONSUMERS))
    )


def come_and_go(stage: Stage) -> None:
    """Somebody listens to each of the push consumers, and leaves again."""
    peer = stage.peer
    for number in range(stage.count(PUSH_CONSUMERS)):
        peer.sendall(b"SUB push.%d 9\r\nUNSUB 9\r\n" % number)
    round_trip(peer)


def page(path: str) -> Callable[[Stage], None]:
    """Read one of the monitoring pages."""

    def act(stage: Stage) -> None:
        port = stage.server.http_port
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{path}", timeout=EVENT_S_MAX
        ) as answer:
            answer.read()

    return act


def request(endpoint: str, body: dict[str, Any] | None = None) -> Callable[[Stage], None]:
    """One request to the API."""

    def act(stage: Stage) -> None:
        stage.api.request(endpoint, body)

    return act


def update(**settings: Any) -> Callable[[Stage], None]:
    """One change of the stream."""
    return lambda stage: stage.update(**settings)


def rollup(kind: bytes) -> Callable[[Stage], None]:
    """A message that replaces all others of its subject, or of the stream."""

    def act(stage: Stage) -> None:
        peer = stage.connect()
        head = b"NATS/1.0\r\nNats-Rollup: " + kind + b"\r\n\r\n"
        line = b"SUB _INBOX.roll 1\r\nHPUB bench.0 _INBOX.roll %d %d\r\n" % (
            len(head),
            len(head) + 1,
        )
        peer.sendall(line + head + b"x\r\n")
        while b"MSG _INBOX.roll" not in peer.recv(READ_BYTES):
            pass

    return act


def allow_rollup(stage: Stage) -> None:
    stage.store(1_000_000, 4, 16, allow_rollup_hdrs=True)


INFO = f"STREAM.INFO.{STREAM}"
PURGE = f"STREAM.PURGE.{STREAM}"
ALL = {"subjects_filter": ">"}
MILLION = "1 M messages, 16 subjects"

KINDS = (
    Kind(
        "subject-limit",
        "max_msgs_per_subject 1, 1 M on 100 k subjects",
        subjects_100k,
        update(max_msgs_per_subject=1),
    ),
    Kind("create-5k-subjects", "a stream with 5,000 subjects", nothing, create_with_subjects),
    Kind("filters-3k", "a consumer with 3,000 filters", subjects_100k, many_filters),
    Kind("large-requests", "20 requests of 340 KB", nothing, large_requests),
    Kind("refused-requests", "20 refused requests of 320 KB", nothing, refused_requests),
    Kind(
        "last-per-subject",
        "such a consumer on 200 k keys, after a start",
        subjects_200k_restarted,
        last_per_subject,
    ),
    Kind(
        "last-of-history",
        "such a consumer on 200 k keys with 5 messages each",
        history_200k_restarted,
        last_per_subject,
    ),
    Kind(
        "watchers-restarted",
        "first pull of such a consumer, after a start",
        watchers_restarted,
        first_pull,
    ),
    Kind(
        "delete-interest",
        "the only consumer of 1 M kept by interest",
        interest,
        request(f"CONSUMER.DELETE.{STREAM}.slow"),
    ),
    Kind("info-500k", "stream info with 500 k subjects", subjects_500k, request(INFO, ALL)),
    Kind(
        "info-deleted",
        "stream info with 937 k deleted sequences",
        mostly_deleted,
        request(INFO, {"deleted_details": True}),
    ),
    Kind("first-writes", "to 500 streams after a start", streams_500_restarted, publish_to_each),
    Kind("purge-1.6g", "1.6 GB in 1 KiB messages", gigabytes, request(PURGE)),
    Kind(
        "purge-filter",
        "one of 16 subjects, 1 M messages",
        million,
        request(PURGE, {"filter": "bench.3"}),
    ),
    Kind(
        "purge-wildcard",
        "100 k subjects, 1 M messages",
        subjects_100k,
        request(PURGE, {"filter": "bench.*"}),
    ),
    Kind("purge-keep", "all but the last 10", million, request(PURGE, {"keep": 10})),
    Kind("purge-seq", "up to sequence 900,000", million, request(PURGE, {"seq": 900_000})),
    Kind(
        "truncate",
        "the newest 500 k of 1 M, with an undo",
        million,
        own("TRUNCATE", {"newest": 500_000, "keep_for": 3_600_000_000_000}),
    ),
    Kind("undo", "500 k come back to 500 k", truncated, own("UNDO", {})),
    Kind("delete-stream", MILLION, million, request(f"STREAM.DELETE.{STREAM}")),
    Kind("limit-messages", "max_msgs 1,000 of 1 M", million, update(max_msgs=1000)),
    Kind("limit-bytes", "max_bytes 100 KB of 1 M", million, update(max_bytes=100_000)),
    Kind(
        "limit-age",
        "max_age 1 s, 1 M messages",
        million,
        update(max_age=1_000_000_000, duplicate_window=1_000_000_000),
    ),
    Kind("compress", "compression switched on, 1 M messages", million, update(compression="s2")),
    Kind("rollup-all", MILLION, allow_rollup, rollup(b"all")),
    Kind("rollup-subject", "250 k messages of it", allow_rollup, rollup(b"sub")),
    Kind(
        "names-5k",
        "names of 5,000 streams by subject",
        many_streams,
        request("STREAM.NAMES", {"subject": "s.77.x"}),
    ),
    Kind("list-5k", "a page of 5,000 streams", many_streams, request("STREAM.LIST")),
    Kind("account-5k", "account info, 5,000 streams", many_streams, request("INFO")),
    Kind(
        "consumers-1k",
        "a page of 1,000 consumers",
        many_consumers,
        request(f"CONSUMER.LIST.{STREAM}"),
    ),
    Kind("delete-consumers", "1,000 of them", many_consumers, delete_consumers),
    Kind(
        "start-time",
        "a consumer by time, 1 M messages",
        million,
        lambda stage: stage.consumer(
            "T", deliver_policy="by_start_time", opt_start_time="2020-01-01T00:00:00Z"
        ),
    ),
    Kind(
        "filter-nothing",
        "a consumer of a subject that is not there",
        subjects_100k,
        lambda stage: stage.consumer("N", filter_subject="bench.nothing.*"),
    ),
    Kind("acks-of-100k", "100 k acknowledgements", unacknowledged, acknowledge_each),
    Kind(
        "few-acks-of-100k",
        "2,000 one by one while 100 k are open",
        unacknowledged,
        acknowledge_some,
    ),
    Kind("ack-all", "one for 200 k kept by interest", open_deliveries, acknowledge_last),
    Kind("nak-100k", "100 k sent again", unacknowledged, reject_all),
    Kind("redeliver-100k", "100 k whose time is over", redelivery, pull_again),
    Kind(
        "multi-last",
        "the last messages of 1,000 subjects",
        lambda stage: stage.store(200_000, 1000, 16, allow_direct=True),
        direct({"multi_last": ["bench.*"], "batch": 1000}, b"204"),
    ),
    Kind(
        "direct-batch",
        "100 k messages without a consumer",
        lambda stage: stage.store(200_000, 16, 16, allow_direct=True),
        direct({"seq": 1, "batch": 100_000}, b"204"),
    ),
    Kind(
        "next-by-subject",
        "MSG.GET of the first of a subject in 1 M",
        million,
        request(f"STREAM.MSG.GET.{STREAM}", {"seq": 1, "next_by_subj": "bench.15"}),
    ),
    Kind("backup", MILLION, million, backup),
    Kind("batch-1k", "an atomic batch of 1,000, 31 MB in all", stage_batch(), commit_batch),
    Kind(
        "batch-1k-other",
        "the same, with a field that nobody knows",
        stage_batch(b"Nats-Expected-Last-Subject-Sequence: 0", b"Nats-Other: x"),
        commit_batch,
    ),
    Kind("subscribe-200k", "200 k SUB of one client", nothing, subscribe),
    Kind("leave-200k", "it goes", subscribe, leave),
    Kind("connect-1k", "1,000 connections", nothing, connect_many),
    Kind(
        "login-flood",
        "a good login beside 100 connections with wrong ones",
        nothing,
        flood_logins,
        PASSWORDS,
        LOGIN,
        GOOD_LOGIN,
    ),
    Kind(
        "subscribe-beside-push",
        "SUB and UNSUB beside 5,000 push consumers whose receivers come and go",
        push_consumers,
        come_and_go,
        deed=SUBSCRIBE,
    ),
    Kind(
        "page-connz",
        "connections with 200 k subscriptions",
        subscribe,
        page("/connz?subs=1"),
    ),
    Kind("page-subsz", "subscriptions, 200 k", subscribe, page("/subsz?subs=1")),
    Kind(
        "page-jsz",
        "5,000 streams with their configurations",
        many_streams,
        page("/jsz?streams=1&config=1&consumers=1"),
    ),
    Kind(
        "publish-window",
        f"100 k publishes, {WINDOW} open",
        lambda stage: create_stream(stage.api),
        lambda stage: stage.publish(100_000),
    ),
)
