"""Plans of clusters and the files that are made from them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness import wait_for
from tradewind.cluster.cluster_plan import (
    PLAN_FILE,
    ClusterError,
    check_count,
    load_plan,
    plan_hosts,
    plan_local,
    save_plan,
)
from tradewind.cluster.configuration import (
    TlsFiles,
    host_configuration,
    local_configuration,
    systemd_unit,
)
from tradewind.cluster.processes import PROCESS_FILE, NodeProcess, ProcessRecord, find_binary

PORTS = list(range(5000, 5012))


def test_nodes_of_a_local_plan_have_ports_of_their_own() -> None:
    plan = plan_local("local", 3, PORTS)
    used = [
        p for n in plan.nodes for p in (n.client_port, n.route_port, n.monitor_port, n.leaf_port)
    ]
    assert used == PORTS
    assert plan.url == "nats://127.0.0.1:5000,nats://127.0.0.1:5004,nats://127.0.0.1:5008"
    assert plan.leaf_urls[0] == "nats-leaf://127.0.0.1:5003"


def test_two_plans_have_other_passwords() -> None:
    first, second = (plan_local("local", 3, PORTS) for _ in range(2))
    passwords = {
        first.system_password,
        first.route_password,
        second.system_password,
        second.route_password,
    }
    assert len(passwords) == 4


@pytest.mark.parametrize("count", [-1, 0, 1, 16, 2**63])
def test_counts_that_make_no_cluster_are_refused(count: int) -> None:
    with pytest.raises(
        ClusterError, match=f"a cluster must have 2 to 15 nodes, usually 3, not {count}"
    ):
        check_count(count)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 65, 'a"b', "a\nb"])
def test_names_that_would_break_a_configuration_are_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="the name of a cluster must be up to 64"):
        plan_local(name, 3, PORTS)


@pytest.mark.parametrize("domain", ["a b", "a.b", "x" * 65, 'a"b', ">"])
def test_domains_that_could_not_be_named_are_refused(domain: str) -> None:
    with pytest.raises(ClusterError, match="domain must be up to 64"):
        plan_local("local", 3, PORTS, domain)


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["a", "b", "a"], "host 'a' is named twice"),
        (["a", "", "c"], "'' is not a host name"),
        (["a", 'b"', "c"], "is not a host name"),
        (["a"], "2 to 15 nodes, usually 3, not 1"),
    ],
)
def test_hosts_that_cannot_be_are_named(hosts: list[str], text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        plan_hosts("c", hosts, 4222, 6222)


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        ((0, 6222), "--port must be a port from 1 to 65535, not 0"),
        ((4222, 65536), "--route-port must be a port from 1 to 65535, not 65536"),
        ((4222, 4222), "--port and --route-port must differ"),
        ((4222, 6222, -1), "--leaf-port must be a port from 1 to 65535, not -1"),
        ((4222, 6222, 6222), "--port and --route-port and --leaf-port must differ"),
    ],
)
def test_ports_that_cannot_be_are_named(ports: tuple[int, ...], text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        plan_hosts("c", ["a", "b", "c"], *ports)


def test_a_plan_is_read_back_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    plan = plan_local("local", 3, PORTS)
    save_plan(tmp_path / "new", plan)
    assert load_plan(tmp_path / "new") == plan
    assert stat.S_IMODE((tmp_path / "new" / PLAN_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": 1}', b'{"name":"x","nodes":[]}'])
def test_a_damaged_plan_is_an_error_with_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PLAN_FILE).write_bytes(content)
    with pytest.raises(ClusterError, match=PLAN_FILE):
        load_plan(tmp_path)


def test_a_plan_from_before_there_were_leaf_nodes_is_read(tmp_path: Path) -> None:
    """Such a cluster has no port for them, and goes on without."""
    plan = plan_local("local", 3, PORTS)
    save_plan(tmp_path, plan)
    old = msgspec.json.decode((tmp_path / PLAN_FILE).read_bytes())
    del old["domain"]
    for node in old["nodes"]:
        del node["leaf_port"]
    (tmp_path / PLAN_FILE).write_bytes(msgspec.json.encode(old))
    read = load_plan(tmp_path)
    assert read.leaf_urls == ()
    assert "leafnodes" not in local_configuration(read, read.nodes[0], str(tmp_path))


def test_a_folder_without_a_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no cluster in"):
        load_plan(tmp_path)


def test_an_unknown_node_is_an_error_with_those_there_are() -> None:
    with pytest.raises(ClusterError, match="has no node 4: its nodes are 1 to 3"):
        plan_local("local", 3, PORTS).node(4)


def checked(tmp_path: Path, text: str) -> None:
    """nats-server itself accepts the configuration."""
    path = tmp_path / "server.conf"
    path.write_text(text)
    done = subprocess.run(
        [find_binary(), "-t", "-c", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nats_server_accepts_what_is_written_for_this_machine(tmp_path: Path) -> None:
    plan = plan_local("local", 3, PORTS, "hub")
    assert 'domain: "hub"' in local_configuration(plan, plan.nodes[1], str(tmp_path))
    checked(tmp_path, local_configuration(plan, plan.nodes[1], str(tmp_path / 'a "b" c')))


def test_nats_server_accepts_what_is_written_for_hosts(tmp_path: Path) -> None:
    import trustme

    authority = trustme.CA()
    made = authority.issue_cert("a.example")
    files = [str(tmp_path / name) for name in ("cert.pem", "key.pem", "ca.pem")]
    made.cert_chain_pems[0].write_to_path(files[0])
    made.private_key_pem.write_to_path(files[1])
    authority.cert_pem.write_to_path(files[2])
    plan = plan_hosts("prod", ["a.example", "10.0.0.2", "fe80::1"], 4222, 6222)
    for node in plan.nodes:
        checked(tmp_path, host_configuration(plan, node, str(tmp_path), TlsFiles(*files)))
        checked(tmp_path, host_configuration(plan, node, str(tmp_path)))
    leaf = plan_hosts("prod", ["a.example", "b", "c"], 4222, 6222, 7422, "hub")
    checked(tmp_path, host_configuration(leaf, leaf.nodes[0], str(tmp_path), TlsFiles(*files)))
    checked(tmp_path, host_configuration(leaf, leaf.nodes[0], str(tmp_path)))
    text = host_configuration(plan, plan.nodes[0], "/var/lib/nats")
    assert "leafnodes" not in text
    assert f'"nats-route://route:{plan.route_password}@[fe80::1]:6222"' in text


def test_a_unit_hands_over_before_it_ends() -> None:
    plan = plan_hosts("prod", ["a", "b", "c"], 4222, 6222)
    unit = systemd_unit(plan, plan.nodes[0], "/usr/bin/nats-server", "/etc/n.conf", "/data")
    assert "ExecStart=/usr/bin/nats-server -c /etc/n.conf" in unit
    assert "KillSignal=SIGUSR2" in unit
    assert "ReadWritePaths=/data" in unit


def test_a_process_of_somebody_else_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    """This very process has the number, but did not begin when the node did."""
    plan = plan_local("local", 3, PORTS)
    node = NodeProcess(plan, plan.nodes[0], tmp_path)
    node.folder.mkdir(parents=True)
    record = msgspec.json.encode(ProcessRecord(os.getpid(), 1))
    (node.folder / PROCESS_FILE).write_bytes(record)
    assert node.pid is None
    assert not node.stop()
    assert not node.kill()


# Its first thread ends by the system call for that, the second one with the input.
HALF_ENDED_PROGRAM = """
import ctypes, platform, sys, threading

threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_process_has_ended_when_its_last_thread_has(tmp_path: Path) -> None:
    """Until then it has its sockets, and its ports cannot be listened on."""
    plan = plan_local("local", 3, PORTS)
    node = NodeProcess(plan, plan.nodes[0], tmp_path)
    node.folder.mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", HALF_ENDED_PROGRAM], stdin=subprocess.PIPE)
    state = Path(f"/proc/{process.pid}/stat")
    fields = state.read_text().rpartition(")")[2].split()
    record = msgspec.json.encode(ProcessRecord(process.pid, int(fields[19])))
    (node.folder / PROCESS_FILE).write_bytes(record)
    wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z")
    assert node.pid == process.pid
    assert process.stdin is not None
    process.stdin.close()
    wait_for(lambda: node.pid is None)
    process.wait()
