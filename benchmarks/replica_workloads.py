"""What is measured of mirrors and sources: how fast copies of what is stored already are made.

Each fills its origins first, which is not measured, then makes the copy and waits until it is
complete. Never starts a server: the runner does.
"""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.direct_workloads import store
from benchmarks.measure import Result, Scale, Workload, throughput
from benchmarks.procfs import Meter
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import RELAXED, SUBJECT_COUNT, create_stream

COPY = "COPY"
QUICK_PART = 50
LOOK_S = 0.02  # the wait between two looks at the copy
WAIT_S_MAX = 300.0


def copying(
    *, count: int, origin_count: int = 1, is_mirror: bool = False
) -> Callable[[Server, Scale], Result]:
    """Copies of origins with as many messages each; what counts are copied messages."""

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        total = scale.count(count, QUICK_PART)
        names = [f"BENCH{number}" for number in range(origin_count)]
        with StreamApi(server) as api:
            for name in names:
                create_stream(api, name, subjects=[f"{name}.>"])
                store(server, name, f"{name}.", 128, SUBJECT_COUNT, total)
            origins: dict[str, Any] = {"sources": [{"name": name} for name in names]}
            if is_mirror:
                origins = {"mirror": {"name": names[0]}}
            with Meter(server.session) as meter:
                api.request(f"STREAM.CREATE.{COPY}", {"name": COPY, **origins})
                wait_for(api, total * origin_count)
        throughput(result, meter, total * origin_count, server.session)
        return result

    return run


def wait_for(api: StreamApi, count: int) -> None:
    """The copy holds so many messages."""
    end = time.monotonic() + WAIT_S_MAX
    while api.request(f"STREAM.INFO.{COPY}", {})["state"]["messages"] < count:
        if time.monotonic() > end:
            raise TimeoutError(f"the copy of {count} messages is not complete")
        time.sleep(LOOK_S)


REPLICA_WORKLOADS = (
    Workload(
        "mirror",
        "a mirror catches up, 128 B",
        copying(count=1_000_000, is_mirror=True),
        RELAXED,
    ),
    Workload(
        "sources-20",
        "20 sources into one stream, 128 B",
        copying(count=50_000, origin_count=20),
        RELAXED,
    ),
)
