"""Tamper-proof streams under two servers: nats-server passes over the chain, and what it stores is
chained when ours is back.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from interop_kit import Official
from server_truth import differences, running, server_truth
from tradewind.chain.chain_entries import MESSAGE, read_records

NAMES = ["S"]
pytestmark = pytest.mark.timeout(120)


async def own(server: Official, name: str, **body: Any) -> dict[str, Any]:
    subject = f"$TW.API.STREAM.CHAIN.{name}.S"
    data = json.dumps(body).encode() if body else b""
    answer = await server.client.request(subject, data, timeout=60)
    document: dict[str, Any] = json.loads(answer.data)
    assert "error" not in document, document
    return document


def links_of(folder: Path) -> list[Path]:
    return list(folder.glob("jetstream/$G/streams/S/chain/*.links"))


def test_official_server_passes_over_the_chain_and_what_it_stores_is_chained(
    tmp_path: Path,
) -> None:
    async def journey() -> None:
        config = {"name": "S", "subjects": ["s.*"], "metadata": {"tradewind.chain": "sha256"}}
        async with running("tradewind", tmp_path) as server:
            await server.api("STREAM.CREATE.S", config)
            await server.publish_all([(f"s.{number % 3}", b"x" * 9) for number in range(90)])
            point = (await server_checkpoint(server))["size"]
            truth = await server_truth(server, NAMES)
            await server.stop()
        assert links_of(tmp_path), "nothing was tested"
        async with running("official", tmp_path) as server:
            assert differences(truth, await server_truth(server, NAMES)) == []
            await server.publish_all([("s.0", b"later")])
            await server.stop()
        async with running("tradewind", tmp_path) as server:
            info = await own(server, "INFO")
            assert info["is_broken"] is False
            assert info["checkpoint"]["size"] == point == 90
            await server_checkpoint(server)
            page = await own(server, "ENTRIES", index=90)
            (record,), _ = read_records(base64.b64decode(page["records"]))
            assert (record.kind, record.sequence) == (MESSAGE, 91)
            await server.stop()

    asyncio.run(journey())


async def server_checkpoint(server: Official) -> dict[str, Any]:
    answer = await server.client.request("$TW.API.STREAM.CHAIN.CHECKPOINT.S", b"", timeout=60)
    found: dict[str, Any] = json.loads(answer.data)["checkpoint"]
    return found
