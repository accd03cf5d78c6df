"""What is measured of publishes that are on disk before they are acknowledged.

How much publishers that wait for each acknowledgement share, and what somebody feels who has
nothing to do with them. Never starts a server: the runner does.
"""

import contextlib
import threading
from collections.abc import Iterator

from benchmarks.figures import percentile
from benchmarks.measure import WARM_UP_PART, Result, Scale, Workload, throughput
from benchmarks.procfs import Meter
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import (
    DURABLE,
    DURABLE_S_MAX,
    STREAM,
    SUBJECT_COUNT,
    create_stream,
    publisher,
)

CROWDS = (1, 2, 4, 8, 16)
CROWD_S_MAX = 3.0
BACKGROUND_STEP = 50


def crowd(server: Server, scale: Scale) -> Result:
    """1, 2, 4, 8 and 16 publishers to one stream, each with one message at a time."""
    from benchmarks.loadgen.crowd import Crowd

    result = Result()
    last_seq = 0
    with StreamApi(server) as api:
        create_stream(api)
    for count in CROWDS:
        load = Crowd(
            server.host.encode(),
            server.port,
            count=count,
            stream=STREAM.encode(),
            payload_size=128,
        )
        total = scale.count(100_000)
        limit_s = CROWD_S_MAX / (10 if scale.quick else 1)
        try:
            last_seq += load.publish(
                total // WARM_UP_PART, last_seq, time_limit_s=limit_s / WARM_UP_PART
            )
            with Meter(server.session) as meter:
                done = load.publish(total, last_seq, time_limit_s=limit_s)
        finally:
            load.close()
        last_seq += done
        throughput(result, meter, done, server.session)
        result.figures[f"crowd_{count}"] = done / meter.wall_s
        result.figures[f"crowd_{count}_per_cpu"] = done / meter.server_cpu_s
    del result.figures["wall"], result.figures["per_cpu"]
    return result


@contextlib.contextmanager
def durable_publisher(server: Server) -> Iterator[None]:
    """Another connection publishes meanwhile, one message at a time."""
    failures: list[Exception] = []
    ended = threading.Event()

    def publish() -> None:
        try:
            while not ended.is_set():
                load.publish(BACKGROUND_STEP, window=1, time_limit_s=DURABLE_S_MAX)
        except Exception as error:
            failures.append(error)

    with publisher(server, 128, SUBJECT_COUNT) as load:
        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
    if failures:
        raise failures[0]


def bystander(server: Server, scale: Scale) -> Result:
    """Requests and replies of core messaging while somebody publishes durably."""
    from benchmarks.loadgen.request import RequestReply

    result = Result()
    total = scale.count(20_000)
    with StreamApi(server) as api:
        create_stream(api)
    load = RequestReply(
        server.host.encode(), server.port, requesters=1, outstanding=1, payload_size=128
    )
    try:
        with durable_publisher(server):
            load.run(max(total // WARM_UP_PART, 1))
            latencies_ns = sorted(load.run(total))
        load.finish()
    finally:
        load.close()
    result.figures["p50_us"] = percentile(latencies_ns, 0.50) / 1000
    result.figures["p99_us"] = percentile(latencies_ns, 0.99) / 1000
    return result


DURABLE_WORKLOADS = (
    Workload("js-fsync-crowd", "synced, 1 to 16 publishers wait for each ack", crowd, DURABLE),
    Workload("js-fsync-bystander", "core requests beside durable publishes", bystander, DURABLE),
)
