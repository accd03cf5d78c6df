"""Block files give the rows that their server gives: while it runs, after its end, and killed.

No Spark is needed for that: what executors would read is read here.
"""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from block_reads import Rows, read, rows_in
from interop_kit import WAIT_SECONDS, Official, copy_store, official_truth, wait_for
from official_streams import STREAMS
from server_truth import running
from tradewind.client.core.headers import decode_headers
from tradewind.errors import CorruptRecord, StoreError
from tradewind.spark.errors import OptionError
from tradewind.spark.options.source_options import SourceOptions, parse_options
from tradewind.spark.providers.backup_reading import ArchiveProvider
from tradewind.spark.providers.blocks import BlocksProvider
from tradewind.spark.providers.network import NetworkProvider
from tradewind.store.format.s2 import compress

ENDS = ("running", "stopped", "stopped without index.db", "killed")
KINDS = ("official", "tradewind")
# The newest message of a subject was erased. That it had pushed out this one is known to nobody but
# the server, which forgets it too when it is killed.
FORGOTTEN = {("official", "LAST"): 82}
# The fixture below is made once for all tests of this file.
pytestmark = [pytest.mark.xdist_group("interop_blocks"), pytest.mark.timeout(300)]


def read_network(url: str, name: str) -> Rows | str:
    """The same through the server."""
    try:
        return rows_in(NetworkProvider(SourceOptions(stream=(name,), servers=(url,))), name)
    except OptionError as error:
        return str(error)


def rows_of(content: dict[int, tuple[int, str, bytes, bytes]]) -> Rows:
    """What a server says of its messages, as rows."""
    return {seq: _row(*message) for seq, message in content.items()}


def _row(time_ns: int, subject: str, header: bytes, data: bytes) -> Any:
    headers = None
    if header:
        decoded = decode_headers(header)
        headers = {name: decoded.get_all(name) for name in decoded}
    return time_ns // 1000, subject, headers, data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cipher", ["chacha", "aes"])
async def test_encrypted_blocks_give_the_same_rows_by_a_reference_to_the_key(
    tmp_path: Path, kind: str, cipher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    names = ("PLAIN", "COMPRESSED", "DELETES", "BLOCKS")
    given = {"storeDir": str(folder), "encryptionKey": "env:STORE_KEY"}
    monkeypatch.setenv("STORE_KEY", "a secret")
    async with running(kind, folder, f'key: "a secret", cipher: {cipher}') as server:
        truths = {}
        for name in names:
            config, fill = STREAMS[name]
            await server.api(f"STREAM.CREATE.{name}", config)
            await fill(server)
            truths[name] = rows_of((await official_truth(server, name)).content)
            options = parse_options({**given, "stream": name})
            assert "a secret" not in repr(options)
            await wait_until_written(options, name, truths[name])
            assert await asyncio.to_thread(rows_in, BlocksProvider(options), name) == truths[name]
        await server.stop()
    for name in names:
        options = parse_options({**given, "stream": name})
        assert rows_in(BlocksProvider(options), name) == truths[name]
        with pytest.raises(StoreError, match="the stream is encrypted, and no key is configured"):
            read(folder, name)
    monkeypatch.setenv("STORE_KEY", "another")
    with pytest.raises(StoreError, match="does not open this key file"):
        BlocksProvider(parse_options({**given, "stream": "PLAIN"})).states()
    (tmp_path / "key").write_text("a secret\n")
    by_file = {**given, "encryptionKey": f"file:{tmp_path}/key", "stream": "PLAIN"}
    assert rows_in(BlocksProvider(parse_options(by_file)), "PLAIN") == truths["PLAIN"]


async def wait_until_written(options: SourceOptions, name: str, truth: Rows) -> None:
    """The official server writes what it has acknowledged a little later."""

    async def is_written() -> bool:
        found = await asyncio.to_thread(rows_in, BlocksProvider(options), name)
        return found.keys() == truth.keys()

    await wait_for(is_written, f"the files of {name}")


def test_key_itself_is_no_option() -> None:
    with pytest.raises(OptionError, match="env:NAME or file:PATH") as refused:
        parse_options({"storeDir": "x", "stream": "S", "encryptionKey": "hush"})
    assert "hush" not in str(refused.value)


async def save_snapshot(server: Official, name: str, folder: Path) -> None:
    """A backup as the nats command line makes one."""
    inbox = server.client.new_inbox()
    subscription = await server.client.subscribe(inbox)
    answer = await server.api(f"STREAM.SNAPSHOT.{name}", {"deliver_subject": inbox})
    chunks = []
    while (message := await subscription.next_msg(timeout=WAIT_SECONDS)).data:
        chunks.append(message.data)
        if message.reply:
            await server.client.publish(message.reply)
    await subscription.unsubscribe()
    save_backup(folder, {"config": answer["config"], "state": answer["state"]}, b"".join(chunks))


def save_backup(folder: Path, description: Any, archive: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "stream.tar.s2").write_bytes(archive)
    (folder / "backup.json").write_text(json.dumps(description))


def save_tar(stream: Path, folder: Path, size: int | None = None) -> bytes:
    """A backup as servers before 2.15 made it, or its first `size` bytes; gives the tar."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("meta.inf", "meta.sum"):
            archive.add(stream / name, name)
        for path in sorted((stream / "msgs").iterdir()):
            archive.add(path, f"msgs/{path.name}")
    tar = plain.getvalue()
    save_backup(folder, {"config": {"name": stream.name}}, compress(tar[:size]))
    return tar


class Filled:
    """One server with all streams; its folder as it is at each of the ends."""

    def __init__(self, kind: str, base: Path) -> None:
        self.folders = {end: base / end.replace(" ", "-") for end in ENDS}
        self.kind = kind
        self.backups = base / "backups"
        self.truth: dict[str, Rows] = {}
        asyncio.run(self._fill(kind))

    async def _fill(self, kind: str) -> None:
        folder = self.folders["stopped"]
        async with running(kind, folder) as server:
            for config, _ in STREAMS.values():
                await server.api(f"STREAM.CREATE.{config['name']}", config)
            await asyncio.gather(*(fill(server) for _, fill in STREAMS.values()))
            truths = {name: await official_truth(server, name) for name in STREAMS}
            self.truth = {name: rows_of(truth.content) for name, truth in truths.items()}
            self.consumers_before = {name: set(truth.consumers) for name, truth in truths.items()}
            await self._settle(folder)
            # A copy of a running server's files is what a kill leaves.
            copy_store(folder, self.folders["killed"])
            self.live = {name: read(folder, name) for name in STREAMS}
            url = server.process.url
            self.network = {
                name: await asyncio.to_thread(read_network, url, name) for name in STREAMS
            }
            if kind == "official":
                for name in STREAMS:
                    await save_snapshot(server, name, self.backups / name)
            self.consumers = await self._consumers_left(server)
            await server.stop()
        copy_store(folder, self.folders["stopped without index.db"], with_index=False)

    async def _consumers_left(self, server: Official) -> dict[str, set[str]]:
        """Those that are there when nobody reads any more; nobody waits for their deletion."""
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while True:
            names = {
                name: set((await server.api(f"CONSUMER.NAMES.{name}"))["consumers"] or ())
                for name in STREAMS
            }
            if names == self.consumers_before or asyncio.get_running_loop().time() > deadline:
                return names

    async def _settle(self, folder: Path) -> None:
        """The official server writes what it has acknowledged, and removed, a little later."""

        def is_written(name: str) -> bool:
            found = read(folder, name).keys() - {FORGOTTEN.get((self.kind, name))}
            return found == self.truth[name].keys()

        async def is_settled() -> bool:
            return all(is_written(name) for name in STREAMS)

        await wait_for(is_settled, "the files")


@pytest.fixture(scope="module", params=KINDS)
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("end", ENDS)
def test_the_rows_are_those_of_the_server(filled: Filled, end: str, name: str) -> None:
    found = filled.live[name] if end == "running" else read(filled.folders[end], name)
    if end != "stopped" and (filled.kind, name) in FORGOTTEN:
        found.pop(FORGOTTEN[filled.kind, name])
    assert found == filled.truth[name]


@pytest.mark.parametrize("name", STREAMS)
def test_the_network_gives_the_same_rows(filled: Filled, name: str) -> None:
    if STREAMS[name][0].get("retention", "limits") == "limits":
        assert filled.network[name] == filled.truth[name]
    else:
        assert "set allow_direct on the stream" in filled.network[name]


def test_reading_leaves_nothing_on_the_server(filled: Filled) -> None:
    assert filled.consumers == filled.consumers_before


@pytest.mark.parametrize("name", STREAMS)
def test_a_backup_gives_the_same_rows(filled: Filled, name: str, tmp_path: Path) -> None:
    save_tar(filled.folders["stopped"] / "jetstream/$G/streams" / name, tmp_path / "tar")
    folders = [tmp_path / "tar"]
    if filled.kind == "official":
        folders.append(filled.backups / name)
    for folder in folders:
        found = rows_in(ArchiveProvider(parse_options({"archive": str(folder)})), name)
        if name in ("AGED", "TTL") and folder == folders[0]:
            # What had expired when the files were saved is in them all the same.
            found = {seq: row for seq, row in found.items() if seq in filled.truth[name]}
        assert found == filled.truth[name]


def test_a_tar_that_is_cut_off_is_refused(filled: Filled, tmp_path: Path) -> None:
    name = next(iter(STREAMS))
    stream = filled.folders["stopped"] / "jetstream/$G/streams" / name
    whole = save_tar(stream, tmp_path / "whole")
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        last = tar.getmembers()[-1]
    end = last.offset_data + -(-last.size // 512) * 512
    for size in (last.offset, last.offset + 100, last.offset_data, end - 1, end, end + 100):
        save_tar(stream, tmp_path / f"{size}", size)
        with pytest.raises(CorruptRecord, match=r"without its end mark|not a backup of a stream"):
            rows_in(ArchiveProvider(parse_options({"archive": str(tmp_path / f"{size}")})), name)


def test_cve_2022_26652_a_tar_that_spark_reads_leads_nowhere_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    hostile = [
        (tarfile.REGTYPE, "../../../../../../up", ""),
        (tarfile.REGTYPE, str(outside / "up"), ""),
        (tarfile.SYMTYPE, "msgs", str(outside)),
        (tarfile.SYMTYPE, "meta.inf", str(outside / "up")),
        (tarfile.LNKTYPE, "meta.sum", str(outside / "up")),
    ]
    for number, (kind, name, target) in enumerate(hostile):
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for one, kind_of_one, leads_to in ((name, kind, target), ("msgs/1.blk", b"0", "")):
                member = tarfile.TarInfo(one)
                member.type, member.linkname, member.size = kind_of_one, leads_to, 4
                archive.addfile(member, io.BytesIO(b"evil"))
        folder = tmp_path / f"backup{number}"
        save_backup(folder, {"config": {"name": "S"}}, compress(plain.getvalue()))
        with pytest.raises((CorruptRecord, StoreError, OptionError)):
            rows_in(ArchiveProvider(parse_options({"archive": str(folder)})), "S")
        assert not list(outside.iterdir())
        assert not (tmp_path / "up").exists()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_work_queue_is_read_without_a_consumer(kind: str, tmp_path: Path) -> None:
    config = {"name": "JOBS", "subjects": ["jobs.>"], "retention": "workqueue"}
    async with running(kind, tmp_path) as server:
        await server.api("STREAM.CREATE.JOBS", {**config, "allow_direct": True})
        await server.publish_all([(f"jobs.{n % 3}", b"%d" % n) for n in range(2500)])
        await server.publish("jobs.x", b"", {"Nats-Stream": "mine", "K": "v"})
        for seq in (1, 2, 1000, 1001, 1002, 2500):
            await server.api("STREAM.MSG.DELETE.JOBS", {"seq": seq})
        truth = rows_of((await official_truth(server, "JOBS")).content)
        assert len(truth) == 2495
        found = await asyncio.to_thread(read_network, server.process.url, "JOBS")
        info = await server.api("STREAM.INFO.JOBS")
    assert found == truth
    assert info["state"]["messages"] == 2495


@pytest.mark.parametrize("kind", KINDS)
async def test_reads_beside_a_writing_server_see_a_growing_prefix(
    kind: str, tmp_path: Path
) -> None:
    """Small blocks, so that many are begun, compressed and compacted while they are read."""
    config = {"name": "BUSY", "subjects": ["busy.>"], "max_bytes": 127_900, "discard": "new"}
    count = 1500
    async with running(kind, tmp_path) as server:
        await server.api("STREAM.CREATE.BUSY", {**config, "compression": "s2"})
        messages = [(f"busy.{n % 5}", b"%06d" % n) for n in range(1, count + 1)]
        writing = asyncio.create_task(server.publish_all(messages))
        seen = [0]
        while seen[-1] < count:
            found = await asyncio.to_thread(read, tmp_path, "BUSY")
            assert list(found) == list(range(1, len(found) + 1))
            assert all(data == b"%06d" % seq for seq, (_, _, _, data) in found.items())
            assert len(found) >= seen[-1]
            seen.append(len(found))
        await writing
