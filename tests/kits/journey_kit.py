"""A folder that goes from one server to the other and back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from harness import wait_for
from interop_kit import Official, copy_store
from official_streams import STREAMS
from server_truth import Document, running, server_truth

NAMES = list(STREAMS)


# Who fills the folder, and how it ends.
WAYS = [(kind, end) for kind in ("official", "tradewind") for end in ("stopped", "killed")]
OTHER = {"official": "tradewind", "tradewind": "official"}


@dataclass
class Journey:
    """A folder goes to the other server, is used there, and comes back."""

    first: dict[str, Document]
    other: dict[str, Document]
    left: dict[str, Document]
    back: dict[str, Document]


async def _fill(kind: str, folder: Path, jetstream: str = "", *, kill: bool) -> dict[str, Document]:
    async with running(kind, folder, jetstream) as server:
        for config, _ in STREAMS.values():
            await server.api(f"STREAM.CREATE.{config['name']}", config)
        await asyncio.gather(*(fill(server) for _, fill in STREAMS.values()))
        truth = await server_truth(server, NAMES)
        if kill:
            await asyncio.to_thread(_wait_for_states, folder)
        await server.stop(kill=kill)
    return truth


def _wait_for_states(folder: Path) -> None:
    """Answers are kept in a log of ours first, which the official server passes over."""
    wait_for(lambda: not list(folder.glob("jetstream/*/streams/*/tradewind.acks.*")))


async def _change(server: Official) -> None:
    """Every stream takes messages, and consumers go on with what is pending and what is new."""
    for name in NAMES:
        if name not in ("DISCARD_NEW", "AGED"):  # full, or gone before one can look
            for index in range(3):
                await server.publish(f"{name}.after", b"%d" % index)
    jobs = await server.messages("WORK")
    for stream, consumer in (("CONSUMED", "explicit"), ("CONSUMED", "all"), ("WORK", "worker")):
        messages = await server.fetch(stream, consumer, 3)
        await server.answer(messages[0])
        await server.answer(messages[1])
    await server.wait_for_messages("WORK", jobs - 2)


async def make_journey(kind: str, end: str, base: Path, jetstream: str = "") -> Journey:
    """`jetstream` are settings of both servers."""
    folder = base / "store"
    first = await _fill(kind, folder, jetstream, kill=end == "killed")
    if end == "killed":
        # The official server forgets what limits have removed; a consumer is written a bit later.
        async with running(kind, copy_store(folder, base / "same"), jetstream) as server:
            first = await server_truth(server, NAMES)
    async with running(OTHER[kind], folder, jetstream) as server:
        other = await server_truth(server, NAMES)
        await _change(server)
        left = await server_truth(server, NAMES)
        await server.stop()
    async with running(kind, folder, jetstream) as server:
        back = await server_truth(server, NAMES)
    return Journey(first, other, left, back)
