"""A real standalone cluster from the pip package: a master and two workers on hosts of their own.

A worker's host sees neither the server's store nor the logins of another one, and one of them is
killed while it writes.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cluster_driver import COUNT, Place
from hosts_kit import Host, hosts
from kill_kit import command, descendants, kill_all

from ports import free_ports
from tradewind.spark.processes.java import find_java_home

START_SECONDS = 300
RUN_SECONDS = 600
SPARK_HOME = Path(os.environ["SPARK_HOME"])


class Daemon:
    """A process of the cluster, and its log."""

    def __init__(self, host: Host, arguments: list[str], folder: Path) -> None:
        environment = {
            **environment_of(host, folder),
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": str(find_java_home()),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._process = subprocess.Popen(
            [*host.prefix, str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip())

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, pattern: str) -> str:
        """What its log says in a line like this."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            found = [match[1] for line in self.lines if (match := re.search(pattern, line))]
            if found:
                return found[0]
            assert self.is_alive, "\n".join(self.lines)
            assert time.monotonic() < deadline, "\n".join(self.lines)
            time.sleep(0.05)

    def kill(self) -> None:
        """With all that it has started, as if its host lost its power."""
        parts = [self._process.pid, *descendants(self._process.pid)]
        assert any(b"CoarseGrainedExecutorBackend" in command(pid) for pid in parts)
        kill_all(parts)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)


def environment_of(host: Host, folder: Path) -> dict[str, str]:
    """Of every process on a host; contexts are where it has its own files."""
    config = str(folder / "private" / "config")
    return {**os.environ, "SPARK_LOCAL_IP": host.address, "XDG_CONFIG_HOME": config}


@contextmanager
def started(places: list[Host], folder: Path) -> Iterator[tuple[str, list[Daemon]]]:
    """The address of a master on the first host, and workers on the others, which may not be ready
    yet: the driver waits for them, and starts meanwhile.
    """
    package = "org.apache.spark.deploy"
    with ExitStack() as running:

        def start(host: Host, *arguments: str) -> Daemon:
            place = ["--host", host.address, "--webui-port", "0"]
            daemon = Daemon(host, [arguments[0], *place, *arguments[1:]], folder)
            running.callback(daemon.stop)
            return daemon

        master = start(places[0], f"{package}.master.Master", "--port", "0")
        head = master.wait_for(r"Starting Spark master at (spark://\S+)")
        workers = [
            start(
                host,
                f"{package}.worker.Worker",
                *("--cores", "1", "--memory", "600m"),
                *("--work-dir", str(folder / f"worker{number}"), head),
            )
            for number, host in enumerate(places[1:])
        ]
        yield head, workers


def prepare(places: list[Host], folder: Path) -> None:
    """A server's configuration with three logins, and on each host what its jobs log in with."""
    address, port = places[0].address, free_ports(1)[0]
    logins = {
        name: {"user": name, "password": secrets.token_hex(16)}
        for name in ("context", "variable", "file")
    }
    users = ", ".join(
        f"{{user: {name}, password: {it['password']}}}" for name, it in logins.items()
    )
    (folder / "server.conf").write_text(
        f"port: {port}\nauthorization {{ users: [{users}] }}\n"
        f'jetstream {{ store_dir: "{folder / "store"}" }}\n'
    )
    password_file = folder / "private" / "password"
    given = {
        "address": address,
        "config": str(folder / "server.conf"),
        "logins": logins,
        "password_file": str(password_file),
        "store": str(folder / "store"),
    }
    (folder / "given.json").write_text(json.dumps(given))
    contexts = folder / "private" / "config" / "nats" / "context"
    context = json.dumps({"url": f"nats://{address}:{port}", **logins["context"]})
    for host in places:
        host.run("mkdir", "-p", str(contexts))
        host.run("sh", "-c", 'printf %s "$1" > "$2"', "", context, str(contexts / "hub.json"))
        secret = logins["file"]["password"]
        host.run("sh", "-c", 'printf %s "$1" > "$2"', "", secret, str(password_file))


@pytest.mark.timeout(1500)
def test_jobs_on_a_cluster_whose_worker_is_killed_write_each_row_once(tmp_path: Path) -> None:
    private = [tmp_path / "store", tmp_path / "private"]
    for folder in private:
        folder.mkdir()
    place = Place(tmp_path)
    with hosts(3, private) as places:
        prepare(places, tmp_path)
        with started(places, tmp_path) as (master, workers):
            script = Path(__file__).with_name("cluster_driver.py")
            password = json.loads((tmp_path / "given.json").read_text())["logins"]["variable"]
            driver = subprocess.Popen(
                [*places[0].prefix, sys.executable, str(script), master, str(tmp_path)],
                env={
                    **environment_of(places[0], tmp_path),
                    "NATS_PASSWORD": password["password"],
                },
            )
            try:
                place.wait(
                    "rows",
                    lambda: driver.poll() is None and all(worker.is_alive for worker in workers),
                )
                workers[1].kill()
                place.say("killed")
                assert driver.wait(RUN_SECONDS) == 0
            finally:
                driver.kill()
                driver.wait()
    result = json.loads((tmp_path / "result.json").read_text())
    rows = result.pop("rows_at_kill")
    assert 0 < rows < COUNT, "the batch was not in its middle"
    stores = result.pop("stores_seen")
    assert not any(stores) or not places[0].prefix
    assert result == {
        "executors": 2,
        "executors_left": 1,
        "pipeline": "done",
        **{name: [COUNT, 0] for name in ("BATCH", "TAIL", "PAID")},
    }
