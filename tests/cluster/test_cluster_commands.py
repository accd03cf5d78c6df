"""`tradewind cluster` as a person runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli_outcome import Outcome
from harness import wait_for
from ports import free_ports
from tradewind.cli.cluster import cluster
from tradewind.cli.main import run
from tradewind.cluster.cluster_plan import load_plan
from tradewind.cluster.processes import NodeProcess

Call = Callable[..., Outcome]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    for name in list(os.environ):
        if name.startswith("NATS_"):
            monkeypatch.delenv(name)

    def command(*args: str) -> Outcome:
        capsys.readouterr()
        code = run(args)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return command


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Whatever a test starts in this folder is ended."""
    yield tmp_path / "cluster"
    if (tmp_path / "cluster" / "cluster.json").exists():
        plan = load_plan(tmp_path / "cluster")
        for node in plan.nodes:
            NodeProcess(plan, node, tmp_path / "cluster").kill()


def test_a_cluster_from_its_first_start_to_its_end(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nodes come back under their ports, which nobody else may take meanwhile.
    monkeypatch.setattr(cluster, "_ports", lambda nodes, _first: free_ports(4 * nodes))
    where = ("--dir", str(folder))
    up = call("cluster", "up", "--port", "0", "--json", *where)
    assert up.code == 0, up.err
    started = json.loads(up.out)
    assert started["leader"] in {node["name"] for node in started["nodes"]}
    assert "3 of 3 nodes are healthy" in up.err

    server = ("--server", started["url"], "--timeout", "60s")
    made = call(
        "stream", "add", "ORDERS", "--subjects", "o.>", "--replicas", "3", "--defaults", *server
    )
    assert made.code == 0, made.err
    assert call("pub", "o.1", "hello", "--jetstream", *server).code == 0

    killed = call("cluster", "kill", "2", *where)
    assert "Killed node 2" in killed.out
    status = call("cluster", "status", *where)
    assert status.code == 1
    assert "not running" in status.out
    again = call("cluster", "kill", "2", *where)
    assert again.code == 1
    assert "node 2 is not running" in again.err
    assert call("cluster", "restart", "2", *where).code == 0
    # A node that is slow to answer is not well at that moment.
    wait_for(lambda: call("cluster", "status", *where).code == 0)

    stopped = call("cluster", "stop", *where)
    assert stopped.code == 0, stopped.err
    assert stopped.out.count("Stopped node") == 3
    status = call("cluster", "status", *where)
    assert "no leader at the moment" in status.out

    # What was stored is there at the next start, under the same addresses.
    up = call("cluster", "up", *where)
    assert up.code == 0, up.err
    assert started["url"] in up.out
    info = call("stream", "info", "ORDERS", "--json", *server)
    assert json.loads(info.out)["state"]["messages"] == 1


def test_without_a_majority_the_command_line_says_that_there_is_no_leader(
    call: Call, folder: Path
) -> None:
    where = ("--dir", str(folder))
    started = json.loads(call("cluster", "up", "--port", "0", "--json", *where).out)
    server = ("--server", started["url"], "--timeout", "10s")
    for node in (1, 2):
        assert call("cluster", "kill", str(node), *where).code == 0
    made = call("stream", "add", "X", "--subjects", "x", "--defaults", *server)
    assert made.code == 1
    assert "no leader at the moment" in made.err


def test_a_port_in_use_is_named(call: Call, folder: Path) -> None:
    import socket

    with socket.socket() as taken:
        (port,) = free_ports(1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        up = call("cluster", "up", "--port", str(port), "--dir", str(folder))
    assert up.code == 1
    assert f"port {port} of 127.0.0.1 cannot be used" in up.err
    assert not folder.exists()


def test_files_for_hosts_are_private_and_complete(call: Call, tmp_path: Path) -> None:
    done = call("cluster", "config", "--hosts", "a,b,c", "--name", "prod", "--dir", str(tmp_path))
    assert done.code == 0, done.err
    assert "clear text" in done.err
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"prod-{n}.{kind}" for n in (1, 2, 3) for kind in ("conf", "service")]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_wrong_number_of_nodes_starts_nothing(call: Call, folder: Path) -> None:
    done = call("cluster", "up", "--nodes", "1000000000", "--dir", str(folder))
    assert done.code == 1
    assert "a cluster must have 2 to 15" in done.err
    assert not folder.exists()
