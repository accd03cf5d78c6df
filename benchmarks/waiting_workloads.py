"""What is measured of clients that do one thing at a time and wait for it.

Acknowledgements with an answer, and a mixture of everything that a program waits for; alone, and
beside a connection that replays a stream. Never starts a server: the runner does.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from benchmarks.figures import percentile
from benchmarks.measure import QUICK_PART, WARM_UP_PART, Result, Scale, Workload, throughput
from benchmarks.procfs import Meter
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import (
    DURABLE,
    RELAXED,
    REPLAY_QUICK_PART,
    SUBJECT_COUNT,
    Replay,
    consumer_request,
    create_stream,
    fill,
    publisher,
)

WAITING_S_MAX = 4.0
REPLAYED = 500_000
MIXED = ("publish", "acksync", "putget", "request") * 2


def waiting(
    kinds: Sequence[str], *, count: int, beside_replay: bool = False
) -> Callable[[Server, Scale], Result]:
    """Clients of these kinds, each with one thing at a time; what counts is what they have done."""

    def run(server: Server, scale: Scale) -> Result:
        from benchmarks.loadgen.waiters import Waiters

        total = scale.count(count, REPLAY_QUICK_PART)
        limit_s = WAITING_S_MAX / (QUICK_PART if scale.quick else 1)
        stored = scale.count(REPLAYED, REPLAY_QUICK_PART) if beside_replay else total + total // 10
        _prepare(server, kinds, stored)
        load = Waiters(server.host.encode(), server.port, kinds=kinds, payload_size=128)
        try:
            load.run(max(total // WARM_UP_PART, 1), time_limit_s=limit_s)
            beside = _replay(server, stored) if beside_replay else contextlib.nullcontext()
            with beside, Meter(server.session) as meter:
                done = load.run(total, time_limit_s=limit_s)
        finally:
            load.close()
        return _figures(load.latencies_ns(), meter, done, server, has_cpu=not beside_replay)

    return run


def _prepare(server: Server, kinds: Sequence[str], stored: int) -> None:
    """The streams, one with messages, the bucket, and a consumer for each client that pulls."""
    with StreamApi(server) as api:
        create_stream(api)
        create_stream(api, "FRESH", subjects=["fresh.>"])
        create_stream(api, "KV_B", subjects=["$KV.B.>"], max_msgs_per_subject=1, allow_direct=True)
        with publisher(server, 128, SUBJECT_COUNT) as load:
            fill(load, stored)
        for index, kind in enumerate(kinds):
            if kind == "acksync":
                name = f"c{index}"
                api.request(*consumer_request(name, durable_name=name, ack_policy="explicit"))


@contextlib.contextmanager
def _replay(server: Server, stored: int) -> Iterator[None]:
    """Another connection is sent the stream, again and again."""
    replay = Replay(server, stored)
    replay.start()
    try:
        replay.started.wait()
        yield
    finally:
        replay.stop()
    if replay.failure is not None:
        raise replay.failure


def _figures(
    latencies_ns: dict[str, list[int]], meter: Meter, done: int, server: Server, *, has_cpu: bool
) -> Result:
    result = Result()
    throughput(result, meter, done, server.session)
    if not has_cpu:
        del result.figures["per_cpu"]  # most of it is the replay's
    for kind, times_ns in latencies_ns.items():
        times_ns.sort()
        result.notes[f"{kind}_p99_us"] = percentile(times_ns, 0.99) / 1000
    ordered = sorted(time_ns for times_ns in latencies_ns.values() for time_ns in times_ns)
    for key, share in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)):
        result.figures[key] = percentile(ordered, share) / 1000
    return result


_ACK_SYNC = waiting(("acksync",), count=10_000)
_MIXED = waiting(MIXED, count=40_000)

WAITING_WORKLOADS = (
    Workload("acksync", "pull one, ack it and wait, synced", _ACK_SYNC, DURABLE),
    Workload("acksync-relaxed", "pull one, ack it and wait", _ACK_SYNC, RELAXED),
    Workload("mixed-sync", "8 clients that wait for everything, synced", _MIXED, DURABLE),
    Workload("mixed-sync-relaxed", "8 clients that wait for everything", _MIXED, RELAXED),
    Workload(
        "replay-publish",
        "publish and wait, beside a replay",
        waiting(("publish",), count=20_000, beside_replay=True),
        RELAXED,
    ),
    Workload(
        "replay-request",
        "request and wait, beside a replay",
        waiting(("request",), count=40_000, beside_replay=True),
        RELAXED,
    ),
)
