"""Mirrors and sources under two servers in turn: each goes on where the other has stopped."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from contextlib import suppress
from pathlib import Path

import pytest

from interop_kit import ApiError, Official
from server_truth import running

pytestmark = pytest.mark.timeout(180)
# The official server looks for origins that it has lost after 10 to 20 seconds.
WAIT_SECONDS = 60


async def reach(server: Official, name: str, last_seq: int) -> None:
    """Wait until a message of a copy can be read."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        with suppress(ApiError):
            await server.api(f"STREAM.MSG.GET.{name}", {"seq": last_seq})
            return
        assert time.monotonic() < end, (name, last_seq)
        await asyncio.sleep(0.05)


async def payloads(server: Official, name: str) -> list[str]:
    state = (await server.api(f"STREAM.INFO.{name}"))["state"]
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = await server.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
        found.append(b64decode(answer["message"]["data"]).decode())
    return found


@pytest.mark.parametrize("kinds", [("tradewind", "official"), ("official", "tradewind")])
@pytest.mark.parametrize("is_purged", [False, True], ids=["kept", "purged"])
def test_each_server_goes_on_behind_the_last_copy(
    tmp_path: Path, kinds: tuple[str, str], is_purged: bool
) -> None:
    async def journey() -> None:
        count = 0
        for turn, kind in enumerate([*kinds, kinds[0]]):
            async with running(kind, tmp_path) as server:
                if turn == 0:
                    await server.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
                    await server.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O"}})
                    sources = [{"name": "O", "filter_subject": "o.*"}]
                    await server.api("STREAM.CREATE.S", {"name": "S", "sources": sources})
                await server.publish_all([("o.a", b"%d" % (count + each)) for each in range(3)])
                count += 3
                for name in ("M", "S"):
                    await reach(server, name, count)
                expected = [str(each) for each in range(count)]
                assert await payloads(server, "M") == expected
                kept = expected[-3:] if is_purged else expected
                assert await payloads(server, "S") == kept
                if is_purged:
                    await server.api("STREAM.PURGE.S")
                await server.stop()

    asyncio.run(journey())
