"""Keys that change, are lost or are wrong, on both servers and between them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from interop_kit import WAIT_SECONDS, ApiError, Official, copy_store
from server_truth import differences, running, server_truth
from wire_backups import restore_backup, take_backup

pytestmark = pytest.mark.timeout(120)
CONFIG = {"name": "S", "subjects": ["s.>"], "storage": "file", "allow_msg_schedules": True}
PACKED = {"name": "P", "subjects": ["p.>"], "storage": "file", "compression": "s2"}
CONSUMER = {"durable_name": "C", "ack_policy": "explicit"}
NAMES = ["S", "P"]
KEY = 'key: "first secret"'
# What a folder was written with, and what it is opened with then.
CHANGES = {
    "plain to chacha": ("", KEY),
    "plain to aes": ("", f"{KEY}, cipher: AES"),
    "chacha to aes": (KEY, f"{KEY}, cipher: aes"),
    "aes to chacha": (f"{KEY}, cipher: aes", f"{KEY}, cipher: ChaChaPoly"),
    "another key": (KEY, 'ek: "second", prev_ek: "first secret"'),
    "another key and cipher": (
        KEY,
        'encryption_key: "second", prev_encryption_key: "first secret", cipher: aes',
    ),
}
SECRETS = (b"s.subject", b"payload of", b"s.later")


async def fill(server: Official) -> None:
    await server.api("STREAM.CREATE.S", CONFIG)
    await server.api("STREAM.CREATE.P", PACKED)
    await server.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": CONSUMER})
    for number in range(60):
        await server.publish(f"s.subject.{number % 7}", b"payload of %d" % number)
        await server.publish(f"p.subject.{number % 7}", b"payload of %d" % number * 200)
    headers = {"Nats-Schedule": "@at 2096-01-01T00:00:00Z", "Nats-Schedule-Target": "s.due"}
    await server.publish("s.later", b"payload of a schedule", headers)
    messages = await server.fetch("S", "C", 5)
    for message in messages[:3]:
        await server.answer(message)


async def truth_of(server: Official) -> dict[str, Any]:
    found = await server_truth(server, NAMES)
    for name in NAMES:
        # The official server takes the moment of a conversion for that of the creation.
        found[name]["info"].pop("created")
        for consumer in found[name]["consumers"].values():
            consumer.pop("created", None)
    return found


def readable(folder: Path) -> list[str]:
    """Files with something of the messages in clear."""
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and any(text in path.read_bytes() for text in SECRETS)
    ]


def fingerprint(folder: Path) -> dict[str, str]:
    """Everything that is there, but for the lock of a server."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "tradewind.lock"
    }


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", ["official", "tradewind"])
async def test_folder_is_converted_by_us_and_opened_by_both(
    tmp_path: Path, kind: str, before: str, after: str
) -> None:
    folder = tmp_path / "store"
    async with running(kind, folder, before) as server:
        await fill(server)
        expected = await truth_of(server)
        await server.stop()
    async with running("tradewind", folder, after) as server:
        assert differences(expected, await truth_of(server)) == []
        await server.stop()
    assert readable(folder) == []
    # Without the key of before, on either server.
    alone = after.split(", prev")[0] + (", cipher: aes" if "cipher: aes" in after.lower() else "")
    alone = alone.replace(", cipher: aes, cipher: aes", ", cipher: aes")
    for other in ("official", "tradewind"):
        copy = copy_store(folder, tmp_path / other)
        async with running(other, copy, alone) as server:
            assert differences(expected, await truth_of(server)) == []
            await server.publish("s.after", b"x")
            await server.stop()


@pytest.mark.parametrize("kind", ["official", "tradewind"])
async def test_schedule_of_an_encrypted_stream_is_kept_by_the_other_server(
    tmp_path: Path, kind: str
) -> None:
    """Ours writes no sched.db, and removes the one of nats-server: the messages tell."""
    folder = tmp_path / "store"
    due = datetime.now(UTC) + timedelta(seconds=5)
    headers = {
        "Nats-Schedule": f"@at {due.isoformat(timespec='seconds').replace('+00:00', 'Z')}",
        "Nats-Schedule-Target": "s.due",
    }
    async with running(kind, folder, KEY) as server:
        await server.api("STREAM.CREATE.S", CONFIG)
        await server.publish("s.later", b"payload of a schedule", headers)
        await server.stop()
    other = {"official": "tradewind", "tradewind": "official"}[kind]
    async with running(other, folder, KEY) as server:
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while True:
            state = (await server.api("STREAM.INFO.S", {"subjects_filter": ">"}))["state"]
            if "s.due" in state.get("subjects", {}):
                break
            assert asyncio.get_running_loop().time() < deadline, state
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", ["official", "tradewind"])
@pytest.mark.parametrize("cipher", ["chacha", "aes"])
async def test_what_the_official_server_has_converted_is_opened(
    tmp_path: Path, kind: str, cipher: str
) -> None:
    folder = tmp_path / "store"
    after = f"{KEY}, cipher: {cipher}"
    async with running(kind, folder) as server:
        await fill(server)
        expected = await truth_of(server)
        await server.stop()
    async with running("official", folder, after) as server:
        assert differences(expected, await truth_of(server)) == []
        await server.stop(kill=True)
    async with running("tradewind", folder, after) as server:
        assert differences(expected, await truth_of(server)) == []


def page(server: Official, path: str) -> tuple[int, dict[str, Any]]:
    port = server.process.wait_for_log(r"Starting http monitor on 127.0.0.1:(\d+)")[1]
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize(
    ("jetstream", "reason"),
    [
        ("", "no key is configured"),
        ('key: "wrong"', "the configured key does not open this key file"),
        ('key: "wrong", prev_key: "worse", cipher: aes', "key and prev_key do not open"),
    ],
)
async def test_lost_or_wrong_key_is_named_everywhere_and_changes_nothing(
    tmp_path: Path, jetstream: str, reason: str
) -> None:
    folder = tmp_path / "store"
    async with running("tradewind", folder, KEY) as server:
        await fill(server)
        expected = await truth_of(server)
        await server.stop()
    before = fingerprint(folder)
    settings = f'{jetstream or "strict: true"}\n}}\nhttp: "127.0.0.1:-1"\naccounts {{'
    async with running("tradewind", folder, settings) as server:
        assert reason in server.process.log
        with pytest.raises(ApiError) as refused:
            await server.api("STREAM.INFO.S")
        assert reason in str(refused.value)
        with pytest.raises(ApiError):
            await server.api("STREAM.CREATE.S", CONFIG)
        status, health = page(server, "/healthz")
        assert status == 503
        assert reason in json.dumps(health)
        assert reason in json.dumps(page(server, "/jsz?accounts=1&streams=1")[1])
        await server.stop()
    assert fingerprint(folder) == before
    async with running("tradewind", folder, KEY) as server:
        assert differences(expected, await truth_of(server)) == []


@pytest.mark.parametrize("harm", ["missing", "damaged"])
async def test_block_whose_key_is_gone_costs_no_other_file(tmp_path: Path, harm: str) -> None:
    """nats-server deletes the block, or the whole stream."""
    folder = tmp_path / "store"
    async with running("tradewind", folder, KEY) as server:
        await fill(server)
        await server.stop()
    key = folder / "jetstream/$G/streams/S/msgs/1.key"
    content = key.read_bytes()
    if harm == "missing":
        key.unlink()
    else:
        key.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    before = fingerprint(folder / "jetstream/$G/streams/S")
    async with running("tradewind", folder, KEY) as server:
        with pytest.raises(ApiError, match=r"1\.key"):
            await server.api("STREAM.INFO.S")
        await server.api("STREAM.INFO.P")  # the others run
        await server.stop()
    assert fingerprint(folder / "jetstream/$G/streams/S") == before
    key.write_bytes(content)
    async with running("tradewind", folder, KEY) as server:
        assert (await server.api("STREAM.INFO.S"))["state"]["messages"] == 61


@pytest.mark.parametrize("source", ["official", "tradewind"])
@pytest.mark.parametrize("target", ["official", "tradewind"])
async def test_backup_is_plain_and_its_restore_is_encrypted(
    tmp_path: Path, source: str, target: str
) -> None:
    async with running(source, tmp_path / "one", KEY) as server:
        await fill(server)
        expected = await truth_of(server)
        backups = {name: await take_backup(server, name) for name in NAMES}
    async with running(target, tmp_path / "two", f"{KEY}, cipher: aes") as server:
        for name, backup in backups.items():
            await restore_backup(server, name, backup)
        assert differences(expected, await truth_of(server)) == []
        await server.stop()
    if target == "tradewind":
        assert readable(tmp_path / "two") == []
    async with running("tradewind", tmp_path / "two", f"{KEY}, cipher: aes") as server:
        assert differences(expected, await truth_of(server)) == []
    # And without a key again.
    async with running("tradewind", tmp_path / "three") as server:
        for name, backup in backups.items():
            await restore_backup(server, name, backup)
        assert differences(expected, await truth_of(server)) == []
