"""What is measured of a start on a full folder: 100 to 3,000 streams of 1,000 messages each, so
that a cost which grows faster than the folder shows.

The figures are the processor time up to the first answer about the last stream, after the server
was killed and after it was stopped, and the memory that it has then. Never starts a server: the
runner does.
"""

import socket
import time
from collections.abc import Callable

from benchmarks.measure import Result, Scale, Workload
from benchmarks.procfs import session_usage
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import RELAXED

QUICK_PART = 20
MESSAGES = 1_000
SUBJECTS = 333
ANSWER_SECONDS = 60.0


def starting(streams: int) -> Callable[[Server, Scale], Result]:
    """A start with this number of streams; every second one has a consumer."""

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        count = scale.count(streams, QUICK_PART)
        _fill(server, count)
        server.restart(kill=True)
        result.figures["killed_cpu_ms"] = _ready_cpu_s(server, count) * 1000
        server.restart()
        result.figures["restart_cpu_ms"] = _ready_cpu_s(server, count) * 1000
        result.figures["rss_mib"] = session_usage(server.session).rss_kib / 1024
        return result

    return run


def _fill(server: Server, count: int) -> None:
    config = {"durable_name": "C", "ack_policy": "explicit"}
    with StreamApi(server) as api:
        for number in range(count):
            name = f"S{number}"
            api.request(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"s{number}.>"]})
            if number % 2 == 0:
                wanted = {"stream_name": name, "config": config}
                api.request(f"CONSUMER.DURABLE.CREATE.{name}.C", wanted)
        _publish(server, count)
        # The other server stores behind the PONG.
        deadline = time.monotonic() + ANSWER_SECONDS
        while (last := _messages(api, count)) != MESSAGES:
            assert time.monotonic() < deadline, f"{last} of {MESSAGES} messages are stored"
            time.sleep(0.05)


def _publish(server: Server, count: int) -> None:
    """A thousand messages to each stream, in order, and a round trip behind those of each."""
    with socket.create_connection((server.host, server.port), ANSWER_SECONDS) as peer:
        peer.sendall(b'CONNECT {"verbose":false}\r\n')
        with peer.makefile("rb") as lines:
            for number in range(count):
                parts = [
                    b"PUB s%d.k%d 20\r\n%b\r\n" % (number, place % SUBJECTS, bytes(20))
                    for place in range(MESSAGES)
                ]
                peer.sendall(b"".join(parts) + b"PING\r\n")
                while (line := lines.readline()) != b"PONG\r\n":
                    assert line, "the server has closed the connection"


def _messages(api: StreamApi, count: int) -> int:
    """The number of messages of the last stream."""
    return int(api.request(f"STREAM.INFO.S{count - 1}")["state"]["messages"])


def _ready_cpu_s(server: Server, count: int) -> float:
    """The processor time of a start, up to the first answer about the last stream."""
    with StreamApi(server) as api:
        messages = _messages(api, count)
    assert messages == MESSAGES, f"{messages} messages of {MESSAGES} are left"
    return session_usage(server.session).cpu_s


START_WORKLOADS = (
    Workload("start-streams-100", "on 100 streams of 1,000 messages", starting(100), RELAXED),
    Workload("start-streams-1k", "on 1,000 streams of 1,000 messages", starting(1000), RELAXED),
    Workload("start-streams-3k", "on 3,000 streams of 1,000 messages", starting(3000), RELAXED),
)
