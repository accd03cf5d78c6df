"""Leaf connections that are cut, stalled and flooded while messages flow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chaos_proxy import ChaosProxy
from leaf_kit import PAIRINGS, Node, hub_config, leaf_config

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize(
        "kinds", [pair for pair in PAIRINGS if "tradewind" in pair], ids="-".join
    ),
]
Kinds = tuple[str, str]
CUTS = 4
CONNECT = b'CONNECT {"verbose":false,"protocol":0,"no_responders":true,"headers":true}\r\n'


class Peer:
    """A client whose messages are collected."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.got: list[tuple[bytes, bytes]] = []
        self.pongs = 0
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while line := await self._reader.readline():
            words = line.split()
            if words[0] in (b"MSG", b"HMSG"):
                body = await self._reader.readexactly(int(words[-1]) + 2)
                self.got.append((words[1], body[:-2]))
            elif words[0] == b"PING":
                self.writer.write(b"PONG\r\n")
            elif words[0] == b"PONG":
                self.pongs += 1

    async def close(self) -> None:
        self._task.cancel()
        self.writer.close()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def client(node: Node, lines: bytes) -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", node.port))
    peer.writer.write(CONNECT + lines)
    try:
        yield peer
    finally:
        await peer.close()


async def until(condition: Callable[[], bool], seconds: float = 40) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition is of the servers
            await asyncio.sleep(0.02)


@asynccontextmanager
async def through_proxy(kinds: Kinds, folder: Path) -> AsyncIterator[tuple[Node, Node, ChaosProxy]]:
    hub = await asyncio.to_thread(Node, kinds[0], folder, "hub", hub_config())
    try:
        async with ChaosProxy(hub.leaf_port) as proxy:
            config = leaf_config(proxy.port, "ignore_discovered_servers: true")
            leaf = await asyncio.to_thread(Node, kinds[1], folder, "leaf", config)
            try:
                await asyncio.to_thread(hub.wait_linked)
                yield hub, leaf, proxy
            finally:
                await asyncio.to_thread(leaf.stop)
    finally:
        await asyncio.to_thread(hub.stop)


def test_nothing_comes_twice_or_out_of_order_over_a_link_that_breaks(
    kinds: Kinds, tmp_path: Path
) -> None:
    async def scene() -> None:
        chance = random.Random(7)
        async with (
            through_proxy(kinds, tmp_path) as (hub, leaf, proxy),
            client(hub, b"SUB up 1\r\nSUB echo q 2\r\n") as above,
            client(leaf, b"SUB down 1\r\nSUB back.* 2\r\n") as below,
        ):
            sent = 0
            for _ in range(CUTS):
                seen = len(above.got), len(below.got)
                # It works again by itself: messages arrive both ways.
                async with asyncio.timeout(40):
                    while (len(above.got), len(below.got)) < (seen[0] + 20, seen[1] + 20) or (
                        len(above.got) < seen[0] + 20 or len(below.got) < seen[1] + 20
                    ):
                        for _ in range(chance.randint(1, 20)):
                            sent += 1
                            below.writer.write(b"PUB up 8\r\n%08d\r\n" % sent)
                            above.writer.write(b"PUB down 8\r\n%08d\r\n" % sent)
                        await asyncio.sleep(0.005)
                proxy.cut()
            for peer in (above, below):
                numbers = [int(body) for _, body in peer.got]
                assert numbers == sorted(set(numbers)), "twice, or out of order"
            assert proxy.connections >= CUTS

    asyncio.run(scene())


def test_requests_work_again_after_each_cut(kinds: Kinds, tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            through_proxy(kinds, tmp_path) as (hub, leaf, proxy),
            client(hub, b"SUB svc 1\r\n") as service,
            client(leaf, b"SUB answer.* 1\r\n") as asker,
        ):
            answered = 0

            async def serve() -> None:
                done = 0
                while True:
                    for _, body in service.got[done:]:
                        service.writer.write(b"PUB answer.%b 2\r\nok\r\n" % body)
                    done = len(service.got)
                    await asyncio.sleep(0.002)

            serving = asyncio.get_running_loop().create_task(serve())
            number = 0
            for _ in range(3):
                async with asyncio.timeout(40):
                    while True:
                        number += 1
                        asker.writer.write(b"PUB svc answer.%d 4\r\n%04d\r\n" % (number, number))
                        await asyncio.sleep(0.05)
                        oks = [name for name, body in asker.got if body == b"ok"]
                        if len(oks) > answered:
                            assert len(oks) == len(set(oks)), "an answer came twice"
                            answered = len(oks)
                            break
                proxy.cut()
            serving.cancel()

    asyncio.run(scene())


def test_link_that_swallows_everything_holds_up_nobody(kinds: Kinds, tmp_path: Path) -> None:
    """The other end stops reading: memory stays bounded, and local clients go on."""

    async def scene() -> None:
        async with (
            through_proxy(kinds, tmp_path) as (hub, leaf, proxy),
            client(hub, b"SUB flood 1\r\n"),
            client(leaf, b"SUB local 1\r\n") as local,
            client(leaf, b"") as publisher,
        ):
            await asyncio.to_thread(leaf.wait_asked, "flood")
            proxy.stall()
            payload = b"x" * 100_000
            for number in range(400):
                publisher.writer.write(b"PUB flood 100000\r\n" + payload + b"\r\n")
                if number % 10 == 0:
                    local.writer.write(b"PUB local 1\r\nx\r\n")
                    await publisher.writer.drain()
            await until(lambda: len(local.got) == 40)
            varz = await asyncio.to_thread(leaf.page, "varz")
            assert varz["mem"] < 400 << 20
            proxy.resume()

    asyncio.run(scene())
