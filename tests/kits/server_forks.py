"""Asks `fork_server` for server processes and handles them like those of `subprocess`.

Owns the one fork server of this test process, which is started when it is first needed and ends
with it. The fork server is the parent of the servers, so it is asked for their exit codes; signals
go through a descriptor of the process, so they can never reach another one with the same number.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("fork_server.py")
# Variables that count when Python starts or when a module is imported: a fork cannot change them.
EARLY_VARIABLES = ("PYTHON", "LD_", "MALLOC", "LC_", "LANG", "TZ", "TRADEWIND_")


def early_variables(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(EARLY_VARIABLES)}


class ForkServer:
    """The process that forks, and the line to it; any thread may ask."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self._lock = threading.Lock()
        self._line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
            )

        atexit.register(self.close)

    def close(self) -> None:
        self._line.close()
        self._process.wait()

    def ask(self, request: dict[str, Any], descriptors: tuple[int, ...] = ()) -> int:
        with self._lock:
            socket.send_fds(self._line, [json.dumps(request).encode()], descriptors)
            answer: int = json.loads(self._line.recv(1000))
            return answer

    def can_start(self, environment: dict[str, str]) -> bool:
        return early_variables(environment) == early_variables(self.environment)


_first_call = threading.Lock()


@functools.cache
def _the_fork_server() -> ForkServer:
    return ForkServer()


def fork_server() -> ForkServer:
    # The cache alone would let two threads that ask first make one each.
    with _first_call:
        return _the_fork_server()


class ForkedProcess:
    """The part of `subprocess.Popen` that tests use, for a process that was forked elsewhere."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.args = command
        self.returncode: int | None = None
        self._lock = threading.Lock()
        reading, writing = os.pipe()
        request = {"command": command, "environment": environment, "folder": os.getcwd()}
        try:
            self.pid = fork_server().ask(request, (writing,))
        finally:
            os.close(writing)
        # It cannot have been reaped, so the number is still its own.
        self._descriptor = os.pidfd_open(self.pid)
        weakref.finalize(self, os.close, self._descriptor)
        self.stdout = os.fdopen(reading, encoding="utf-8")

    def poll(self) -> int | None:
        return self._result(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._result(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _result(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._ended(timeout):
            with self._lock:
                if self.returncode is None:
                    self.returncode = fork_server().ask({"reap": self.pid})
        return self.returncode

    def _ended(self, timeout: float | None) -> bool:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(None if timeout is None else timeout * 1000))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
