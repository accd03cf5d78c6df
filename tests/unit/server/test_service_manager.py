"""What a service manager hears from the server."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import ServerProcess
from tradewind.server.lifecycle.service_manager import (
    READY,
    STOPPING,
    VARIABLE,
    tell_service_manager,
)

SECONDS = 20


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(SECONDS)
        yield path, listener


@pytest.mark.slow
def test_a_server_says_when_it_is_ready_and_when_it_ends(
    manager: tuple[str, socket.socket],
) -> None:
    path, listener = manager
    server = ServerProcess("tradewind", ["-a", "127.0.0.1", "-p", "-1"], {VARIABLE: path})
    try:
        assert listener.recv(100) == READY.encode()
        # Whoever waited for it can connect at once.
        server.wait_ready()
        server.signal(signal.SIGTERM)
        assert listener.recv(100) == STOPPING.encode()
        assert server.wait() == 0
    finally:
        server.stop()


def test_an_abstract_address_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"tradewind-notify-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(SECONDS)
        monkeypatch.setenv(VARIABLE, f"@{name}")
        tell_service_manager(READY)
        assert listener.recv(100) == READY.encode()


@pytest.mark.parametrize("address", ["", "nonsense", "/nowhere/at/all", "@nobody", "/" + "x" * 500])
def test_a_manager_that_does_not_listen_is_no_failure(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, address)
    tell_service_manager(READY)


@pytest.mark.slow
def test_a_manager_that_does_not_read_holds_nobody_up(
    manager: tuple[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _listener = manager
    monkeypatch.setenv(VARIABLE, path)
    for _ in range(10_000):
        tell_service_manager(READY)
