"""What is measured of requests of the JetStream API: how many a server answers.

Each kind of request comes one at a time and with many outstanding. Creations and deletions are
measured twice: where the disk is synced every two minutes, and before every answer. Never starts a
server: the runner does.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.measure import METRICS, Metric, Result, Scale, Workload
from benchmarks.procfs import Meter
from benchmarks.servers import Server
from benchmarks.stream_api import Request, StreamApi
from benchmarks.stream_workloads import DURABLE, RELAXED, STREAM, consumer_request, create_stream

ASKED = 4000
CHANGED = 300
NAMED = 100
READS: dict[str, Request] = {
    "stream_info": (f"STREAM.INFO.{STREAM}", {}),
    "consumer_info": (f"CONSUMER.INFO.{STREAM}.c0", {}),
    "stream_names": ("STREAM.NAMES", {}),
    "consumer_names": (f"CONSUMER.NAMES.{STREAM}", {}),
}
CHANGES = (
    "stream_create",
    "stream_update",
    "consumer_create",
    "consumer_delete",
    "stream_delete",
)
METRICS.update(
    {
        f"{kind}_{how}_per_{unit}": Metric(f"{kind.replace('_', ' ')}, {words} per {unit_words}")
        for kind in (*READS, *CHANGES)
        for how, words in (("one", "one at a time:"), ("many", "64 at a time:"))
        for unit, unit_words in (("cpu", "CPU s"), ("s", "s"))
    }
)


def measure(server: Server, result: Result, key: str, run: Callable[[], Any], count: int) -> None:
    """Run requests, and note how many were answered per second."""
    with Meter(server.session) as meter:
        run()
    result.figures[f"{key}_per_cpu"] = count / meter.server_cpu_s
    result.figures[f"{key}_per_s"] = count / meter.wall_s


def send(
    server: Server, api: StreamApi, result: Result, kind: str, each: Sequence[Request]
) -> None:
    """Send requests, one half one at a time and the other half with many outstanding."""
    half = len(each) // 2

    def one_at_a_time() -> None:
        for request in each[:half]:
            api.request(*request)

    measure(server, result, f"{kind}_one", one_at_a_time, half)
    measure(server, result, f"{kind}_many", partial(api.request_all, each[half:]), half)


def reading(server: Server, scale: Scale) -> Result:
    """Requests that change nothing, with a hundred streams, and as many consumers of one."""
    result = Result()
    with StreamApi(server) as api:
        create_stream(api)
        names = [f"S{number}" for number in range(NAMED)]
        api.request_all([stream_request(name) for name in names])
        durables = [f"c{number}" for number in range(NAMED)]
        api.request_all([consumer_request(name, durable_name=name) for name in durables])
        for kind, request in READS.items():
            api.request_all([request] * 50)
            send(server, api, result, kind, [request] * scale.count(ASKED))
    return result


def stream_request(name: str, verb: str = "CREATE", **settings: Any) -> Request:
    """A stream on files with a subject of its own."""
    config = {"name": name, "subjects": [f"to.{name}"], "storage": "file", **settings}
    return f"STREAM.{verb}.{name}", config


def changing(server: Server, scale: Scale) -> Result:
    """Create and delete streams and consumers."""
    result = Result()
    streams = [f"S{number}" for number in range(scale.count(CHANGED))]
    consumers = [f"c{number}" for number in range(scale.count(CHANGED))]
    with StreamApi(server) as api:
        create_stream(api)
        api.request(*stream_request("WARM"))
        api.request(*consumer_request("warm", durable_name="warm"))
        requests = {
            "stream_create": [stream_request(name) for name in streams],
            "stream_update": [stream_request(name, "UPDATE", max_msgs=9) for name in streams],
            "consumer_create": [consumer_request(name, durable_name=name) for name in consumers],
            "consumer_delete": [(f"CONSUMER.DELETE.{STREAM}.{name}", {}) for name in consumers],
            "stream_delete": [(f"STREAM.DELETE.{name}", {}) for name in streams],
        }
        for kind in CHANGES:
            send(server, api, result, kind, requests[kind])
    return result


REQUEST_WORKLOADS = (
    Workload("api-reads", "requests that change nothing", reading, RELAXED),
    Workload("api-changes", "streams and consumers created and deleted", changing, RELAXED),
    Workload("api-changes-synced", "the same, synced before answers", changing, DURABLE),
)
