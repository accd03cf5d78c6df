"""How the process starts: who else may use its folder, what it loads, when it can be ended."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import RawClient, ServerProcess
from sweeps import sweep

LOOPBACK = ["-a", "127.0.0.1", "-p", "-1"]


@pytest.mark.slow
def test_a_second_server_on_the_same_folder_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    flags = [*LOOPBACK, "-js", "-sd", str(tmp_path)]
    first = ServerProcess("tradewind", flags).wait_ready()
    try:
        second = ServerProcess("tradewind", flags)
        assert second.wait() == 1
        assert second.lines[-1].endswith(
            f"[FTL] Can't start JetStream: {tmp_path}/jetstream: the folder is in use by process "
            f"{first.process.pid}; stop that server or use another folder"
        )
        with RawClient(first.port) as client:
            client.connect()
    finally:
        first.stop()
    third = ServerProcess("tradewind", flags)
    try:
        third.wait_ready()
    finally:
        third.stop()


# What a start loads. A module that only some servers need is imported by the function that needs
# it; see "Starting" in docs/ARCHITECTURE.md. Each line is a module or a package with all in it.
NOT_FOR_A_PLAIN_SERVER = {
    "tradewind.api",
    "tradewind.cli",
    "tradewind.client",
    "tradewind.consumer",
    "tradewind.broker.message_trace",
    "tradewind.broker.traced",
    "tradewind.jetstream",
    "tradewind.otel",
    "tradewind.store",
    "tradewind.stream",
    "tradewind.monitor.connz",
    "tradewind.monitor.http",
    "tradewind.monitor.pages",
    "tradewind.monitor.prometheus",
    "tradewind.server.config.grammar",
    "tradewind.server.config.load",
    "tradewind.server.lifecycle.pid_files",
    "tradewind.server.monitoring.log_sinks",
    "tradewind.server.lifecycle.reload",
    "tradewind.server.lifecycle.send_signal",
    "tradewind.server.monitoring.telemetry",
    "tradewind.server.tls.tls",
    "tradewind.server.tls.tls_pipe",
    "tradewind.server.websocket.websocket_listener",
    "tradewind.wire.websocket",
    "argparse",
    "ast",
    "bcrypt",
    "calendar",
    "cryptography",
    "dataclasses",
    "dis",
    "encodings.idna",
    "hashlib",
    "hmac",
    "importlib.metadata",
    "importlib.util",
    "inspect",
    "locale",
    "nacl",
    "pathlib",
    "platform",
    "secrets",
    "shutil",
    "starlette",
    "tarfile",
    "tempfile",
    "textwrap",
    "tokenize",
    "urllib.parse",
    "uvicorn",
    "zoneinfo",
}
# How many modules a start may load beyond those of an empty program. Both only become fewer.
PLAIN_MODULES_MAX = 237
JETSTREAM_MODULES_MAX = 470
# What JetStream needs for some requests and some streams.
NOT_FOR_AN_EMPTY_STORE = {
    "tradewind.chain.chain_folder",
    "tradewind.jetstream.handlers.stream_handlers",
    "tradewind.jetstream.legacy.legacy_requests",
    "tradewind.jetstream.replication.replica",
    "tradewind.jetstream.restores",
    "tradewind.jetstream.snapshots",
    "tradewind.store.folder.chain_recovery",
    "tradewind.api.cron",
}
ALSO_FOR_JETSTREAM = {
    "tradewind.api",
    "tradewind.consumer",
    "tradewind.jetstream",
    "tradewind.store",
    "tradewind.stream",
    "hashlib",
    "pathlib",
    "urllib.parse",
}
IMPORTED = re.compile(r"import time: +\d+ \| +\d+ \| +(\S+)")


def imported(lines: list[str]) -> set[str]:
    """The modules of a list made by `-X importtime`, and the packages they are in."""
    modules = {match[1] for line in lines if (match := IMPORTED.match(line))}
    return {
        ".".join(parts[:count])
        for parts in (module.split(".") for module in modules)
        for count in range(1, len(parts) + 1)
    }


def imported_by_a_start(*flags: str) -> tuple[set[str], set[str]]:
    """What is loaded when the server is ready, and when a client has connected, without what every
    Python process here loads.
    """
    server = ServerProcess("tradewind", [*LOOPBACK, *flags], {"PYTHONPROFILEIMPORTTIME": "1"})
    try:
        server.wait_ready()
        with RawClient(server.port) as client:
            client.connect()
        lines = list(server.lines)
    finally:
        server.stop()
    empty = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", ""], capture_output=True, text=True, check=True
    )
    ready = next(index for index, line in enumerate(lines) if "Server is ready" in line)
    always = imported(empty.stderr.splitlines())
    return imported(lines[:ready]) - always, imported(lines) - always


def test_a_plain_start_loads_nothing_that_only_some_servers_need() -> None:
    ready, loaded = imported_by_a_start()
    assert "tradewind.server.lifecycle.app" in loaded
    assert loaded & NOT_FOR_A_PLAIN_SERVER == set()
    assert len(ready) <= PLAIN_MODULES_MAX


@pytest.mark.slow
def test_a_start_with_jetstream_loads_only_that_beside(tmp_path: Path) -> None:
    ready, loaded = imported_by_a_start("-js", "-sd", str(tmp_path))
    assert loaded >= ALSO_FOR_JETSTREAM
    assert loaded & (NOT_FOR_A_PLAIN_SERVER - ALSO_FOR_JETSTREAM) == set()
    # The handlers of requests follow when the server has nothing else to do.
    assert ready & NOT_FOR_AN_EMPTY_STORE == set()
    assert len(ready) <= JETSTREAM_MODULES_MAX


@sweep("module", sorted(NOT_FOR_A_PLAIN_SERVER | NOT_FOR_AN_EMPTY_STORE))
def test_what_is_not_to_be_loaded_exists(module: str) -> None:
    assert importlib.util.find_spec(module) is not None
