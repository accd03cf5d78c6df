"""Files for nats-server and systemd, generated from the plan of a cluster.

Owns their texts. It never reads anything back and never runs anything.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from tradewind.cluster.cluster_plan import ClusterPlan, Node
from tradewind.systemd import ServiceUnit

_SERVER: Final = """\
# Node {number} of {count} of the cluster {cluster}, for nats-server.
server_name: {name}
listen: {listen}
http: {monitor}
{log}
jetstream {{
  store_dir: {store}
{domain}\
}}
{tls}
cluster {{
  name: {cluster}
  listen: {route_listen}
  authorization {{ user: route, password: {route_password} }}
{route_tls}\
  routes: [
{routes}
  ]
}}
{leafnodes}
# Only the system account has a user here: clients without a login use the global account.
accounts {{
  $SYS {{ users: [ {{ user: system, password: {system_password} }} ] }}
}}
"""

_LEAFNODES: Final = """
leafnodes {{
  listen: {listen}
{tls}\
}}
"""

_TLS: Final = """
{indent}tls {{
{indent}  cert_file: {cert}
{indent}  key_file: {key}
{indent}  ca_file: {ca}
{indent}  {verify}
{indent}}}
"""


class TlsFiles(msgspec.Struct, frozen=True):
    """The paths of the certificates on each host; nodes authenticate each other with them."""

    cert: str
    key: str
    ca: str


def local_configuration(plan: ClusterPlan, node: Node, folder: str) -> str:
    """The configuration of a node on this machine, with all its files in a folder."""
    return _configuration(
        plan,
        node,
        listen=f"{node.host}:{node.client_port}",
        route_listen=f"{node.host}:{node.route_port}",
        store=f"{folder}/jetstream",
        log=f"log_file: {_quoted(f'{folder}/server.log')}",
    )


def host_configuration(
    plan: ClusterPlan, node: Node, store: str, tls: TlsFiles | None = None
) -> str:
    """The configuration of a node with its own host; it logs to its standard error."""
    return _configuration(
        plan,
        node,
        listen=f"0.0.0.0:{node.client_port}",
        route_listen=f"0.0.0.0:{node.route_port}",
        store=store,
        tls=tls,
    )


def systemd_unit(plan: ClusterPlan, node: Node, binary: str, config: str, store: str) -> str:
    """A unit that runs a node; SIGUSR2 enters lame duck mode, in which clients and leaderships
    move.
    """
    return ServiceUnit(
        description=f"nats-server, node {node.name} of the cluster {plan.name}",
        command=f"{binary} -c {config}",
        store=store,
        user="nats",
        stop_signal="SIGUSR2",
        stop_seconds=150,
    ).text()


def _configuration(
    plan: ClusterPlan,
    node: Node,
    *,
    listen: str,
    route_listen: str,
    store: str,
    log: str = "",
    tls: TlsFiles | None = None,
) -> str:
    routes = (
        f"    {_quoted(f'nats-route://route:{plan.route_password}@{other.route_address}')}"
        for other in plan.nodes
    )
    leafnodes = ""
    if node.leaf_port:
        host = listen.rpartition(":")[0]
        leafnodes = _LEAFNODES.format(
            listen=_quoted(f"{host}:{node.leaf_port}"),
            tls="" if tls is None else _tls(tls, "  ", "verify: false").lstrip("\n"),
        )
    return _SERVER.format(
        number=node.number,
        count=len(plan.nodes),
        cluster=_quoted(plan.name),
        name=_quoted(node.name),
        listen=_quoted(listen),
        monitor=_quoted(f"127.0.0.1:{node.monitor_port}"),
        log=log,
        store=_quoted(store),
        domain=f"  domain: {_quoted(plan.domain)}\n" if plan.domain else "",
        leafnodes=leafnodes,
        tls="" if tls is None else _tls(tls, "", "verify: false"),
        route_listen=_quoted(route_listen),
        route_password=_quoted(plan.route_password),
        route_tls="" if tls is None else _tls(tls, "  ", "verify: true").lstrip("\n"),
        routes="\n".join(routes),
        system_password=_quoted(plan.system_password),
    )


def _tls(tls: TlsFiles, indent: str, verify: str) -> str:
    return _TLS.format(
        indent=indent,
        cert=_quoted(tls.cert),
        key=_quoted(tls.key),
        ca=_quoted(tls.ca),
        verify=verify,
    )


def _quoted(text: str) -> str:
    """A string of the configuration language, which has the escapes of JSON."""
    return json.dumps(text)
