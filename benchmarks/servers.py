"""Starts one server on an empty folder and a free port, and stops it again.

The command is a template; `{conf}` names the config file written for the run, and `{folder}` in the
configuration of a workload the folder, which goes with the server. Every process of the
server ends with stop(), also one that ignores SIGTERM. Knows nothing of workloads.
"""

import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.procfs import process_cpu_s

START_S_MAX = 60.0
STOP_S_MAX = 10.0
LOG_TAIL_BYTES = 600
POLL_S = 0.001  # how exactly the time of a start is known
# Not those that the system gives out by itself, of which a client could have one before the server
# that it is meant for; nor those of tests/kits/ports.py. Processes that run at once begin far
# apart.
PORTS = range(32_000, 32_768)
PROCESS_STRIDE = 97
_begin = os.getpid() * PROCESS_STRIDE % len(PORTS)
_ports = itertools.cycle([*PORTS[_begin:], *PORTS[:_begin]])


class ServerError(Exception):
    """The server did not start; the text has the end of its log."""


def free_port() -> int:
    """A port of the loopback interface that nobody uses at the moment; each one is another."""
    for port in itertools.islice(_ports, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError(f"no port from {PORTS[0]} to {PORTS[-1]} is free")


def command_line(template: str, conf: Path) -> list[str]:
    """Splits a template as a shell would, and puts in the name of the config file."""
    if "{conf}" not in template:
        raise ValueError(f"the server command {template!r} must contain {{conf}}")
    return [word.replace("{conf}", str(conf)) for word in shlex.split(template)]


class Server:
    """A running server: `with Server(template) as server` gives port, session and INFO fields.

    `start_wall_s` and `start_cpu_s` are what it took from exec to the first INFO.
    """

    host = "127.0.0.1"
    start_wall_s = 0.0
    start_cpu_s = 0.0

    def __init__(self, template: str, config: str = "") -> None:
        self.template = template
        self._config = config
        self.port = free_port()
        self.http_port = free_port()
        self.websocket_port = free_port()
        self.info: dict[str, Any] = {}

    def __enter__(self) -> "Server":
        self._folder = Path(tempfile.mkdtemp(prefix="bench-"))
        conf = self._folder / "server.conf"
        config = self._config.replace("{folder}", str(self._folder))
        config = config.replace("{port}", str(self.http_port))
        config = config.replace("{websocket_port}", str(self.websocket_port))
        for kind in ("ec", "rsa"):
            if f"/{kind}.pem" in config:
                # Loaded when it is needed: few workloads have certificates.
                from benchmarks.secure_clients import write_certificate

                write_certificate(self._folder, kind)
        conf.write_text(f'listen: "{self.host}:{self.port}"\n{config}')
        self._conf = conf
        self._log = self._folder / "server.log"
        self._start()
        return self

    def _start(self) -> None:
        began_s = time.perf_counter()
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    command_line(self.template, self._conf),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ServerError(f"cannot start {shlex.split(self.template)[0]}: {error}") from None
        try:
            self.info = self._await_info()
            self.start_wall_s = time.perf_counter() - began_s
            self.start_cpu_s = process_cpu_s(self._process.pid)
        except BaseException:
            self.stop()
            raise

    def restart(self, *, kill: bool = False) -> None:
        """Ends the server as a service manager does, and starts it again on the same folder.

        `kill`: without a word.
        """
        if kill:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end()
        self._start()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def another(self) -> "Server":
        """One more of the same, not started yet."""
        return Server(self.template, self._config)

    @property
    def session(self) -> int:
        """The session of the server's processes: the id of the one that was started."""
        return self._process.pid

    def log_tail(self) -> str:
        """The last lines of what the server printed."""
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()

    def stop(self) -> None:
        """SIGTERM to the whole session, SIGKILL if that does not help, and the folder is gone."""
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            pass
        except ProcessLookupError:
            self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _await_info(self) -> dict[str, Any]:
        end = time.monotonic() + START_S_MAX
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise ServerError(
                    f"the server ended with code {self._process.returncode}: {self.log_tail()}"
                )
            try:
                with socket.create_connection((self.host, self.port), 1.0) as probe:
                    return self._read_info(probe)
            except OSError:
                time.sleep(POLL_S)
        raise ServerError(f"no INFO on the port within {START_S_MAX:.0f} s: {self.log_tail()}")

    @staticmethod
    def _read_info(probe: socket.socket) -> dict[str, Any]:
        line = b""
        while not line.endswith(b"\r\n"):
            chunk = probe.recv(65536)
            if not chunk:
                raise ConnectionError("closed before INFO")
            line += chunk
        fields: dict[str, Any] = json.loads(line[len(b"INFO ") :])
        return fields
