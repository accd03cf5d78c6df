"""What is measured of schedules: what a hundred thousand of them cost that are not due for years.

The figures are the memory that they take, what the server does while none is due, and how long its
next start takes, after it was stopped and after it was killed. Never starts a server: the runner
does.
"""

import asyncio
import time
from typing import TYPE_CHECKING

from benchmarks.batch_workloads import measured
from benchmarks.measure import Result, Scale, Workload
from benchmarks.procfs import session_usage
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import RELAXED, STREAM, create_stream

if TYPE_CHECKING:  # compiled by the build before a workload runs, not yet when this loads
    from tradewind.client.jetstream import JetStream

QUICK_PART = 100
COUNT = 100_000
IDLE_S = 5.0
PAYLOAD = bytes(64)


async def schedule(js: "JetStream", total: int) -> None:
    """Messages that are to be published in the year 2040."""
    for number in range(total):
        fields = {
            "Nats-Schedule": "@at 2040-01-01T00:00:00Z",
            "Nats-Schedule-Target": f"bench.to.{number}",
        }
        await js.publish_async(f"bench.from.{number}", PAYLOAD, headers=fields)
    await js.publish_async_completed()


def pending(server: Server, scale: Scale) -> Result:
    """Store them, rest, and start again twice."""
    result = Result()
    total = scale.count(COUNT, QUICK_PART)
    with StreamApi(server) as api:
        create_stream(api, allow_msg_schedules=True)
    before = session_usage(server.session)
    meter = asyncio.run(measured(server, schedule, total))
    stored = session_usage(server.session)
    time.sleep(IDLE_S)
    idle = session_usage(server.session)
    result.figures = {
        "per_cpu": total / meter.server_cpu_s,
        "schedules_mib": (stored.rss_kib - before.rss_kib) / 1024,
        "idle_cpu_ms": (idle.cpu_s - stored.cpu_s) * 1000 / IDLE_S,
    }
    server.restart(kill=True)
    result.figures["killed_cpu_ms"] = _ready_cpu_s(server, total) * 1000
    server.restart()
    result.figures["restart_cpu_ms"] = _ready_cpu_s(server, total) * 1000
    return result


def _ready_cpu_s(server: Server, total: int) -> float:
    """The processor time of a start, up to the first answer about the stream."""
    with StreamApi(server) as api:
        messages = api.request(f"STREAM.INFO.{STREAM}")["state"]["messages"]
    assert messages == total, f"{messages} schedules of {total} are left"
    return session_usage(server.session).cpu_s


SCHEDULE_WORKLOADS = (
    Workload("schedules-100k", "100,000 schedules that are not due", pending, RELAXED),
)
