"""A stream with a chain from its creation to an audit of its files, on the server itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import tradewind
from chain_kit import Stored
from chain_store_kit import rewrite_block
from cli_outcome import Cli
from harness import ServerProcess
from tradewind.chain.offline import verify_folder
from tradewind.cli.streams.chain_places import open_stored

COUNT = 60


async def fill(url: str, algorithm: str) -> None:
    """All ways in which messages come and go."""
    async with await tradewind.connect(url) as connection:
        js = connection.jetstream()
        streams = js.manager.streams
        metadata = {"tradewind.chain": algorithm, "tradewind.chain.messages": "16"}
        await streams.add(name="S", subjects=["S.>"], metadata=metadata, allow_direct=True)
        for number in range(1, COUNT + 1):
            headers = {"Number": str(number)} if number % 3 == 0 else None
            await js.publish(f"S.{number % 4}", b"payload %d" % number, headers=headers)
        await streams.delete_message("S", 7)
        await streams.delete_message("S", 8, erase=False)
        await streams.purge("S", filter="S.1", keep=10)
        await streams.purge("S", seq=4)
        await streams.truncate("S", newest=3, subjects=["S.2"])
        await streams.add(name="COPY", mirror={"name": "S"})
        state = (await streams.info("S")).state
        async with asyncio.timeout(60):
            while (await streams.info("COPY")).state.messages < state.messages:
                await connection.flush()


@pytest.mark.parametrize("algorithm", ["sha256", "blake3"])
def test_a_stream_is_proved_from_end_to_end(
    offline: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    store = tmp_path / "store"
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store)]
    server = ServerProcess("tradewind", flags).wait_ready()
    kept, saved = tmp_path / "kept", tmp_path / "saved"
    try:
        monkeypatch.setenv("NATS_URL", server.url)
        asyncio.run(fill(server.url, algorithm))
        offline("stream", "checkpoint", "S", "--out", str(kept)).ok()
        running = offline("stream", "verify", "S", "--checkpoint", str(kept), "--json").ok().json
        assert running["proved_sequence"] == COUNT
        assert running["removed"]["deleted"] == 2
        assert running["removed"]["purged"] > 3
        against = ("--against", server.url, "--stream", "S")
        outcome = offline("stream", "verify", "COPY", *against).ok()
        assert "Integrity of Stream COPY, compared with Stream S\n" in outcome.out
        offline("stream", "backup", "S", str(saved)).ok()
        offline("stream", "prove", "S", "12", "--out", str(tmp_path / "proof")).ok()
    finally:
        server.stop()
    offline("stream", "prove", "--check", str(tmp_path / "proof")).ok()
    assert "Intact" in offline("stream", "verify", "--backup", str(saved)).ok().out
    at_rest = offline(
        "stream", "verify", "S", "--store", str(store), "--checkpoint", str(kept), "--json"
    )
    assert at_rest.ok().json["messages"] == running["messages"]
    with open_stored(store, "$G", "S", None) as place:
        messages = {message.sequence: Stored(*message) for message in place.messages}
        path = place.path
    messages[12] = replace(messages[12], payload=b"forged")
    del messages[15]
    rewrite_block(path, "S", messages.values())
    with open_stored(store, "$G", "S", None) as place:
        report = verify_folder(place.chain(), place.name, place.created, place.messages)
    assert {(fault.kind, fault.sequence) for fault in report.faults} == {
        ("changed", 12),
        ("removed", 15),
    }
