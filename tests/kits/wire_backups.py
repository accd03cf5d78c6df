"""Takes and restores backups over the wire."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from interop_kit import WAIT_SECONDS, ApiError, Official

UPLOAD_BYTES = 50_000


@dataclass(frozen=True)
class Backup:
    """What the command line tools keep of a stream."""

    config: dict[str, Any]
    state: dict[str, Any]
    data: bytes


async def take_backup(server: Official, stream: str, **request: Any) -> Backup:
    client = server.client
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    answer = await server.api(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, **request})
    chunks = []
    while (message := await subscription.next_msg(timeout=WAIT_SECONDS)).data:
        chunks.append(message.data)
        if message.reply:
            await client.publish(message.reply, b"")
    assert (
        message.headers is None
        or "Status" not in message.headers
        or (message.headers["Status"] == "204")
    ), message.headers
    await subscription.unsubscribe()
    return Backup(answer["config"], answer["state"], b"".join(chunks))


async def restore_backup(server: Official, stream: str, backup: Backup) -> dict[str, Any]:
    request = {"config": backup.config, "state": backup.state}
    subject = (await server.api(f"STREAM.RESTORE.{stream}", request))["deliver_subject"]
    for start in range(0, len(backup.data), UPLOAD_BYTES):
        chunk = backup.data[start : start + UPLOAD_BYTES]
        answer = await server.client.request(subject, chunk, timeout=WAIT_SECONDS)
        assert answer.data == b""
    answer = await server.client.request(subject, b"", timeout=WAIT_SECONDS)
    document: dict[str, Any] = json.loads(answer.data)
    if "error" in document:
        raise ApiError(f"restore of {stream}: {document['error']}")
    return document
