"""`tradewind move` to a cluster and from one, while leaders are killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tradewind.sync
from cluster_kit import LocalCluster, patiently, remove_stream
from harness import ServerProcess
from move_kit import check_a_move_with_kills, make_stream
from ports import free_ports
from tradewind.cli.moving.move_journal import STEPS, Method, MoveStep

# An election takes seconds, so usually a leader dies where most is under way.
THOROUGH = os.environ.get("TRADEWIND_THOROUGH") == "1"
TO_STEPS = STEPS[:-1] if THOROUGH else (MoveStep.TRANSFER, MoveStep.RELEASE)
FROM_STEPS = STEPS[:-1] if THOROUGH else (MoveStep.FOLLOW, MoveStep.FREEZE)


@pytest.fixture
def single(cluster: LocalCluster, tmp_path: Path) -> Iterator[str]:
    """Our server, which can mirror streams of the cluster."""
    [port] = free_ports(1)
    config = tmp_path / "server.conf"
    urls = ", ".join(f'"{node.url}"' for node in cluster.plan.nodes)
    remotes = f"remotes {{ old {{ urls: [{urls}] }} }}"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f'jetstream {{ store_dir: "{tmp_path}", sync_interval: always, {remotes} }}\n'
    )
    server = ServerProcess("tradewind", ["-c", str(config)])
    try:
        server.wait_ready()
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.stop()


def leader_killer(cluster: LocalCluster, stream: str) -> None:
    """The leader of a stream dies, if there is one yet, and comes back; the rest elects another."""
    with tradewind.sync.connect(cluster.url, timeout=30) as connection:
        streams = connection.jetstream_manager().streams
        if stream in patiently(lambda: streams.names().all()):
            leader = cluster.leader_of(connection, stream)
        else:
            leader = cluster.nodes[-1]
    assert leader.kill()
    cluster.start()


def remove(cluster: LocalCluster, stream: str) -> None:
    cluster.start()
    with tradewind.sync.connect(cluster.url, timeout=30) as connection:
        remove_stream(connection.jetstream_manager().streams, stream)


def test_a_stream_moves_to_a_cluster_whose_leaders_die(
    cluster: LocalCluster, single: str, tmp_path: Path
) -> None:
    make_stream(single, "OUT")
    check_a_move_with_kills(
        "OUT", (single, cluster.url), tmp_path / "j.json", lambda: leader_killer(cluster, "OUT"),
        method=Method.BACKUP, replicas=3, steps=TO_STEPS,
    )  # fmt: skip
    with tradewind.sync.connect(cluster.url, timeout=30) as connection:
        streams = connection.jetstream_manager().streams
        assert patiently(lambda: streams.info("OUT")).config.num_replicas == 3
    remove(cluster, "OUT")


def test_a_stream_moves_from_a_cluster_whose_leaders_die(
    cluster: LocalCluster, single: str, tmp_path: Path
) -> None:
    make_stream(cluster.url, "HOME", num_replicas=3)
    check_a_move_with_kills(
        "HOME", (cluster.url, single), tmp_path / "j.json", lambda: leader_killer(cluster, "HOME"),
        method=Method.MIRROR, origin_api="$JS.old.API", replicas=1, steps=FROM_STEPS,
    )  # fmt: skip
    remove(cluster, "HOME")
