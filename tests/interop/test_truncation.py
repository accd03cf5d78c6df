"""Folders with messages that can be brought back, under two servers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from interop_kit import Official
from server_truth import differences, running, server_truth

NAMES = ["S"]
HOUR = 3_600_000_000_000
pytestmark = pytest.mark.timeout(120)


async def own(server: Official, name: str, **body: Any) -> dict[str, Any]:
    subject = f"$TW.API.STREAM.{name}.S"
    answer = await server.client.request(subject, json.dumps(body).encode(), timeout=60)
    document: dict[str, Any] = json.loads(answer.data)
    assert "error" not in document, document
    return document


def shelves(folder: Path) -> list[Path]:
    return list(folder.glob("jetstream/$G/streams/S/tradewind.purged.*"))


def test_the_official_server_passes_over_what_can_be_brought_back(tmp_path: Path) -> None:
    async def journey() -> None:
        async with running("tradewind", tmp_path) as server:
            await server.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
            await server.publish_all([(f"s.{number % 3}", b"x" * 9) for number in range(90)])
            whole = await server_truth(server, NAMES)
            await own(server, "TRUNCATE", subjects=["s.1"], keep_for=HOUR)
            truth = await server_truth(server, NAMES)
            await server.stop(kill=True)
        assert shelves(tmp_path), "nothing was tested"
        async with running("official", tmp_path) as server:
            assert differences(truth, await server_truth(server, NAMES)) == []
            await server.stop()
        async with running("tradewind", tmp_path) as server:
            assert (await own(server, "UNDO"))["messages"] == 30
            assert differences(whole, await server_truth(server, NAMES)) == []
            await server.stop(kill=True)
        async with running("official", tmp_path) as server:
            assert differences(whole, await server_truth(server, NAMES)) == []
            await server.publish_all([("s.0", b"later")])
            await server.stop()

    asyncio.run(journey())
