"""The time of a start is that of a start, and each is a new one."""

import sys
from pathlib import Path

from benchmarks.measure import Scale
from benchmarks.servers import Server, free_port
from benchmarks.workloads import starts

COMMAND = f"{Path(sys.executable).parent / 'nats-server'} -c {{conf}}"


def test_the_system_gives_no_port_of_a_server_to_a_client() -> None:
    given_out = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
    assert max(ports) < int(given_out[0])


def test_a_start_is_measured_from_exec_to_info() -> None:
    with Server(COMMAND) as server:
        assert server.start_cpu_s > 0
        assert server.start_wall_s > 0
        with server.another() as second:
            assert second.info["server_id"] != server.info["server_id"]
            assert second.port != server.port


def test_the_workload_gives_both_figures() -> None:
    with Server(COMMAND) as server:
        result = starts(server, Scale(quick=True))
    assert result.notes == {"count": 2}
    assert set(result.figures) == {"start_ms", "start_cpu_ms"}
    assert all(value > 0 for value in result.figures.values())
