"""Ports for the servers that tests start, and start again on the same port.

Not those that the system gives out by itself: one of these would be taken by some client while the
server that had it is down. Each test process has a range of its own and goes through it in order;
those without one, and those that were forked, begin far from each other.
"""

from __future__ import annotations

import itertools
import os
import re
import socket

PORTS = range(10_000, 32_000)
PROCESSES_MAX = 11
SHARE = len(PORTS) // PROCESSES_MAX
# Has no divisor in common with a share: processes that follow each other begin this far apart.
STRIDE = 739


def _own_ports() -> itertools.cycle[int]:
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    # A run without workers has the last share: it may be beside one that has them.
    place = min(int(worker[1]), PROCESSES_MAX - 2) if worker else PROCESSES_MAX - 1
    share = PORTS[place * SHARE : (place + 1) * SHARE]
    begin = os.getpid() * STRIDE % SHARE
    return itertools.cycle([*share[begin:], *share[:begin]])


_ports = _own_ports()


def _begin_elsewhere() -> None:
    """A forked process must not go on where its parent is: its siblings do the same."""
    global _ports
    _ports = _own_ports()


os.register_at_fork(after_in_child=_begin_elsewhere)


def free_port() -> int:
    """An unused port."""
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def free_ports(count: int) -> list[int]:
    """Unused ports, all different."""
    return [free_port() for _ in range(count)]


def with_port(arguments: list[str]) -> list[str]:
    """The arguments of a server with a port that stays its own instead of `-p -1`."""
    found = list(arguments)
    for index, pair in enumerate(itertools.pairwise(arguments)):
        if pair == ("-p", "-1"):
            found[index + 1] = str(free_port())
    return found
