"""What a publish costs in Python: the way from a socket to the disk and back is compiled."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, cast

from tls_link_kit import RecordingLog

import tradewind
from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.server.lifecycle.app import ServerApp
from tradewind.server.monitoring.logs import Log

SOURCES = str(Path(tradewind.__file__).parent)
AUDIT = "totals_audit.py"  # assertions that are on in tests
PUBLISHES = 200
# Once per publish each: whether the stream has consumers, whether it has companions.
FRAMES_MAX = 2
SECONDS = 60


class Publisher:
    """A client that waits for the acknowledgement of each message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, subject: bytes, payload: bytes) -> bytes:
        self._writer.write(b"PUB %s r %d\r\n%s\r\n" % (subject, len(payload), payload))
        while not (line := await self._reader.readline()).startswith(b"MSG"):
            if line == b"PING\r\n":
                self._writer.write(b"PONG\r\n")
        return await self._reader.readexactly(int(line.split()[-1]) + 2)


async def test_a_synced_publish_runs_next_to_no_python(tmp_path: Path) -> None:
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    options = ServerOptions(host="127.0.0.1", port=-1, jetstream=jetstream)
    server = ServerApp(options, cast(Log, RecordingLog()))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    frames: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(SOURCES) and not path.endswith(AUDIT):
            frames[frame.f_code.co_qualname] += 1

    async with asyncio.timeout(SECONDS):
        try:
            writer.write(b'CONNECT {"verbose":false}\r\nSUB r 1\r\n')
            publisher = Publisher(reader, writer)
            await publisher.ask(b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["a"]}')
            await publisher.ask(b"a", b"the first one begins the block")
            before = sys.getprofile()
            sys.setprofile(count)
            try:
                for _ in range(PUBLISHES):
                    assert b'"seq":' in await publisher.ask(b"a", b"hello")
            finally:
                sys.setprofile(before)
        finally:
            writer.close()
            await server.stop()
    # Timers of the server and the reserve of sequences come in between.
    often = {name: times for name, times in frames.items() if times >= PUBLISHES / 2}
    assert sum(often.values()) <= FRAMES_MAX * PUBLISHES, often
