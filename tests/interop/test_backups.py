"""Backups cross over: what one server has saved the other restores, and says the same of it."""

from __future__ import annotations

import asyncio
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from official_streams import STREAMS, many
from server_truth import Document, differences, running, server_truth
from tradewind.store.format import s2
from wire_backups import Backup, restore_backup, take_backup

# The fixture below is made once for all tests of this file.
pytestmark = [pytest.mark.xdist_group("interop_backups"), pytest.mark.timeout(300)]
# In the others time goes on between the two looks: messages expire.
NAMES = [name for name in STREAMS if name not in ("AGED", "TTL")]
MEMORY = "IN_MEMORY"
ALL_NAMES = [*NAMES, MEMORY]
WAYS = [
    ("official", "tradewind"),
    ("tradewind", "official"),
    ("tradewind", "tradewind"),
]


def comparable(document: Document, by: str) -> Document:
    """Without when a stream or consumer was made: a restore makes it anew."""
    info = {name: value for name, value in document["info"].items() if name != "created"}
    state = info["state"] = dict(info["state"])
    if by == "official" and state["last_seq"] not in document["messages"]:
        # It forgets when a message was stored that is not there, and that a stream was never used.
        state.pop("last_ts", None)
        state["first_seq"] = max(state["first_seq"], 1)
    consumers = {
        consumer: {name: value for name, value in answer.items() if name != "created"}
        for consumer, answer in document["consumers"].items()
    }
    return {"info": info, "messages": document["messages"], "consumers": consumers}


@dataclass
class Crossing:
    """What the first server said of its streams, and the second of what it was given."""

    first: dict[str, Document]
    second: dict[str, Document]
    restored_by: str


async def _cross(first: str, second: str, base: Path) -> Crossing:
    async with running(first, base / "first") as server:
        for config, _ in STREAMS.values():
            await server.api(f"STREAM.CREATE.{config['name']}", config)
        memory = {"name": MEMORY, "subjects": [f"{MEMORY}.>"], "storage": "memory"}
        await server.api(f"STREAM.CREATE.{MEMORY}", memory)
        await asyncio.gather(*(fill(server) for _, fill in STREAMS.values()))
        await many(server, MEMORY, 20)
        await server.api(f"STREAM.MSG.DELETE.{MEMORY}", {"seq": 20})
        before = await server_truth(server, ALL_NAMES)
        backups = {name: await take_backup(server, name, chunk_size=20_000) for name in ALL_NAMES}
    async with running(second, base / "second") as server:
        for name, backup in backups.items():
            await restore_backup(server, name, backup)
        after = await server_truth(server, ALL_NAMES)
    if second == "tradewind":
        async with running(second, base / "second") as server:
            again = await server_truth(server, NAMES)
        assert all(differences(after[name], again[name]) == [] for name in NAMES)
    return Crossing(before, after, second)


@pytest.fixture(scope="module", params=WAYS, ids="_to_".join)
def crossing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Crossing:
    return asyncio.run(_cross(*request.param, tmp_path_factory.mktemp("crossing")))


@pytest.mark.parametrize("name", ALL_NAMES)
def test_what_was_backed_up_is_restored(crossing: Crossing, name: str) -> None:
    one, other = (
        comparable(document[name], crossing.restored_by)
        for document in (crossing.first, crossing.second)
    )
    assert differences(one, other) == []


async def _tar_of(folder: Path) -> tuple[Document, Backup]:
    """A stream with a consumer in the format of servers before 2.15: a tar of its folder."""
    async with running("official", folder) as server:
        await server.api("STREAM.CREATE.OLD", {"name": "OLD", "subjects": ["OLD.>"]})
        consumer = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
        await many(server, "OLD", 30)
        await server.api("STREAM.MSG.DELETE.OLD", {"seq": 7})
        await server.api("CONSUMER.CREATE.OLD.c", {"stream_name": "OLD", "config": consumer})
        await server.answer((await server.fetch("OLD", "c", 3))[0])
        backup = await take_backup(server, "OLD")
        await server.stop()
    async with running("official", folder) as server:
        truth = (await server_truth(server, ["OLD"]))["OLD"]
    root = folder / "jetstream" / "$G" / "streams" / "OLD"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                tar.add(path, str(path.relative_to(root)))
    return truth, Backup(backup.config, backup.state, s2.compress(raw.getvalue()))


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_backup_from_before_2_15_is_restored(tmp_path: Path, storage: str) -> None:
    async def run() -> None:
        truth, backup = await _tar_of(tmp_path / "old")
        backup.config["storage"] = storage
        async with running("tradewind", tmp_path / "new") as server:
            await restore_backup(server, "OLD", backup)
            found = (await server_truth(server, ["OLD"]))["OLD"]
        one, other = comparable(truth, "tradewind"), comparable(found, "tradewind")
        if storage == "memory":
            for document in (one, other):
                del document["info"]["config"]["storage"]
                del document["info"]["state"]["bytes"]
        assert differences(one, other) == []
        assert not list((tmp_path / "new/jetstream/$G/__snapshots__").iterdir())

    asyncio.run(run())
