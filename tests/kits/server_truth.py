"""The complete view of a running server on its streams and consumers, to compare two servers.

The view has everything that the API shows, except for values that identify the server or the time
of the question.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats

from harness import ServerProcess
from interop_kit import ZERO_TIMES, Official, official_messages

# Of the moment, of the server, or of its memory.
VOLATILE = ("ts", "cluster", "type", "did_create", "last_active")
SERVER_METADATA = ("_nats.ver", "_nats.level")
Document = dict[str, Any]


@asynccontextmanager
async def running(kind: str, folder: Path, jetstream: str = "") -> AsyncIterator[Official]:
    """Either server on this store folder; `jetstream` are more settings of that block."""
    arguments = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    if jetstream:
        config = folder.with_name(f"{folder.name}.conf")
        config.write_text(f'jetstream {{ store_dir: "{folder}", {jetstream} }}\n')
        arguments = ["-c", str(config), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(kind, arguments).wait_ready()
    try:
        client = await nats.connect(process.url, allow_reconnect=False)
        try:
            yield Official(process, client)
        finally:
            await client.close()
    finally:
        process.stop()


def plain(document: Any) -> Any:
    """Without what is volatile; times as nanoseconds where a server may write them shorter."""
    if isinstance(document, list):
        return [plain(value) for value in document]
    if not isinstance(document, dict):
        return document
    found = {}
    for name, value in document.items():
        if name in VOLATILE or value in ZERO_TIMES:
            continue
        if name == "metadata":
            value = {key: text for key, text in value.items() if key not in SERVER_METADATA}
        found[name] = plain(value)
    return found


async def server_truth(server: Official, names: list[str]) -> dict[str, Document]:
    """Stream info with all details, every message, and consumer info of every consumer."""
    truth: dict[str, Document] = {}
    for name in names:
        request = {"deleted_details": True, "subjects_filter": ">"}
        info = await server.api(f"STREAM.INFO.{name}", request)
        state = info["state"]
        if state["last_seq"] == 0:
            # Of a stream that was never used the official server says that message 0 is deleted.
            state.pop("deleted", None)
            state.pop("num_deleted", None)
        consumers = {}
        for consumer in (await server.api(f"CONSUMER.NAMES.{name}"))["consumers"] or ():
            answer = await server.api(f"CONSUMER.INFO.{name}.{consumer}")
            if "durable_name" not in answer["config"]:
                # The official server forgets it at each start, and takes that moment instead.
                assert answer.pop("created") not in ZERO_TIMES
            consumers[consumer] = plain(answer)
        messages = await official_messages(server, name, state)
        truth[name] = {"info": plain(info), "messages": messages, "consumers": consumers}
    return truth


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two documents differ, each with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            line
            for name in sorted({*one, *other}, key=str)
            for line in differences(
                one.get(name, "nothing"), other.get(name, "nothing"), f"{path}/{name}"
            )
        ]
    return [] if one == other else [f"{path}: {one!r} is not {other!r}"]
