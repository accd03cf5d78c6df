"""nats-server opens what our store has written, goes on with it, and we take it back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from nats.aio.msg import Msg

import our_streams
from interop_kit import (
    Official,
    StreamTruth,
    copy_store,
    direct_messages,
    official,
    official_truth,
    open_ours,
)
from our_streams import STREAMS, write_streams

# The fixture below is made once for all tests of this file.
pytestmark = [pytest.mark.xdist_group("interop_to"), pytest.mark.timeout(300)]
# How our store ended.
ENDS = ("closed", "closed without index.db", "killed")


@dataclass
class Visit:
    """A folder of ours that the official server has opened and changed."""

    ours: dict[str, StreamTruth | str]
    found: dict[str, StreamTruth]
    direct: dict[int, bytes]
    due: list[tuple[int, int]]
    left: dict[str, StreamTruth]
    back: dict[str, StreamTruth | str]
    complaints: list[str]


async def _change(server: Official) -> None:
    """It can publish to every stream, and its consumers go on."""
    for name in STREAMS:
        for index in range(3):
            await server.publish(f"{name}.after", b"%d" % index)
    for name in ("explicit", "all", "fresh", "changed"):
        messages = await server.fetch("CONSUMED", name, 3)
        await server.answer(messages[0])
        await server.answer(messages[1])
    jobs = await server.messages("WORK")
    for message in await server.fetch("WORK", "worker", 2):
        await server.answer(message)
    await server.wait_for_messages("WORK", jobs - 2)


def deliveries(messages: list[Msg]) -> list[tuple[int, int]]:
    """(stream sequence, how often it has been delivered) of each, from its ack subject."""
    words = [message.reply.split(".") for message in messages]
    return [(int(parts[5]), int(parts[4])) for parts in words]


async def _visit(folder: Path, ours: dict[str, StreamTruth | str]) -> Visit:
    async with official(folder) as server:
        found = {name: await official_truth(server, name) for name in STREAMS}
        direct = await direct_messages(server, "PLAIN", found["PLAIN"].last_seq)
        due = deliveries(await server.fetch("DUE", "due", 4))
        await _change(server)
        left = {name: await official_truth(server, name) for name in STREAMS}
        await server.stop()
    back = open_ours(folder, max(truth.last_ns for truth in left.values()))
    return Visit(ours, found, direct, due, left, back, server.complaints())


async def _visits(base: Path) -> dict[str, Visit]:
    made = write_streams(base / "open", time.time_ns())
    ours = our_streams.truths(made)
    folders = [copy_store(base / "open", base / "killed")]
    for stream in made.values():
        stream.store.close()
    folders.append(copy_store(base / "open", base / "closed"))
    folders.append(copy_store(base / "open", base / "bare", with_index=False))
    visits = await asyncio.gather(*(_visit(folder, ours) for folder in folders))
    return dict(zip(("killed", "closed", "closed without index.db"), visits, strict=True))


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Visit]:
    return asyncio.run(_visits(tmp_path_factory.mktemp("ours")))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("end", ENDS)
def test_the_official_server_finds_the_same(visits: dict[str, Visit], end: str, name: str) -> None:
    assert visits[end].found[name] == visits[end].ours[name]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("end", ENDS)
def test_what_it_has_changed_comes_back(visits: dict[str, Visit], end: str, name: str) -> None:
    assert visits[end].left[name].last_seq == visits[end].found[name].last_seq + 3
    assert visits[end].back[name] == visits[end].left[name]


@pytest.mark.parametrize("end", ENDS)
def test_direct_get_finds_the_same(visits: dict[str, Visit], end: str) -> None:
    ours = visits[end].ours["PLAIN"]
    assert isinstance(ours, StreamTruth)
    assert visits[end].direct == {seq: entry[3] for seq, entry in ours.content.items()}


@pytest.mark.parametrize("end", ENDS)
def test_what_is_due_is_delivered_again_with_its_count(visits: dict[str, Visit], end: str) -> None:
    assert sorted(visits[end].due[:3]) == [(2, 2), (4, 4), (5, 2)]
    assert visits[end].due[3] == (7, 1)


@pytest.mark.parametrize("end", ENDS)
def test_it_has_nothing_to_complain_about(visits: dict[str, Visit], end: str) -> None:
    # Without a thw.db it reads the messages instead, and says so.
    allowed = "TTL state is outdated; attempting to recover using linear scan"
    assert not [line for line in visits[end].complaints if allowed not in line]
