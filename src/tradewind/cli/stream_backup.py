"""`tradewind stream backup` and `restore`: a stream with its consumers in a folder, over the wire.

Owns the folder, which is that of the `nats` command line: `backup.json` (configuration and state)
and `stream.tar.s2` (what the server sent, as it is). A backup that was not finished has no
`backup.json`, so it cannot be taken for one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import msgspec

from tradewind.api.responses import StreamRestoreResponse, StreamSnapshotResponse
from tradewind.api.stream_types import Placement, StreamConfig, StreamInfo
from tradewind.cli.catalog import Catalog, open_catalog
from tradewind.cli.completion import complete_stream
from tradewind.cli.config_files import read_config, read_document
from tradewind.cli.failures import CommandError
from tradewind.cli.formats import counted, parse_size, size_text
from tradewind.cli.frame import Argument, CommandApp, Option
from tradewind.cli.output import json_text, line
from tradewind.cli.progress import ProgressBar
from tradewind.cli.stream_view import show_stream
from tradewind.client.errors import OperationTimeoutError

if TYPE_CHECKING:
    from tradewind.sync import Connection

app = CommandApp("Backups of streams")

DATA_NAME = "stream.tar.s2"
INFO_NAME = "backup.json"
RESTORE_CHUNK_BYTES = 64 << 10
NO_CONTENT = 204
# The server gives up after 5 s without an answer; a large memory stream may take a while.
CHUNK_SECONDS = 60.0
ProgressFlag = Annotated[bool, Option("--progress/--no-progress", help="Show a progress bar")]


@app.command("backup", aliases=("snapshot",))
def backup_stream(
    stream: Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)],
    target: Annotated[Path, Argument(metavar="FOLDER")],
    progress: ProgressFlag = True,
    check: Annotated[bool, Option("--check", help="Have the server check the stream")] = False,
    consumers: Annotated[bool, Option("--consumers/--no-consumers")] = True,
    chunk_size: Annotated[str, Option("--chunk-size", metavar="SIZE")] = "",
    window_size: Annotated[str, Option("--window-size", metavar="SIZE")] = "",
) -> None:
    """Save a stream with its consumers in a folder."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CommandError(f"{target}: exists and is no empty folder; name a new one")
    request: dict[str, Any] = {"jsck": check, "no_consumers": not consumers}
    if chunk_size:
        request["chunk_size"] = parse_size(chunk_size, "--chunk-size")
    if window_size:
        request["window_size"] = parse_size(window_size, "--window-size")
    with open_catalog() as catalog:
        state = catalog.stream(stream).state
        line(
            f"Starting backup of Stream {stream!r} with {counted(state.messages, 'message')} "
            f"({size_text(state.bytes)})"
        )
        target.mkdir(parents=True, exist_ok=True)
        with ProgressBar(
            f"Backup of {stream}", state.bytes, unit="bytes", shown=progress
        ) as progress_bar:
            answer, received = _receive(catalog, stream, request, target / DATA_NAME, progress_bar)
    document = {"config": answer.config, "state": answer.state}
    (target / INFO_NAME).write_text(json_text(document) + "\n")
    line(f"Received {size_text(received)} compressed data for Stream {stream!r} in {target}")


def _receive(
    catalog: Catalog, stream: str, request: dict[str, Any], path: Path, progress_bar: ProgressBar
) -> tuple[StreamSnapshotResponse, int]:
    connection = catalog.connection
    inbox = connection.new_inbox()
    subscription = connection.subscribe(inbox)
    answer = catalog.call(
        StreamSnapshotResponse, "stream_snapshot", stream, {**request, "deliver_subject": inbox}
    )
    received = 0
    with path.open("wb") as file:
        while True:
            try:
                message = subscription.next(CHUNK_SECONDS)
            except OperationTimeoutError:
                raise CommandError(
                    f"backup of {stream}: nothing came for {CHUNK_SECONDS:g} s; it is not complete"
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
    subscription.unsubscribe()
    return answer, received


@app.command("restore")
def restore_stream(
    source: Annotated[Path, Argument(metavar="FOLDER")],
    progress: ProgressFlag = True,
    config: Annotated[str, Option("--config", metavar="FILE", help="Other settings")] = "",
    cluster: Annotated[str, Option("--cluster", help="Place it in a cluster")] = "",
    tags: Annotated[list[str] | None, Option("--tag", help="Place it by tags")] = None,
    replicas: Annotated[int, Option("--replicas", min=0, help="Copies in a cluster")] = 0,
) -> None:
    """Make a stream from a backup, with its consumers."""
    data = source / DATA_NAME
    for path in (source / INFO_NAME, data):
        if not path.is_file():
            raise CommandError(
                f"{path}: not found; a backup has {INFO_NAME} and {DATA_NAME}",
                "a backup that was not finished has no " + INFO_NAME,
            )
    document = read_document(str(source / INFO_NAME))
    # As it is, so that settings of a newer server are not lost.
    wanted = document.get("config")
    if not isinstance(wanted, dict) or not isinstance(wanted.get("name"), str):
        raise CommandError(f"{source / INFO_NAME}: has no config with a name")
    name = wanted["name"]
    if config:
        wanted = msgspec.to_builtins(read_config(config, StreamConfig))
        name = wanted["name"] = wanted.get("name") or name
    if cluster or tags:
        wanted["placement"] = Placement(cluster=cluster, tags=tags or [])
    if replicas:
        wanted["num_replicas"] = replicas
    body = {"config": wanted, "state": document.get("state") or {}}
    size = data.stat().st_size
    with open_catalog() as catalog:
        line(f"Starting restore of Stream {name!r} from {source}")
        answer = catalog.call(StreamRestoreResponse, "stream_restore", name, body)
        with (
            data.open("rb") as file,
            ProgressBar(f"Restore of {name}", size, unit="bytes", shown=progress) as progress_bar,
        ):
            info = _send(catalog.connection, answer.deliver_subject, file, progress_bar)
    line()
    line(f"Restored Stream {name!r}")
    line()
    show_stream(info)


def _send(
    connection: Connection, subject: str, file: BinaryIO, progress_bar: ProgressBar
) -> StreamInfo:
    from tradewind.client.api_requests import check_answer, decode_answer

    while chunk := file.read(RESTORE_CHUNK_BYTES):
        answer = connection.request(subject, chunk, timeout=CHUNK_SECONDS)
        if answer.data:
            check_answer(answer.data)
        progress_bar.set(file.tell())
    answer = connection.request(subject, timeout=CHUNK_SECONDS)
    return decode_answer(answer.data, StreamInfo)
