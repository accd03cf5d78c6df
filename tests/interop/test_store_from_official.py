"""Folders written by nats-server open in our store with the same state, to the byte."""

from __future__ import annotations

import asyncio
import io
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from interop_kit import (
    HOUR,
    StreamTruth,
    copy_store,
    official,
    official_truth,
    open_ours,
    our_truth,
)
from official_streams import STREAMS
from tradewind.server.jetstream.check_store import check_store
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.stream_folder import NotReadable, StoreRoot
from tradewind.store.format.layout import block_numbers

# The fixture below is made once for all tests of this file.
pytestmark = [pytest.mark.xdist_group("interop_from"), pytest.mark.timeout(300)]
# How the official server ended, and what then lies in its folder.
ENDS = ("stopped", "stopped without index.db", "killed", "killed and restarted")


@dataclass
class Written:
    """A folder that the official server left, and what it says of it."""

    folder: Path
    truth: dict[str, StreamTruth]
    now_ns: int
    check: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert sum(truth.messages for truth in self.truth.values()) > 1000
        # Before any test opens it and changes it.
        report = self.folder.with_suffix(".json")
        check_store([str(self.folder), "--json", str(report)], io.StringIO())
        self.check = json.loads(report.read_bytes())


async def _fill(folder: Path, *, kill: bool) -> dict[str, StreamTruth]:
    async with official(folder) as server:
        for config, _ in STREAMS.values():
            await server.api(f"STREAM.CREATE.{config['name']}", config)
        await asyncio.gather(*(fill(server) for _, fill in STREAMS.values()))
        truth = {name: await official_truth(server, name) for name in STREAMS}
        await server.stop(kill=kill)
    return truth


async def _reopened(folder: Path) -> dict[str, StreamTruth]:
    """What the official server makes of a folder."""
    async with official(folder) as server:
        return {name: await official_truth(server, name) for name in STREAMS}


async def _write(base: Path) -> dict[str, Written]:
    """The official server's limits leave no trace but in index.db, and some messages come back
    when that is missing: so each end has its own truth.
    """
    stopped, killed = base / "stopped", base / "killed"
    live, _ = await asyncio.gather(_fill(stopped, kill=False), _fill(killed, kill=True))
    bare = copy_store(stopped, base / "bare", with_index=False)
    bare_again = copy_store(bare, base / "bare-again")
    restarted = copy_store(killed, base / "restarted")
    bare_truth, killed_truth = await asyncio.gather(_reopened(bare_again), _reopened(restarted))
    truths = (live, bare_truth, killed_truth, killed_truth)
    folders = (stopped, bare, killed, restarted)
    # What a server has removed because it was too old is too old for us, too.
    now_ns = time.time_ns()
    return {
        end: Written(folder, truth, now_ns)
        for end, folder, truth in zip(ENDS, folders, truths, strict=True)
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    return asyncio.run(_write(tmp_path_factory.mktemp("official")))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("end", ENDS)
def test_the_stream_and_its_consumers_are_the_same(
    written: dict[str, Written], end: str, name: str
) -> None:
    found = written[end]
    root = StoreRoot(OsDisk(str(found.folder)), str(found.folder))
    try:
        stream = root.stream("$G", name)
        _, store, report = stream.open(found.now_ns)
        assert report.is_clean, report
        assert our_truth(stream, store) == found.truth[name]
    finally:
        root.close()


@pytest.mark.parametrize("end", ENDS)
def test_the_offline_check_finds_nothing_wrong(written: dict[str, Written], end: str) -> None:
    streams = written[end].check["streams"]
    assert [stream for stream in streams if stream["result"] != "clean"] == []
    assert {stream["stream"]: stream["messages"] for stream in streams} == {
        name: truth.messages for name, truth in written[end].truth.items()
    }


@pytest.mark.parametrize(("name", "blocks"), [("BLOCKS", 3), ("HUGE", 2), ("COMPRESSED", 3)])
def test_several_blocks_are_compared(written: dict[str, Written], name: str, blocks: int) -> None:
    folder = written["stopped"].folder / "jetstream/$G/streams" / name / "msgs"
    files = [path for path in folder.iterdir() if path.suffix == ".blk"]
    assert len(block_numbers([path.name for path in files])) >= blocks
    compressed = [path for path in files if path.read_bytes().startswith(b"cmp")]
    assert bool(compressed) == (name == "COMPRESSED")


def test_what_is_too_old_when_it_is_opened_is_gone(
    written: dict[str, Written], tmp_path: Path
) -> None:
    found = written["killed"]
    times = [entry[0] for entry in found.truth["AGING"].content.values()]
    folder = copy_store(found.folder / "jetstream/$G/streams/AGING", tmp_path / "aging")
    target = tmp_path / "store/jetstream/$G/streams/AGING"
    copy_store(folder, target)
    ours = open_ours(tmp_path / "store", times[4] + HOUR)["AGING"]
    assert list(ours.content) == [6, 7, 8, 9, 10]
    assert (ours.first_seq, ours.last_seq) == (6, 10)


async def test_a_named_account_has_its_own_folder(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        "accounts { ACME.org: { jetstream: enabled, users: [{user: a, password: b}] } }\n"
    )
    folder = tmp_path / "store"
    async with official(folder, config=config, user="a", password="b") as server:
        await server.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        await server.publish("s", b"in an account")
        truth = await official_truth(server, "S")
    assert open_ours(folder, truth.last_ns, "ACME.org") == {"S": truth}


async def test_an_encrypted_stream_is_refused_and_left_alone(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text('jetstream { key: "a secret of some length", cipher: aes }\n')
    folder = tmp_path / "store"
    async with official(folder, config=config) as server:
        await server.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        await server.publish("s", b"secret")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    root = StoreRoot(OsDisk(str(folder)), str(folder))
    listing = root.streams("$G")
    assert not listing.streams
    assert "is encrypted" in listing.skipped[0].reason
    with pytest.raises(NotReadable, match="encrypted"):
        root.stream("$G", "S").open(0)
    root.close()
    assert {path: path.read_bytes() for path in before} == before
