"""A server inside a program: async, in a thread, with settings, and when it cannot start."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import nats
import pytest

import tradewind
from harness import REPLY_SECONDS, RawClient
from ports import free_port
from tradewind.errors import ConfigError, ServerStartError


async def test_async_server_serves_a_client_of_the_same_loop() -> None:
    async with tradewind.Server() as server:
        client = await nats.connect(server.url)
        subscription = await client.subscribe("greet")
        await client.publish("greet", b"hello")
        assert (await subscription.next_msg(REPLY_SECONDS)).data == b"hello"
        await client.close()


async def test_two_servers_in_one_loop_do_not_share_anything() -> None:
    async with tradewind.Server() as one, tradewind.Server() as other:
        assert one.port != other.port
        first, second = await nats.connect(one.url), await nats.connect(other.url)
        heard = await second.subscribe(">")
        await first.publish("a", b"1")
        await first.flush()
        await second.flush()
        assert heard.pending_msgs == 0
        await first.close()
        await second.close()


async def test_port_is_free_again_after_the_block() -> None:
    port = free_port()
    async with tradewind.Server(port=port) as server:
        assert server.port == port
    async with tradewind.Server(port=port) as again:
        assert again.port == port


async def test_clients_are_disconnected_when_the_server_stops() -> None:
    async with tradewind.Server() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert (await reader.readline()).startswith(b"INFO ")
    assert await reader.read() == b""
    writer.close()


def test_thread_server_serves_blocking_code() -> None:
    with tradewind.serve(port=0) as server, RawClient(server.port) as client:
        client.connect()
        client.send("SUB a 1\r\nPUB a 2\r\nhi\r\n")
        assert client.read_message() == ("MSG a 1 2", b"", b"hi")


def test_thread_is_gone_after_the_block() -> None:
    before = set(threading.enumerate())
    with tradewind.serve():
        (thread,) = [
            thread
            for thread in set(threading.enumerate()) - before
            if thread.name == "tradewind-server"
        ]
    assert not thread.is_alive()


def test_settings_are_those_of_the_options() -> None:
    settings = {"max_payload_bytes": 100, "server_name": "here"}
    with tradewind.serve(**settings) as server, RawClient(server.port) as client:
        assert client.info["max_payload"] == 100
        assert client.info["server_name"] == "here"


def test_config_file_is_read_and_reloaded(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("listen: '127.0.0.1:-1'\nmax_payload: 1000\n")
    with tradewind.serve(str(path)) as server:
        with RawClient(server.port) as client:
            assert client.info["max_payload"] == 1000
        path.write_text("listen: '127.0.0.1:-1'\nmax_payload: 2000\n")
        server.reload()
        with RawClient(server.port) as client:
            assert client.info["max_payload"] == 2000
        path.write_text("max_payload: many\n")
        with pytest.raises(ConfigError, match="max_payload"):
            server.reload()


def test_unknown_setting_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'prot'; did you mean 'port'"):
        tradewind.Server(prot=1)


def test_taken_port_is_an_error_for_the_caller() -> None:
    with (
        tradewind.serve() as server,
        pytest.raises(ServerStartError, match="address already in use"),
        tradewind.serve(port=server.port),
    ):
        pass


def test_error_inside_the_block_stops_the_server() -> None:
    port = free_port()

    def fail_inside() -> None:
        with tradewind.serve(port=port):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    with tradewind.serve(port=port):
        pass


def test_importing_the_package_does_not_import_the_server() -> None:
    import subprocess
    import sys

    code = "import sys, tradewind; print(any(m.startswith('tradewind.s') for m in sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
