"""The health of a cluster on this machine: which nodes respond, and which one leads.

Owns the requests to the monitoring pages of the nodes, each with a deadline. It never changes
anything.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from tradewind.cluster.cluster_plan import ClusterError, ClusterPlan, Node
from tradewind.cluster.processes import NodeProcess

ANSWER_SECONDS: Final = 2.0
ANSWER_BYTES_MAX: Final = 1 << 20
POLL_SECONDS: Final = 0.1


class NodeHealth(msgspec.Struct, frozen=True):
    """The state of a node. `problem` is empty if the node is well."""

    number: int
    name: str
    url: str
    pid: int | None
    problem: str
    is_leader: bool = False
    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0


class ClusterHealth(msgspec.Struct, frozen=True):
    """All nodes, and the leader of JetStream by name; "" while there is none."""

    name: str
    leader: str
    nodes: tuple[NodeHealth, ...]

    @property
    def is_well(self) -> bool:
        """Whether all nodes are well and one of them leads."""
        return bool(self.leader) and not any(node.problem for node in self.nodes)


def look(plan: ClusterPlan, processes: list[NodeProcess]) -> ClusterHealth:
    """Query all nodes at once."""
    with ThreadPoolExecutor(len(processes)) as pool:
        answers = list(pool.map(_look_at, processes))
    running = {node.name for node in plan.nodes} - {
        health.name for health, _ in answers if health.pid is None
    }
    # A node that has lost the others remembers a leader that has left.
    claims = [leader for health, leader in answers if leader in running and not health.problem]
    leader = max(set(claims), key=claims.count) if claims else ""
    nodes = (
        msgspec.structs.replace(health, is_leader=health.name == leader) for health, _ in answers
    )
    return ClusterHealth(plan.name, leader, tuple(nodes))


def wait_until_well(
    plan: ClusterPlan,
    processes: list[NodeProcess],
    seconds: float,
    progress: Callable[[ClusterHealth], None],
    steady_seconds: float = 0.0,
) -> ClusterHealth:
    """Wait until every node is well and JetStream has a leader; ClusterError names the problems.

    A node that has just started claims for a moment to be well, before it finds that its streams
    lag behind: `steady_seconds` is how long all nodes must have been well.
    """
    deadline = time.monotonic() + seconds
    well_since: float | None = None
    while True:
        health = look(plan, processes)
        progress(health)
        now = time.monotonic()
        well_since = (well_since or now) if health.is_well else None
        if well_since is not None and (now - well_since >= steady_seconds or now > deadline):
            return health
        for process, node in zip(processes, health.nodes, strict=True):
            if node.pid is None:
                raise ClusterError(f"node {node.number} has exited: {process.last_words()}")
        if time.monotonic() > deadline:
            problems = [f"{node.name}: {node.problem}" for node in health.nodes if node.problem]
            shown = "; ".join(problems or ["JetStream has no leader"])
            raise ClusterError(f"the cluster is not ready after {seconds:.0f} s: {shown}")
        time.sleep(POLL_SECONDS)


def _look_at(process: NodeProcess) -> tuple[NodeHealth, str]:
    """The health of one node, and its view of who leads."""
    node = process.node
    pid = process.pid
    if pid is None:
        return NodeHealth(node.number, node.name, node.url, None, "not running"), ""
    try:
        health = _ask(node, "/healthz")
        jetstream = _ask(node, "/jsz")
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        return NodeHealth(node.number, node.name, node.url, pid, f"no answer: {reason}"), ""
    problem = "" if health.get("status") == "ok" else str(health.get("error") or "not ready")
    found = NodeHealth(
        node.number,
        node.name,
        node.url,
        pid,
        problem,
        streams=int(jetstream.get("streams", 0)),
        consumers=int(jetstream.get("consumers", 0)),
        messages=int(jetstream.get("messages", 0)),
        bytes=int(jetstream.get("bytes", 0)),
    )
    return found, str((jetstream.get("meta_cluster") or {}).get("leader", ""))


def _ask(node: Node, page: str) -> dict[str, Any]:
    """The document of a monitoring page; OSError if there is no valid response."""
    try:
        address = node.monitor_url + page
        with urllib.request.urlopen(address, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            body = answer.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        # An unwell server responds with a status of its own.
        with error:
            body = error.read(ANSWER_BYTES_MAX)
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise OSError(f"{page} is not JSON") from None
