"""The plan of a cluster: its nodes, their addresses and their folders.

Owns the plan's file (`cluster.json` in the folder of the cluster) and all checks of its values. It
never starts anything; `configuration` turns a plan into files for nats-server.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

import msgspec

from tradewind.errors import TradewindError
from tradewind.private_files import replace_private

PLAN_FILE: Final = "cluster.json"
NODES_MIN: Final = 2
NODES_MAX: Final = 15
PORT_MAX: Final = 65535
# The listeners of a node, in the order of the ports of `plan_local`.
PORT_KINDS: Final = ("clients", "routes", "monitoring", "leaf nodes")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}")


class ClusterError(TradewindError):
    """A cluster cannot be planned, started or stopped as requested."""


class Node(msgspec.Struct, frozen=True):
    """One server of a cluster. `number` counts from 1."""

    number: int
    name: str
    host: str
    client_port: int
    route_port: int
    monitor_port: int
    leaf_port: int = 0  # 0: leaf nodes are not accepted

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        return f"nats://{_bracketed(self.host)}:{self.client_port}"

    @property
    def route_address(self) -> str:
        """The address that the other nodes connect to."""
        return f"{_bracketed(self.host)}:{self.route_port}"

    @property
    def monitor_url(self) -> str:
        """The URL of its monitoring pages."""
        return f"http://{_bracketed(self.host)}:{self.monitor_port}"

    @property
    def leaf_url(self) -> str:
        """The URL that leaf nodes connect to; "" if they cannot."""
        return f"nats-leaf://{_bracketed(self.host)}:{self.leaf_port}" if self.leaf_port else ""


class ClusterPlan(msgspec.Struct, frozen=True):
    """All inputs of a cluster's files. The passwords are for the cluster's own servers and its
    administrators; clients of the global account need none.
    """

    name: str
    nodes: tuple[Node, ...]
    system_password: str
    route_password: str
    domain: str = ""  # of JetStream, so that leaf nodes can name it

    @property
    def url(self) -> str:
        """The URL for clients: all nodes."""
        return ",".join(node.url for node in self.nodes)

    @property
    def leaf_urls(self) -> tuple[str, ...]:
        """The URLs for leaf nodes: all nodes that accept any."""
        return tuple(node.leaf_url for node in self.nodes if node.leaf_port)

    def node(self, number: int) -> Node:
        """The node with a number; ClusterError if there is none."""
        for node in self.nodes:
            if node.number == number:
                return node
        raise ClusterError(
            f"cluster {self.name!r} has no node {number}: its nodes are 1 to {len(self.nodes)}"
        )


def plan_local(name: str, count: int, ports: list[int], domain: str = "") -> ClusterPlan:
    """The plan of a cluster on loopback; `ports` has four per node: clients, routes, monitoring,
    leaf nodes.
    """
    each = len(PORT_KINDS)
    assert len(ports) == each * count
    nodes = (
        Node(index + 1, f"{name}-{index + 1}", "127.0.0.1", *ports[each * index :][:each])
        for index in range(count)
    )
    return _plan(name, tuple(nodes), domain)


def plan_hosts(
    name: str,
    hosts: list[str],
    client_port: int,
    route_port: int,
    leaf_port: int = 0,
    domain: str = "",
) -> ClusterPlan:
    """The plan of a cluster of machines, with the same ports on each. Monitoring is only reachable
    on the machine itself.
    """
    check_count(len(hosts))
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ClusterError(f"{host!r} is not a host name or an address")
    doubled = next((host for host in hosts if hosts.count(host) > 1), None)
    if doubled is not None:
        raise ClusterError(f"host {doubled!r} is named twice; each node needs its own machine")
    given = {"--port": client_port, "--route-port": route_port}
    if leaf_port:
        given["--leaf-port"] = leaf_port
    for what, port in given.items():
        if not 1 <= port <= PORT_MAX:
            raise ClusterError(f"{what} must be a port from 1 to {PORT_MAX}, not {port}")
    if len(set(given.values())) < len(given):
        raise ClusterError(f"{' and '.join(given)} must differ")
    nodes = (
        Node(index + 1, f"{name}-{index + 1}", host, client_port, route_port, 8222, leaf_port)
        for index, host in enumerate(hosts)
    )
    return _plan(name, tuple(nodes), domain)


def _plan(name: str, nodes: tuple[Node, ...], domain: str) -> ClusterPlan:
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"the name of a cluster must be up to 64 letters, digits, '-' and '_', not {name!r}"
        )
    if domain and not _NAME.fullmatch(domain):
        raise ClusterError(f"domain must be up to 64 letters, digits, '-' and '_', not {domain!r}")
    passwords = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    return ClusterPlan(name, nodes, *passwords, domain)


def check_count(count: int) -> int:
    """The number if a cluster may have that many nodes; ClusterError otherwise."""
    if not NODES_MIN <= count <= NODES_MAX:
        raise ClusterError(
            f"a cluster must have {NODES_MIN} to {NODES_MAX} nodes, usually 3, not {count}"
        )
    return count


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# ------------------------------------------------------------------ the file


def save_plan(folder: Path, plan: ClusterPlan) -> None:
    """Write the plan, readable by its owner only; the file is replaced as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_private(folder / PLAN_FILE, msgspec.json.format(msgspec.json.encode(plan)))


def load_plan(folder: Path) -> ClusterPlan:
    """The plan in a folder; ClusterError if there is none or it is damaged."""
    path = folder / PLAN_FILE
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=ClusterPlan)
    except FileNotFoundError:
        raise ClusterError(f"no cluster in {folder}: {PLAN_FILE} is missing") from None
    except OSError as error:
        raise ClusterError(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ClusterError(f"{path}: not the plan of a cluster: {error}") from None
    check_count(len(plan.nodes))
    return plan
