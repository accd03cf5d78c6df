"""A nats-server cluster on this machine for tests, through the package that users run it with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import tradewind.sync
from ports import free_ports
from tradewind.client.api_errors import ClusterNotAvailableError, StreamNotFoundError
from tradewind.client.errors import DisconnectedError, JetStreamUnavailableError, NoLeaderError
from tradewind.cluster.cluster_health import wait_until_well
from tradewind.cluster.cluster_plan import ClusterPlan, plan_local
from tradewind.cluster.processes import NodeProcess, find_binary

READY_SECONDS = 60.0
POLL_SECONDS = 0.1
# The last one: a node that has just started does not know yet who answers.
NOT_NOW = (
    ClusterNotAvailableError, NoLeaderError, DisconnectedError, JetStreamUnavailableError,
)  # fmt: skip
Result = TypeVar("Result")


class LocalCluster:
    """Three servers and what drills do to them."""

    def __init__(self, folder: Path) -> None:
        self.plan: ClusterPlan = plan_local("drill", 3, free_ports(12))
        self.nodes = [NodeProcess(self.plan, node, folder) for node in self.plan.nodes]

    @property
    def url(self) -> str:
        return self.plan.url

    def start(self) -> None:
        """Start what does not run, and wait until all are well."""
        for node in self.nodes:
            node.start(find_binary())
        wait_until_well(self.plan, self.nodes, READY_SECONDS, lambda _health: None)

    def named(self, name: str) -> NodeProcess:
        return next(node for node in self.nodes if node.node.name == name)

    def leader_of(self, connection: Any, stream: str) -> NodeProcess:
        """The node that leads a stream; it has one when a request about it is answered."""
        streams = connection.jetstream_manager().streams
        return self.named(patiently(lambda: streams.info(stream)).cluster.leader)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


def patiently(ask: Callable[[], Result]) -> Result:
    """The answer to a request that fails while the cluster elects a leader, or a node dies."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            return ask()
        except NOT_NOW:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)


def remove_stream(streams: Any, name: str) -> None:
    """Delete a stream; it may be gone although the answer to that was lost."""
    with suppress(StreamNotFoundError):
        patiently(lambda: streams.delete(name))


@contextmanager
def local_cluster(folder: Path) -> Iterator[LocalCluster]:
    """A running cluster; its processes are gone afterwards."""
    cluster = LocalCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def replicated_stream(cluster: LocalCluster, name: str, subject: str) -> Iterator[Any]:
    """A connection to a cluster with a stream on all three nodes, which is gone afterwards."""
    with tradewind.sync.connect(cluster.url, timeout=30) as connection:
        streams = connection.jetstream_manager().streams
        patiently(lambda: streams.add(name=name, subjects=[subject], num_replicas=3))
        try:
            yield connection
        finally:
            cluster.start()
            remove_stream(streams, name)
