"""What is measured of leaf nodes: messages from a client of one server to a client of another.

The server under test is the hub; a second one of the same kind dials it. What counts is the
processor time of both. Never compares: the runner does.
"""

import json
import socket
import time
from collections.abc import Callable

from benchmarks.measure import WARM_UP_PART, Result, Scale, Workload, throughput
from benchmarks.procfs import Meter
from benchmarks.servers import Server

INFLIGHT_MAX = 20_000
SUBJECT_COUNT = 16
LINK_S_MAX = 20.0
# The placeholder is a free port of its own.
HUB = 'server_name: hub\nleafnodes { listen: "127.0.0.1:{port}", compression: %s }\n'
LEAF = (
    'server_name: leaf\nleafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{port}", '
    "compression: {mode} }} ] }}\n"
)
CONNECT = {"verbose": False, "no_responders": True, "headers": True}


def forwarding(mode: str, *, count: int) -> Callable[[Server, Scale], Result]:
    """Publishers at the leaf node, a subscriber at the hub."""

    def run(server: Server, scale: Scale) -> Result:
        from benchmarks.loadgen.flow import Flow

        result = Result()
        total = scale.count(count)
        with Server(server.template, LEAF.format(port=server.http_port, mode=mode)) as leaf:
            flow = Flow(
                leaf.host.encode(),
                leaf.port,
                publishers=1,
                subscribers=1,
                payload_size=128,
                inflight_max=INFLIGHT_MAX,
                subscriber_port=server.port,
            )
            try:
                flow.subscribe(b"SUB core.> 1\r\n")
                wait_for_link(server, leaf)
                subjects = [b"core.%d" % index for index in range(SUBJECT_COUNT)]
                flow.set_subjects(subjects, delivered=True)
                flow.run(max(total // WARM_UP_PART, 1000))
                with Meter(server.session) as meter, Meter(leaf.session) as other:
                    flow.run(total)
                flow.finish()
            finally:
                flow.close()
        meter.server_cpu_s += other.server_cpu_s
        throughput(result, meter, total, server.session)
        return result

    return run


def wait_for_link(hub: Server, leaf: Server) -> None:
    """A client of the leaf node reaches one of the hub, so earlier subscriptions are known, too."""
    connect = b"CONNECT %s\r\n" % json.dumps(CONNECT).encode()
    end = time.monotonic() + LINK_S_MAX
    with (
        socket.create_connection((hub.host, hub.port)) as above,
        socket.create_connection((leaf.host, leaf.port)) as below,
    ):
        above.sendall(connect + b"SUB probe 1\r\nPING\r\n")
        below.sendall(connect + b"SUB answer 1\r\n")
        above.settimeout(0.05)
        heard = b""
        while b"MSG probe" not in heard:
            if time.monotonic() > end:
                raise TimeoutError("the leaf node is not connected")
            below.sendall(b"PUB probe answer 0\r\n\r\n")
            try:
                heard += above.recv(65536)
            except TimeoutError:
                continue


LEAF_WORKLOADS = (
    Workload(
        "leaf-1x1-128",
        "1 publisher at a leaf node, 1 subscriber at its hub, 128 B",
        forwarding("off", count=1_000_000),
        HUB % "off",
    ),
    Workload(
        "leaf-s2-1x1-128",
        "the same with compression: s2_fast",
        forwarding("s2_fast", count=1_000_000),
        HUB % "s2_fast",
    ),
)
