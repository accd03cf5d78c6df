"""Messages with a time to live expire at the same time whichever server has the folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import time_ns

import pytest

from interop_kit import (
    SECOND,
    WAIT_SECONDS,
    Official,
    StreamTruth,
    copy_store,
    official,
    official_truth,
    wait_for,
)
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.message_ttl import NEVER, parse_ttl_ns
from tradewind.store.format.meta import StreamMeta
from tradewind.store.format.timing_wheel import TimingWheel

# The fixture below is made once for all tests of this file.
pytestmark = pytest.mark.xdist_group("interop_ttl")
CONFIG = {"name": "T", "subjects": ["t.>"], "allow_msg_ttl": True, "storage": "file"}
# So long that none expires before the server is asked and stopped.
TTLS = ("1h", "200s", "never", "1m30s", "90", "61.9s", "Never", "876000h")
# A file as the official server leaves it, and less than that.
LOSSES: dict[str, tuple[str, ...]] = {
    "all files": (),
    "without thw.db": ("thw.db",),
    "without index.db": ("index.db",),
    "without both": ("thw.db", "index.db"),
}


async def fill(server: Official) -> None:
    await server.api("STREAM.CREATE.T", CONFIG)
    await server.publish("t.plain", b"no time to live")
    for ttl in TTLS:
        await server.publish(f"t.{ttl.replace('.', '_')}", ttl.encode(), {"Nats-TTL": ttl})


def lose(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (folder / "jetstream/$G/streams/T/msgs" / name).unlink()


def opened(folder: Path, now_ns: int) -> tuple[StoreRoot, FileStore]:
    root = StoreRoot(OsDisk(str(folder)), str(folder))
    _, store, report = root.stream("$G", "T").open(now_ns)
    assert report.is_clean
    return root, store


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StreamTruth]:
    folder = tmp_path_factory.mktemp("official")

    async def write() -> StreamTruth:
        async with official(folder) as server:
            await fill(server)
            truth = await official_truth(server, "T")
            await server.stop()
        return truth

    return folder, asyncio.run(write())


@pytest.mark.parametrize("loss", LOSSES)
def test_folder_of_the_official_server_expires_as_it_would_there(
    written: tuple[Path, StreamTruth], tmp_path: Path, loss: str
) -> None:
    source, truth = written
    copy_store(source, tmp_path / "copy")
    tmp_path /= "copy"
    thw = tmp_path / "jetstream/$G/streams/T/msgs/thw.db"
    theirs, stamp = TimingWheel.decode(thw.read_bytes())
    lose(tmp_path, LOSSES[loss])
    root, store = opened(tmp_path, truth.first_ns)
    expected = {
        (seq, born_ns + parse_ttl_ns(payload))
        for seq, (born_ns, _, _, payload) in truth.content.items()
        if seq > 1 and parse_ttl_ns(payload) != NEVER
    }
    assert set(store.table.timers.pending()) == expected == set(theirs.pending())
    assert stamp == truth.last_seq + 1
    # One nanosecond before and at the moment itself.
    first_ns = min(expires_ns for _, expires_ns in expected)
    assert store.table.next_expiry_ns() == first_ns
    assert store.table.expire(first_ns - 1) == 0
    assert store.table.expire(first_ns) == 1
    store.close()
    root.close()


@pytest.mark.parametrize("loss", LOSSES)
async def test_our_folder_expires_in_the_official_server(tmp_path: Path, loss: str) -> None:
    root = StoreRoot(OsDisk(str(tmp_path)), str(tmp_path))
    folder = root.stream("$G", "T")
    folder.create(StreamMeta({**CONFIG, "metadata": {"_nats.req.level": "1"}}, 0))
    now_ns = time_ns()
    _, store, _ = folder.open(now_ns)
    for ttl, age_ns in ((b"1h", 0), (b"1h", 3600 * SECOND), (b"never", 10**6 * SECOND), (b"1s", 0)):
        header = b"NATS/1.0\r\nNats-TTL: " + ttl + b"\r\n\r\n"
        store.table.store(b"t." + ttl, header, ttl, now_ns - age_ns, parse_ttl_ns(ttl))
    store.table.store(b"t.plain", b"", b"plain", now_ns)
    store.close()
    root.close()
    lose(tmp_path, LOSSES[loss])
    async with official(tmp_path) as server:

        async def has_expired() -> bool:
            return bool((await server.api("STREAM.INFO.T"))["state"]["messages"] == 3)

        await wait_for(has_expired, "the messages of an hour ago and of this one")
        assert sorted((await official_truth(server, "T")).content) == [1, 3, 5]
        await server.stop()
    # And back: what it has expired stays so, and the rest has its timer.
    root, store = opened(tmp_path, time_ns())
    assert [message.seq for message in store.table.messages()] == [1, 3, 5]
    assert store.table.timers.pending() == [(1, now_ns + 3600 * SECOND)]
    store.close()
    root.close()


async def test_both_servers_read_a_time_to_live_alike(tmp_path: Path) -> None:
    values = (
        *("1", "01", "1s", "1.5s", "999ms", "1000ms", "0.5s", "0", "0s", "-1s", "+1s", "-1", "+5"),
        *("never", "NEVER", "nEver ", "forever", "", "1d", "1m30s", "1m 30s", ".5m", "5.m", ".s"),
        *("1h1ns", "1µs", "5000000us", "9999999999999h", "1e3", "1_000", "٣", "3s5", "5s3s"),
    )
    async with official(tmp_path) as server:
        await server.api("STREAM.CREATE.T", CONFIG)
        differing = []
        for value in values:
            taken = await is_accepted(server, value)
            if taken != is_valid(value, parse_ttl_ns):
                differing.append((value, taken))
        assert differing == []


def is_valid(value: str, parse: Callable[[bytes], int]) -> bool:
    try:
        parse(value.encode())
    except ValueError:
        return False
    return True


async def is_accepted(server: Official, value: str) -> bool:
    """Sent by hand, because clients trim the values of headers."""
    header = b"NATS/1.0\r\nNats-TTL: " + value.encode() + b"\r\n\r\n"
    inbox = server.client.new_inbox()
    subscription = await server.client.subscribe(inbox)
    line = f"HPUB t.x {inbox} {len(header)} {len(header) + 1}\r\n".encode()
    await server.client._send_command(line + header + b"x\r\n")
    await server.client.flush()
    answer = await subscription.next_msg(timeout=WAIT_SECONDS)
    await subscription.unsubscribe()
    return b'"error"' not in answer.data
