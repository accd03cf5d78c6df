"""`tradewind stream checkpoint`, `prove`, `backup` and `verify` of streams with a chain."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tradewind
import tradewind.sync
from chain_answers import ChainAnswers, chain_of_stream
from chain_kit import KEY, OTHER_KEY, ReferenceChain
from cli_outcome import Cli
from harness import ServerProcess
from tradewind.chain import chain_folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("chains")
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
    process = ServerProcess("tradewind", flags).wait_ready()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def answers(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChainAnswers]:
    """The stream S with 12 messages, of which 4 is gone, and the answers about its chain."""
    monkeypatch.setenv("NATS_URL", server.url)
    answers = ChainAnswers(monkeypatch)

    async def fill() -> ReferenceChain:
        async with await tradewind.connect(server.url) as connection:
            js = connection.jetstream()
            await js.manager.streams.add(
                name="S", subjects=["S.>"], metadata={"tradewind.chain": "sha256"}
            )
            for number in range(1, 13):
                await js.publish("S.a", b"payload %d" % number)
            await js.manager.streams.delete_message("S", 4)
            return await chain_of_stream(js, "S")

    async def clear() -> None:
        async with await tradewind.connect(server.url) as connection:
            await connection.jetstream_manager().streams.delete("S")

    answers.chains["S"] = asyncio.run(fill())
    yield answers
    asyncio.run(clear())


def test_a_running_stream_is_verified(offline: Cli, answers: ChainAnswers) -> None:
    outcome = offline("stream", "verify", "S").ok()
    assert "Intact: proved up to sequence 12\n" in outcome.out
    assert offline("stream", "verify", "S", "--last", "3", "--json").ok().json["messages"] == 2


def test_a_checkpoint_is_kept_and_the_next_one_must_continue_it(
    offline: Cli, answers: ChainAnswers, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    outcome = offline("stream", "checkpoint", "S", "--out", str(kept)).ok()
    assert f"Saved in {kept}" in outcome.out
    first = kept.read_bytes()
    offline("stream", "verify", "S", "--checkpoint", str(kept)).ok()
    answers.chains["S"].remove((5, 5))
    answers.chains["S"].give_back((5, 5))
    offline("stream", "checkpoint", "S", "--out", str(kept)).ok()
    second = kept.read_bytes()
    assert json.loads(second)["size"] == json.loads(first)["size"] + 2
    # Somebody makes the chain anew, with the same key.
    old = answers.chains["S"]
    anew = answers.chains["S"] = ReferenceChain(stream="S", created=old.created)
    for _, message in sorted({**old.live, **old.gone}.items()):
        anew.add(message)
    refused = offline("stream", "checkpoint", "S", "--out", str(kept))
    assert refused.code == 1
    assert "the chain was cut: it has 12 entries, and had 15" in refused.err
    for _ in range(5):
        anew.remove((4, 4))
    refused = offline("stream", "checkpoint", "S", "--out", str(kept))
    assert refused.code == 1
    assert "the chain does not continue the checkpoint of" in refused.err
    assert f"{kept} is left unchanged" in refused.err
    assert kept.read_bytes() == second


def test_a_checkpoint_as_json_is_the_line_itself(offline: Cli, answers: ChainAnswers) -> None:
    outcome = offline("stream", "checkpoint", "S", "--json", "--key", KEY.public).ok()
    assert outcome.out.encode().rstrip() == answers.chains["S"].lines[-1]
    other = offline("stream", "checkpoint", "S", "--key", OTHER_KEY.public)
    assert other.code == 1
    assert f"the server signs with another key, {KEY.public}" in other.err


def test_a_file_that_is_no_checkpoint_is_not_replaced(
    offline: Cli, answers: ChainAnswers, tmp_path: Path
) -> None:
    kept = tmp_path / "diary"
    kept.write_text("dear diary\n")
    assert offline("stream", "checkpoint", "S", "--out", str(kept)).code == 1
    assert kept.read_text() == "dear diary\n"
    nowhere = offline("stream", "checkpoint", "S", "--out", str(tmp_path / "none/kept"))
    assert nowhere.code == 1
    assert "No such file" in nowhere.err


def test_a_proof_is_saved_and_checked_without_a_server(
    offline: Cli, answers: ChainAnswers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "proof.json"
    offline("stream", "prove", "S", "7", "--out", str(path)).ok()
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    outcome = offline("stream", "prove", "--check", str(path), "--key", KEY.public).ok()
    assert "Proved: message 7 (S.a) is entry 6 of Stream S\n" in outcome.out
    assert f"Signed by {KEY.public}" in outcome.out
    document = json.loads(path.read_bytes())
    document["payload"] = "Zm9yZ2Vk"
    path.write_text(json.dumps(document))
    forged = offline("stream", "prove", "--check", str(path))
    assert forged.code == 1
    assert "the message is not the one that was chained as entry 6" in forged.err
    assert offline("stream", "prove").code == 2


def test_a_backup_carries_its_chain_and_is_verified_on_its_own(
    offline: Cli, answers: ChainAnswers, tmp_path: Path
) -> None:
    target = tmp_path / "backup"
    offline("stream", "backup", "S", str(target)).ok()
    assert sorted(path.name for path in (target / "chain").iterdir()) == [
        chain_folder.segment_name(0),
        chain_folder.CHECKPOINTS,
    ]
    outcome = offline("stream", "verify", "--backup", str(target)).ok()
    assert "Integrity of Stream S\n" in outcome.out
    assert "Intact: proved up to sequence 12\n" in outcome.out
    # Held against the running stream too.
    url = os.environ["NATS_URL"]
    offline("stream", "verify", "--backup", str(target), "--against", url).ok()
    offline("stream", "verify", "S", "--against", url).ok()
    wrong = offline("stream", "verify", "T", "--backup", str(target))
    assert "this is a backup of stream 'S'" in wrong.err


def test_a_changed_backup_is_named(offline: Cli, answers: ChainAnswers, tmp_path: Path) -> None:
    from tradewind.store.backup.archive import END, MAGIC, ArchiveReader, append_entry
    from tradewind.store.format.s2 import Compressor, decompress

    target = tmp_path / "backup"
    offline("stream", "backup", "S", str(target)).ok()
    data = target / "stream.tar.s2"
    reader = ArchiveReader(1 << 20)
    reader.feed(decompress(data.read_bytes(), 1 << 20))
    archive = bytearray(MAGIC)
    while (entry := reader.next_entry()) is not None:
        if entry.seq == 9:
            entry = entry._replace(payload=b"forged")
        if entry.seq != 12:
            append_entry(archive, *entry)
        if entry == END:
            break
    compressor = Compressor()
    data.write_bytes(compressor.write(archive) + compressor.flush())
    outcome = offline("stream", "verify", "--backup", str(target))
    assert outcome.code == 1
    assert "changed: sequence 9: content changed\n" in outcome.out
    assert "removed: sequence 12: missing" in outcome.out
    assert "proved up to sequence 8\n" in outcome.out
    data.write_bytes(data.read_bytes()[:-4])
    cut = offline("stream", "verify", "--backup", str(target))
    assert cut.code == 1
    assert str(data) in cut.err


def test_a_backup_without_a_chain_is_explained(
    offline: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-server takes the metadata and makes no chain."""
    target = tmp_path / "backup"
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path / "store")]
    server = ServerProcess("official", flags).wait_ready()
    try:
        monkeypatch.setenv("NATS_URL", server.url)
        with tradewind.sync.connect(server.url) as connection:
            streams = connection.jetstream_manager().streams
            streams.add(name="S", subjects=["S"], metadata={"tradewind.chain": "sha256"})
        saved = offline("stream", "backup", "S", str(target)).ok()
        verified = offline("stream", "verify", "S")
    finally:
        server.stop()
    assert "saved without its chain: no response on $TW.API.STREAM.CHAIN" in saved.err
    assert verified.code == 1
    assert "it requires a tradewind-server" in verified.err
    outcome = offline("stream", "verify", "--backup", str(target))
    assert outcome.code == 1
    assert "the backup has no folder chain" in outcome.err
