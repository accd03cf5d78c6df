"""What one server carries, and what a cluster of three carries on the same machine.

    python -m benchmarks.sizing                  three rounds, the median
    python -m benchmarks.sizing --quick          a part of the load, one round
    python -m benchmarks.sizing --markdown       the table of docs/how-to/SCALING.md

Tradewind and nats-server run alone with a stream of one copy; three nats-servers run as a cluster
with a stream of three. All have the settings they come with, so only Tradewind waits for its disk
before it acknowledges. On one machine a cluster cannot be faster than its parts: the table says
what three copies cost, not what three machines would give.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.build import ensure_loadgen
from benchmarks.cli import installed, positive
from benchmarks.figures import format_ratio, format_value, percentile
from benchmarks.measure import Scale
from benchmarks.procfs import Meter
from benchmarks.servers import Server, free_port
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import (
    PULL_BATCH,
    STREAM,
    SUBJECT_COUNT,
    WINDOW,
    consumer_request,
    create_stream,
    fill,
    publisher,
    reader,
)
from tradewind.cluster.cluster_health import wait_until_well
from tradewind.cluster.cluster_plan import PORT_KINDS, plan_local
from tradewind.cluster.processes import NodeProcess, find_binary

JETSTREAM = 'jetstream { store_dir: "{folder}/store" }\n'
NODES = 3
READY_S_MAX = 60.0
PAYLOAD_BYTES = 128
PUBLISH_COUNT = 300_000
WAIT_COUNT = 3_000
QUICK_PART = 100
FIGURES = {
    "publish": "published per s, many acknowledgements outstanding",
    "publish_cpu": "the same per CPU s of all servers",
    "wait_p50": "publish and wait for each acknowledgement, p50 us",
    "wait_p99": "the same, p99 us",
    "read": "read per s, batches of 500",
    "read_cpu": "the same per CPU s of all servers",
}
LESS_IS_BETTER = ("wait_p50", "wait_p99")
Figures = dict[str, float]


class Cluster(Server):
    """A cluster that is used as one server: clients connect to its first node."""

    def __init__(self) -> None:
        super().__init__("{conf}")
        ports = [free_port() for _ in range(NODES * len(PORT_KINDS))]
        self._plan = plan_local("bench", NODES, ports)
        self.port = self._plan.nodes[0].client_port

    def __enter__(self) -> "Cluster":
        self._folder = Path(tempfile.mkdtemp(prefix="bench-"))
        self._nodes = [NodeProcess(self._plan, node, self._folder) for node in self._plan.nodes]
        try:
            for node in self._nodes:
                node.start(find_binary())
            wait_until_well(self._plan, self._nodes, READY_S_MAX, lambda _health: None)
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def sessions(self) -> list[int]:
        """Each node is the leader of a session of its own."""
        return [node.pid for node in self._nodes if node.pid is not None]

    def stop(self) -> None:
        """End all nodes, and the folder is gone."""
        for node in self._nodes:
            node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class Setup:
    """What is measured; an empty command stands for the cluster."""

    title: str
    command: str
    replicas: int = 1


SETUPS = (
    Setup("Tradewind", installed("tradewind-server")),
    Setup("nats-server", installed("nats-server")),
    Setup("cluster, 3 copies", "", NODES),
)


@contextmanager
def running(setup: Setup) -> Iterator[tuple[Server, list[int]]]:
    """Servers on an empty folder, and the sessions of their processes."""
    if setup.command:
        with Server(setup.command, JETSTREAM) as server:
            yield server, [server.session]
    else:
        with Cluster() as cluster:
            yield cluster, cluster.sessions


def measure(setup: Setup, scale: Scale) -> Figures:
    """One round with one setup."""
    total = scale.count(PUBLISH_COUNT, QUICK_PART)
    figures: Figures = {}
    with running(setup) as (server, sessions), StreamApi(server) as api:
        create_stream(api, num_replicas=setup.replicas)
        # Refused, so that nothing is stored.
        api.wait_until_heard("bench.0", "Nats-Expected-Stream: none")
        with publisher(server, PAYLOAD_BYTES, SUBJECT_COUNT) as load:
            load.publish(max(total // 20, 1), window=WINDOW)
            with ExitStack() as stack:
                meters = [stack.enter_context(Meter(session)) for session in sessions]
                fill(load, total)
            _rates(figures, "publish", meters, total)
            load.publish(scale.count(WAIT_COUNT, QUICK_PART), window=1)
            latencies_ns = sorted(load.latencies_ns())
        figures["wait_p50"] = percentile(latencies_ns, 0.50) / 1000
        figures["wait_p99"] = percentile(latencies_ns, 0.99) / 1000
        api.request(*consumer_request("C", durable_name="C"))
        api.wait_until_heard(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.C", payload="{")
        with reader(server, PAYLOAD_BYTES, SUBJECT_COUNT) as receiver, ExitStack() as stack:
            meters = [stack.enter_context(Meter(session)) for session in sessions]
            name = f"{STREAM}.C".encode()
            receiver.pull(name, total, batch=PULL_BATCH, outstanding=1, acknowledge=False)
        _rates(figures, "read", meters, total)
    return figures


def _rates(figures: Figures, name: str, meters: Sequence[Meter], count: int) -> None:
    figures[name] = count / meters[-1].wall_s
    figures[f"{name}_cpu"] = count / sum(meter.server_cpu_s for meter in meters)


def table(rounds: dict[str, list[Figures]], *, markdown: bool) -> list[str]:
    """A row for each figure: the medians, and how many times better one Tradewind server is."""
    titles = [setup.title for setup in SETUPS]
    lines = [["", *titles, "Tradewind to cluster"]]
    for key, text in FIGURES.items():
        values = [statistics.median(one[key] for one in rounds[title]) for title in titles]
        ours, cluster = values[0], values[-1]
        ratio = cluster / ours if key in LESS_IS_BETTER else ours / cluster
        lines.append([text, *map(format_value, values), format_ratio(ratio)])
    if markdown:
        rows = ["| " + " | ".join(line) + " |" for line in lines]
        return [rows[0], "|---|" + "---:|" * (len(lines[0]) - 1), *rows[1:]]
    return [f"{line[0]:52}" + "".join(f"{cell:>22}" for cell in line[1:]) for line in lines]


def main(argv: Sequence[str] | None = None) -> int:
    """Run all rounds, interleaved, and print the table."""
    flags = argparse.ArgumentParser(
        prog="python -m benchmarks.sizing", description=(__doc__ or "").splitlines()[0]
    )
    flags.add_argument("--rounds", type=positive, metavar="N", help="default 3, 1 with --quick")
    flags.add_argument("--quick", action="store_true", help="a part of the load: a smoke test")
    flags.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    arguments = flags.parse_args(argv)
    ensure_loadgen()
    rounds: dict[str, list[Figures]] = {setup.title: [] for setup in SETUPS}
    for number in range(arguments.rounds or (1 if arguments.quick else 3)):
        # To and fro, so that a drift of the machine hits all.
        for setup in SETUPS if number % 2 == 0 else reversed(SETUPS):
            rounds[setup.title].append(measure(setup, Scale(arguments.quick)))
    print("\n".join(table(rounds, markdown=arguments.markdown)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
