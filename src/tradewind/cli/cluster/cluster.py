"""`tradewind cluster`: runs a nats-server cluster on this machine, or writes files for real hosts.

Owns the commands and their output; `tradewind.cluster` does the work.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import msgspec

from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.output import Table, line, note, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.text_formats import size_text
from tradewind.cluster.cluster_health import ClusterHealth, look, wait_until_well
from tradewind.cluster.cluster_plan import (
    PLAN_FILE,
    PORT_MAX,
    ClusterPlan,
    check_count,
    load_plan,
    plan_hosts,
    plan_local,
    save_plan,
)
from tradewind.cluster.configuration import TlsFiles, host_configuration, systemd_unit
from tradewind.cluster.processes import NodeProcess, find_binary
from tradewind.private_files import replace_private

app = CommandApp("Run a nats-server cluster on this machine, or configure one for real hosts")

# Distances of the ports of a node from its client port: of clients, routes, monitoring, leaf nodes.
_DISTANCES: Final = (0, 2000, 4000, 3200)
_STEADY_SECONDS: Final = 1.0
_FIRST_MAX: Final = PORT_MAX - max(_DISTANCES)

FolderFlag = Annotated[
    Path, Option("--dir", "-d", help="Folder of the cluster", metavar="FOLDER", show_default=True)
]
WaitFlag = Annotated[
    float, Option("--wait", help="Seconds to wait until JetStream has a leader", min=0.0)
]
NodeArgument = Annotated[int, Argument(min=1, help="Number of the node, from 1")]
DomainFlag = Annotated[
    str, Option("--domain", help="JetStream domain, for leaf nodes that refer to it")
]
DEFAULT_FOLDER: Final = Path("cluster")
DEFAULT_NODES: Final = 3


@app.command("up", aliases=("start",))
def up(
    nodes: Annotated[
        int | None, Option("--nodes", "-n", min=1, help="Number of servers [default: 3]")
    ] = None,
    folder: FolderFlag = DEFAULT_FOLDER,
    name: Annotated[str, Option("--name", help="Name of the cluster")] = "local",
    port: Annotated[
        int,
        Option(
            *("--port", "-p"),
            min=0,
            max=65535,
            help="Client port of the first node; 0 for free ports",
        ),
    ] = 4222,
    domain: DomainFlag = "",
    wait: WaitFlag = 60.0,
    json: JsonFlag = False,
) -> None:
    """Start a cluster, or its stopped nodes, and wait until JetStream has a leader.

    The nodes are nats-server processes on 127.0.0.1. They keep running until `cluster stop`, and
    their streams survive until the next `cluster up`. Clients need no login; the system account has
    the user `system` with the password in FOLDER/cluster.json.
    """
    binary = find_binary()
    folder = folder.absolute()
    if (folder / PLAN_FILE).exists():
        plan = load_plan(folder)
        if nodes not in (None, len(plan.nodes)):
            raise CommandError(
                f"--nodes: the cluster in {folder} has {len(plan.nodes)}; use another --dir",
                exit_code=EXIT_USAGE,
            )
    else:
        count = check_count(DEFAULT_NODES if nodes is None else nodes)
        plan = plan_local(name, count, _ports(count, port), domain)
        save_plan(folder, plan)
    processes = _processes(plan, folder)
    for process in processes:
        process.start(binary)
    health = wait_until_well(plan, processes, wait, _Progress())
    _show(plan, health, json=json)
    if not json:
        line(f"\nConnect with: --server {plan.url}")
        if plan.leaf_urls:
            line(f"Leaf nodes: {','.join(plan.leaf_urls)}")


@app.command("status", aliases=("st", "info"))
def status(folder: FolderFlag = DEFAULT_FOLDER, json: JsonFlag = False) -> int:
    """Show the nodes and the leader; exit code 1 unless all nodes are healthy."""
    plan = load_plan(folder.absolute())
    health = look(plan, _processes(plan, folder.absolute()))
    _show(plan, health, json=json)
    return 0 if health.is_well else EXIT_FAILED


@app.command("stop", aliases=("down",))
def stop(folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Stop all nodes; their data stays."""
    plan = load_plan(folder.absolute())
    processes = _processes(plan, folder.absolute())
    for process in processes:
        if process.stop():
            line(f"Stopped node {process.node.number} ({process.node.name})")
    line(
        f"Cluster {plan.name} is stopped; start it again with: tradewind cluster up --dir {folder}"
    )


@app.command("kill")
def kill(number: NodeArgument, folder: FolderFlag = DEFAULT_FOLDER) -> None:
    """Kill a node with SIGKILL to simulate a crash."""
    process = _process(number, folder)
    if not process.kill():
        raise CommandError(f"node {number} is not running", _restart_hint(number, folder))
    line(f"Killed node {number} ({process.node.name})")
    line(_restart_hint(number, folder))


@app.command("restart")
def restart(
    number: NodeArgument, folder: FolderFlag = DEFAULT_FOLDER, wait: WaitFlag = 60.0
) -> None:
    """Restart a node gracefully and wait until it is healthy."""
    process = _process(number, folder)
    process.stop()
    process.start(find_binary())
    plan = process.plan
    processes = _processes(plan, folder.absolute())
    wait_until_well(plan, processes, wait, _Progress(), _STEADY_SECONDS)
    line(f"Node {number} ({process.node.name}) is healthy")


@app.command("config")
def config(
    hosts: Annotated[
        str, Option("--hosts", help="Host names or addresses, one per node", metavar="A,B,C")
    ],
    folder: Annotated[
        Path, Option("--dir", "-d", help="Folder for the files", metavar="FOLDER")
    ] = Path("cluster-files"),
    name: Annotated[str, Option("--name", help="Name of the cluster")] = "cluster",
    port: Annotated[int, Option("--port", "-p", min=1, max=65535, help="Client port")] = 4222,
    route_port: Annotated[
        int, Option("--route-port", min=1, max=65535, help="Port between the nodes")
    ] = 6222,
    leaf_port: Annotated[
        int,
        Option("--leaf-port", min=0, max=65535, help="Port for leaf nodes, often 7422; 0 for none"),
    ] = 0,
    domain: DomainFlag = "",
    store: Annotated[
        str, Option("--store", help="Folder for JetStream on each host", metavar="FOLDER")
    ] = "/var/lib/nats",
    binary: Annotated[
        str, Option("--binary", help="nats-server on each host", metavar="FILE")
    ] = "/usr/local/bin/nats-server",
    tls_cert: Annotated[
        str, Option("--tls-certificate", help="Certificate on each host", metavar="FILE")
    ] = "",
    tls_key: Annotated[
        str, Option("--tls-key-file", help="Private key of the certificate", metavar="FILE")
    ] = "",
    tls_ca: Annotated[
        str, Option("--tls-authority", help="Authority (CA) of all certificates", metavar="FILE")
    ] = "",
    force: ForceFlag = False,
) -> None:
    """Write the configuration files and systemd units of a cluster on real hosts.

    Each host gets NAME-N.conf and NAME-N.service. The files contain random passwords for the routes
    and the system account, and only you can read them.
    """
    names = [each.strip() for each in hosts.split(",")]
    plan = plan_hosts(name, names, port, route_port, leaf_port, domain)
    given = [tls_cert, tls_key, tls_ca]
    if any(given) and not all(given):
        raise CommandError(
            "TLS needs all of --tls-certificate, --tls-key-file and --tls-authority",
            exit_code=EXIT_USAGE,
        )
    tls = TlsFiles(tls_cert, tls_key, tls_ca) if all(given) else None
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        confirm_or_stop(f"Replace the files of {name} in {folder}", force=force)
    for node in plan.nodes:
        text = host_configuration(plan, node, store, tls)
        replace_private(folder / f"{node.name}.conf", text.encode())
        unit = systemd_unit(plan, node, binary, f"/etc/nats/{node.name}.conf", store)
        replace_private(folder / f"{node.name}.service", unit.encode())
        line(f"{node.host}: {node.name}.conf to /etc/nats/, {node.name}.service to systemd")
    if tls is None:
        note("Without TLS, messages and passwords cross the network in clear text.")


# ------------------------------------------------------------------ inside


def _processes(plan: ClusterPlan, folder: Path) -> list[NodeProcess]:
    return [NodeProcess(plan, node, folder) for node in plan.nodes]


def _process(number: int, folder: Path) -> NodeProcess:
    plan = load_plan(folder.absolute())
    return NodeProcess(plan, plan.node(number), folder.absolute())


def _restart_hint(number: int, folder: Path) -> str:
    return f"start it again: tradewind cluster restart {number} --dir {folder}"


def _ports(nodes: int, first: int) -> list[int]:
    """Unused ports for the nodes; all are held open until the last is found, so they differ."""
    if first and not 1 <= first <= _FIRST_MAX - nodes:
        raise CommandError(
            f"--port: {first} is not between 1 and {_FIRST_MAX - nodes}, or 0",
            exit_code=EXIT_USAGE,
        )
    with ExitStack() as held:
        found = []
        for index in range(nodes):
            for distance in _DISTANCES:
                wanted = first + index + distance if first else 0
                found.append(_hold_port(held, wanted))
        return found


def _hold_port(held: ExitStack, wanted: int) -> int:
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", wanted))
    except OSError as error:
        raise CommandError(
            f"port {wanted} of 127.0.0.1 cannot be used: {error.strerror}",
            "or use free ports: tradewind cluster up --port 0",
        ) from None
    return int(listener.getsockname()[1])


class _Progress:
    """Says on the error output what the cluster waits for, once per change."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, health: ClusterHealth) -> None:
        well = sum(not node.problem for node in health.nodes)
        leader = f"leader {health.leader}" if health.leader else "no leader yet"
        text = f"{well} of {len(health.nodes)} nodes are healthy, {leader}"
        if text != self._said:
            self._said = text
            note(text)


def _show(plan: ClusterPlan, health: ClusterHealth, *, json: bool) -> None:
    if json:
        nodes = [msgspec.structs.asdict(node) for node in health.nodes]
        print_json(
            {
                "name": plan.name,
                "url": plan.url,
                "leafnode_urls": list(plan.leaf_urls),
                "leader": health.leader,
                "nodes": nodes,
            }
        )
        return
    table = Table(
        f"Cluster {plan.name}",
        *("Node", "Name", "Process", "State", "Streams", "Messages", "Bytes"),
        shorten=("State",),
        drop=("Process", "Bytes", "Streams"),
    )
    for node in health.nodes:
        state = node.problem or ("leader" if node.is_leader else "well")
        pid = "" if node.pid is None else str(node.pid)
        size = size_text(node.bytes)
        table.row(node.number, node.name, pid, state, node.streams, node.messages, size)
    table.print()
    if not health.leader:
        line("JetStream has no leader at the moment; more than half of the nodes must run.")
