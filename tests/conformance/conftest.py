"""Runs each conformance test on both servers.

A test that the official server fails is a wrong test. The official server does much beside the
answer (it counts, cleans up and times in threads of its own), so a test waits for what follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_js import JETSTREAM_KINDS, ApiClient

from conformance.helpers_publish import Publisher
from harness import Connect, RawClient, ServerProcess, StartServer

_subject_numbers = itertools.count(1)


@pytest.fixture(params=["official", "tradewind"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartServer]:
    """start("config text", "-flag", …) gives a ready server, stopped after the test.

    It listens on a random loopback port unless the flags name one with -p. A module about the
    process itself sets FRESH_PROCESSES.
    """
    fresh = getattr(request.module, "FRESH_PROCESSES", False)
    started: list[ServerProcess] = []

    def _start(
        config: str = "", *args: str, ready: bool = True, env: dict[str, str] | None = None
    ) -> ServerProcess:
        flags = list(args)
        if config:
            path = tmp_path / f"server{len(started)}.conf"
            path.write_text(config)
            flags += ["-c", str(path)]
        if "-p" not in flags:
            flags += ["-a", "127.0.0.1", "-p", "-1"]
        server = ServerProcess(kind, flags, env, fresh=fresh)
        started.append(server)
        return server.wait_ready() if ready else server

    yield _start
    for server in started:
        server.stop()


@pytest.fixture(scope="module", params=["official", "tradewind"])
def shared_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(shared_kind: str) -> Iterator[ServerProcess]:
    """One server with default settings for all tests of a module that change nothing in it."""
    process = ServerProcess(shared_kind, ["-a", "127.0.0.1", "-p", "-1"])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


@pytest.fixture(scope="module", params=JETSTREAM_KINDS)
def js_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """One server with JetStream for all tests of a module; a test removes the streams it made."""
    folder = tmp_path_factory.mktemp("jetstream")
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
    process = ServerProcess(str(request.param), flags)
    try:
        process.wait_ready()
        # nats-server removes the folder of an account's streams when it is empty, some time after
        # the last one is deleted, and so may take it away from under the next one.
        streams = folder / "jetstream" / "$G" / "streams"
        streams.mkdir(parents=True, exist_ok=True)
        (streams / ".keep").touch()
        yield process
    finally:
        process.stop()


@pytest.fixture
def js(js_server: ServerProcess) -> Iterator[ApiClient]:
    """A client of the JetStream API. When the test is over no stream is left."""
    with ApiClient(js_server) as client:
        yield client
        client.delete_streams()


@pytest.fixture
def peer(js_server: ServerProcess) -> Iterator[Publisher]:
    """A raw publisher. When the test is over the streams that it made are gone."""
    publisher = Publisher(js_server)
    yield publisher
    publisher.close()


@pytest.fixture
def raw(server: ServerProcess) -> Iterator[Connect]:
    """raw() gives a fresh raw connection to `server`, closed after the test."""
    clients: list[RawClient] = []

    def _raw(**options: object) -> RawClient:
        client = RawClient(server.port, **options)  # type: ignore[arg-type]
        clients.append(client)
        return client

    yield _raw
    for client in clients:
        client.close()


@pytest.fixture
def wire(raw: Connect) -> Connect:
    """wire(echo=False, …) gives a connected client of protocol 0: no INFO follows its first PONG.

    So every byte after the handshake is defined by what the test sends.
    """

    def _wire(**options: object) -> RawClient:
        return raw().connect(**{"protocol": 0, **options})

    return _wire


@pytest.fixture
def subject() -> str:
    """A subject that no other test uses, so a connection that is still closing cannot interfere."""
    return f"subject{next(_subject_numbers)}"
