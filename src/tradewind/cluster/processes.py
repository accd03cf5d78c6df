"""The processes of a local cluster: starting, finding and ending them.

Owns which process is which node. A process is identified by its id and start time, so a process
that reuses an id is never touched. The processes outlive the command that started them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tradewind.cluster.cluster_plan import ClusterError, ClusterPlan, Node
from tradewind.cluster.configuration import local_configuration
from tradewind.extra_packages import install_command
from tradewind.platform_calls import PROC
from tradewind.private_files import replace_private

PROCESS_FILE: Final = "process.json"
CONFIG_FILE: Final = "server.conf"
LOG_FILE: Final = "server.log"
OUTPUT_FILE: Final = "output.log"  # the output before the log is open, and panics
STOP_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.05
_TAIL_BYTES: Final = 65536


class ProcessRecord(msgspec.Struct, frozen=True):
    """A process that was started. `began` is in clock ticks since the start of the machine."""

    pid: int
    began: int


def find_binary() -> str:
    """The nats-server of this Python environment, or else of the PATH."""
    own = Path(sys.executable).parent / "nats-server"
    found = str(own) if os.access(own, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise ClusterError(f"nats-server is not installed: {install_command('cluster')}")
    return found


class NodeProcess:
    """One node of a cluster on this machine."""

    def __init__(self, plan: ClusterPlan, node: Node, folder: Path) -> None:
        self.plan = plan
        self.node = node
        self.folder = folder / f"n{node.number}"

    @property
    def pid(self) -> int | None:
        """The id of the running process; None if there is none."""
        try:
            record = msgspec.json.decode(
                (self.folder / PROCESS_FILE).read_bytes(), type=ProcessRecord
            )
        except (OSError, msgspec.MsgspecError):
            return None
        return record.pid if _began(record.pid) == record.began else None

    def start(self, binary: str) -> None:
        """Start the node unless it is running."""
        if self.pid is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / CONFIG_FILE
        text = local_configuration(self.plan, self.node, str(self.folder))
        replace_private(config, text.encode())
        pid = _spawn([binary, "-c", str(config)], str(self.folder / OUTPUT_FILE))
        began = _began(pid)
        if began is None:
            raise ClusterError(f"node {self.node.number} exited immediately: {self.last_words()}")
        replace_private(self.folder / PROCESS_FILE, msgspec.json.encode(ProcessRecord(pid, began)))

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """End the node in an orderly way; it hands over its leaderships. False if it was not
        running.
        """
        pid = self.pid
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        if not self._wait_for_end(seconds):
            raise ClusterError(
                f"node {self.node.number} (process {pid}) is still running after {seconds:.0f} s; "
                f"kill it with: tradewind cluster kill {self.node.number}"
            )
        return True

    def kill(self) -> bool:
        """End the node like a crash. False if it was not running."""
        pid = self.pid
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        self._wait_for_end(STOP_SECONDS)
        return True

    def last_words(self) -> str:
        """The last line of the node's output that reports an error, or simply the last line."""
        lines = [line for name in (LOG_FILE, OUTPUT_FILE) for line in self._tail(name)]
        wrong = [line for line in lines if "[FTL]" in line or "[ERR]" in line or "error" in line]
        return (wrong or lines or ["no output"])[-1]

    def _tail(self, name: str) -> list[str]:
        try:
            with (self.folder / name).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _TAIL_BYTES, 0))
                return [line for line in file.read().decode(errors="replace").splitlines() if line]
        except OSError:
            return []

    def _wait_for_end(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True


def _spawn(command: list[str], output: str) -> int:
    """Start a process that outlives this one; returns its id."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)


def _began(pid: int) -> int | None:
    """The start time of a process; None if it has ended, even if its parent has not been notified
    yet.

    A process that was killed seems to have ended while its threads still exist, and with them its
    sockets.
    """
    try:
        text = Path(PROC, str(pid), "stat").read_text()
    except OSError:
        return None
    # The name of the program is in brackets and may contain anything.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] == "Z" and not _has_threads(pid):
        with suppress(ChildProcessError):  # another process has started it
            os.waitpid(pid, os.WNOHANG)
        return None
    return int(fields[19])


def _has_threads(pid: int) -> bool:
    """Whether a process has threads besides the first."""
    try:
        return len(list(Path(PROC, str(pid), "task").iterdir())) > 1
    except OSError:
        return False
