"""Hosts for a Spark cluster on one machine: a network and folders of their own for each.

Each host is a network namespace with an address on a bridge that only they share, and sees the
folders that are named private as empty ones of its own. Where the machine does not let us make
namespaces, all hosts are on loopback and share the file system.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NETWORK = "10.77.0"
TOOLS = ("unshare", "nsenter", "ip", "mount")


class Host:
    """Where processes run; `prefix` takes a command there."""

    def __init__(self, address: str, pid: int | None = None) -> None:
        self.address = address
        self.prefix: list[str] = []
        if pid is not None:
            self.prefix = ["nsenter", "--target", str(pid), "--net", "--mount"]

    def run(self, *words: str) -> None:
        """Run a short command to its end."""
        done = subprocess.run([*self.prefix, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)


def has_namespaces() -> bool:
    """Whether hosts can have networks of their own here."""
    if not all(map(shutil.which, TOOLS)):
        return False
    trial = "ip link set lo up && ip link add hosts type bridge && mount -t tmpfs none /mnt"
    command = ["unshare", "--net", "--mount", "sh", "-c", trial]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def hosts(count: int, private: list[Path]) -> Iterator[list[Host]]:
    """So many hosts; the first one sees the private folders as they are."""
    if not has_namespaces():
        yield [Host("127.0.0.1") for _ in range(count)]
        return
    with ExitStack() as running:
        first = _opened(running, f"{NETWORK}.1", [])
        first.run("ip", "link", "add", "hosts", "type", "bridge")
        first.run("ip", "address", "add", f"{NETWORK}.1/24", "dev", "hosts")
        first.run("ip", "link", "set", "hosts", "up")
        made = [first]
        for number in range(2, count + 1):
            host = _opened(running, f"{NETWORK}.{number}", private)
            name, there = f"host{number}", host.prefix[2]
            wire = ("type", "veth", "peer", "name", "eth0", "netns", there)
            first.run("ip", "link", "add", name, *wire)
            first.run("ip", "link", "set", name, "master", "hosts", "up")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
            made.append(host)
        yield made


def _opened(running: ExitStack, address: str, private: list[Path]) -> Host:
    """A host that is there until its input ends, so none outlives the test."""
    mounts = "".join(f" && mount -t tmpfs none '{folder}'" for folder in private)
    script = f"ip link set lo up{mounts} && echo ready && exec cat"
    process = running.enter_context(
        subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return Host(address, process.pid)
