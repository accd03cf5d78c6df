"""Saves a stream with its consumers to a folder, and loads it, through a server.

Owns the folder, which has the format of the `nats` command line: `backup.json` (configuration and
state) and `stream.tar.s2` (the data as the server sent it). An unfinished backup has no
`backup.json`, so it is never mistaken for a complete one. Unknown settings are kept. A stream with
a hash chain has a folder `chain` in addition.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tradewind.api.stream_types import StreamInfo
from tradewind.cli.frame.config_files import read_document
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.output import json_text
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.settings import jetstream
from tradewind.cli.streams.chain_backup import save_chain, sign_before_backup
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import OperationTimeoutError
from tradewind.client.streams.api_requests import check_answer, decode_answer
from tradewind.status_codes import NO_CONTENT

if TYPE_CHECKING:
    from tradewind.cli.frame.account_catalog import AccountCatalog
    from tradewind.sync import Connection

DATA_NAME: Final = "stream.tar.s2"
INFO_NAME: Final = "backup.json"
RESTORE_CHUNK_BYTES: Final = 64 << 10
# The server gives up after 5 s without an answer; a large memory stream may take a while.
CHUNK_SECONDS: Final = 60.0


def check_new_folder(target: Path) -> None:
    """CommandError unless it is free for a backup."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandError(f"{target}: exists and is not an empty folder; choose a new one")


def save_stream(
    catalog: AccountCatalog,
    info: StreamInfo,
    target: Path,
    request: dict[str, Any],
    *,
    progress: bool,
) -> int:
    """Saves a stream in a folder; how many bytes the data has."""
    name = info.config.name
    target.mkdir(parents=True, exist_ok=True)
    title = f"Backup of {name}"
    js = jetstream(catalog.connection)
    head = sign_before_backup(js, info)
    with ProgressBar(title, info.state.bytes, unit="bytes", shown=progress) as progress_bar:
        answer, received = _receive(catalog, name, request, target / DATA_NAME, progress_bar)
    if head is not None:
        save_chain(js, head, target)
    document = {"config": answer.get("config"), "state": answer.get("state")}
    (target / INFO_NAME).write_text(json_text(document) + "\n")
    return received


def _receive(
    catalog: AccountCatalog,
    stream: str,
    request: dict[str, Any],
    path: Path,
    progress_bar: ProgressBar,
) -> tuple[dict[str, Any], int]:
    connection = catalog.connection
    inbox = connection.new_inbox()
    received = 0
    with connection.subscribe(inbox) as subscription, path.open("wb") as file:
        answer = catalog.ask("stream_snapshot", stream, {**request, "deliver_subject": inbox})
        while True:
            try:
                message = subscription.next(CHUNK_SECONDS)
            except OperationTimeoutError:
                raise CommandError(
                    f"backup of {stream}: no data for {CHUNK_SECONDS:g} s; it is incomplete"
                ) from None
            if not message.data:
                if message.status and message.status != NO_CONTENT:
                    raise CommandError(
                        f"backup of {stream} failed: {message.status} {message.description}"
                    )
                break
            file.write(message.data)
            received += len(message.data)
            progress_bar.set(received)
            if message.reply:
                connection.publish(message.reply)
        file.flush()
        os.fsync(file.fileno())
    return answer, received


def read_backup(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration and state of the stream in a backup."""
    for path in (source / INFO_NAME, source / DATA_NAME):
        if not path.is_file():
            raise CommandError(
                f"{path}: not found; a backup has {INFO_NAME} and {DATA_NAME}",
                f"a backup that was not finished has no {INFO_NAME}",
            )
    document = read_document(str(source / INFO_NAME))
    config = document.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("name"), str):
        raise CommandError(f"{source / INFO_NAME}: has no config with a name")
    return config, document.get("state") or {}


def load_stream(
    catalog: AccountCatalog,
    source: Path,
    config: dict[str, Any],
    state: dict[str, Any],
    *,
    progress: bool,
) -> StreamInfo:
    """Makes a stream with this configuration from the data of a backup."""
    name, data = config["name"], source / DATA_NAME
    answer = catalog.ask("stream_restore", name, {"config": config, "state": state})
    title, size = f"Restore of {name}", data.stat().st_size
    with (
        data.open("rb") as file,
        ProgressBar(title, size, unit="bytes", shown=progress) as progress_bar,
    ):
        try:
            return _send(catalog.connection, answer["deliver_subject"], file, progress_bar)
        except JetStreamApiError as error:
            raise CommandError(
                f"{source}: {error.description} ({error.err_code})",
                f"part of it may have been restored: tradewind stream info {name}",
            ) from None


def _send(
    connection: Connection, subject: str, file: BinaryIO, progress_bar: ProgressBar
) -> StreamInfo:
    while chunk := file.read(RESTORE_CHUNK_BYTES):
        answer = connection.request(subject, chunk, timeout=CHUNK_SECONDS)
        if answer.data:
            check_answer(answer.data)
        progress_bar.set(file.tell())
    answer = connection.request(subject, timeout=CHUNK_SECONDS)
    return decode_answer(answer.data, StreamInfo)
