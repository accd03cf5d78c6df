"""What is measured of reading without a consumer: single messages, keys, batches, last messages.

Each fills a stream first, which is not measured. Never starts a server: the runner does.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from benchmarks.figures import percentile
from benchmarks.measure import WARM_UP_PART, Result, Scale, Workload, throughput
from benchmarks.procfs import Meter
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import RELAXED, create_stream, fill

if TYPE_CHECKING:  # compiled by benchmarks.build before a workload runs, not yet when this loads
    from benchmarks.loadgen.direct import Getter

STREAM = "BENCH"
BUCKET = "KV_BENCH"
BUCKET_PREFIX = "$KV.BENCH."
OUTSTANDING = 64
BATCH = 500
QUICK_PART = 50


def gets(
    kind: str,
    *,
    requests: int,
    outstanding: int = 1,
    batch: int = 1,
    payload_size: int = 128,
    stored: int = 50_000,
    subject_count: int = 1000,
    stream: str = STREAM,
    prefix: str = "bench.",
) -> Callable[[Server, Scale], Result]:
    """Gets of one kind from a stream on files; what counts are messages."""

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        total = scale.count(stored, QUICK_PART)
        subjects = min(subject_count, total)
        count = max(scale.count(requests, QUICK_PART), 1)
        with StreamApi(server) as api:
            create_stream(api, stream, subjects=[f"{prefix}>"], allow_direct=True)
        store(server, stream, prefix, payload_size, subjects, total)
        with getter(server, stream, prefix, payload_size, subjects, total) as load:
            warm_up = max(count // WARM_UP_PART, 1)
            load.get(kind, warm_up, outstanding=outstanding, batch=batch)
            with Meter(server.session) as meter:
                done = load.get(kind, count, outstanding=outstanding, batch=batch)
            latencies_ns = sorted(load.latencies_ns())
        throughput(result, meter, done, server.session)
        if outstanding == 1:
            result.figures["p50_us"] = percentile(latencies_ns, 0.50) / 1000
            result.figures["p99_us"] = percentile(latencies_ns, 0.99) / 1000
        return result

    return run


def store(
    server: Server, stream: str, prefix: str, payload_size: int, subject_count: int, total: int
) -> None:
    """Fills the stream."""
    from benchmarks.loadgen.stream import Publisher

    load = Publisher(
        server.host.encode(),
        server.port,
        stream=stream.encode(),
        payload_size=payload_size,
        subject_count=subject_count,
        prefix=prefix.encode(),
    )
    try:
        fill(load, total)
    finally:
        load.close()


@contextlib.contextmanager
def getter(
    server: Server, stream: str, prefix: str, payload_size: int, subject_count: int, total: int
) -> "Iterator[Getter]":
    """A connection that gets messages; it is closed at the end."""
    from benchmarks.loadgen.direct import Getter

    load = Getter(
        server.host.encode(),
        server.port,
        stream=stream.encode(),
        prefix=prefix.encode(),
        payload_size=payload_size,
        subject_count=subject_count,
        total=total,
    )
    try:
        yield load
    finally:
        load.close()


def _workload(name: str, summary: str, run: Callable[[Server, Scale], Result]) -> Workload:
    return Workload(f"get-{name}", summary, run, RELAXED)


DIRECT_WORKLOADS = (
    _workload("seq-1", "by sequence, one at a time", gets("sequence", requests=20_000)),
    _workload(
        "seq",
        "by sequence, pipelined",
        gets("sequence", requests=200_000, outstanding=OUTSTANDING),
    ),
    _workload("last-1", "last of a subject, one at a time", gets("last", requests=20_000)),
    _workload(
        "last",
        "last of a subject, pipelined",
        gets("last", requests=200_000, outstanding=OUTSTANDING),
    ),
    _workload(
        "key-1",
        "keys of a bucket, one at a time",
        gets("subject", requests=20_000, stream=BUCKET, prefix=BUCKET_PREFIX),
    ),
    _workload(
        "key",
        "keys of a bucket, pipelined",
        gets(
            "subject",
            requests=200_000,
            outstanding=OUTSTANDING,
            stream=BUCKET,
            prefix=BUCKET_PREFIX,
        ),
    ),
    _workload(
        "batch-16",
        "batches of 500, 16 B, one at a time",
        gets("batch", requests=1000, batch=BATCH, payload_size=16),
    ),
    _workload(
        "batch-1k",
        "batches of 500, 1 KiB, one at a time",
        gets("batch", requests=400, batch=BATCH, payload_size=1024),
    ),
    _workload(
        "batch-4",
        "batches of 500, 128 B, four at a time",
        gets("batch", requests=1000, batch=BATCH, outstanding=4),
    ),
    _workload(
        "many",
        "the last of 1,000 subjects, one at a time",
        gets("many", requests=500),
    ),
    _workload("api-1", "STREAM.MSG.GET, one at a time", gets("api", requests=20_000)),
    _workload(
        "api",
        "STREAM.MSG.GET, pipelined",
        gets("api", requests=50_000, outstanding=OUTSTANDING),
    ),
)
