"""`tradewind stream backup` and `restore`, and the same for all streams: `account backup`.

Owns the flags and the output; the folder and the data are in `backups`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from tradewind.api.stream_types import Placement, StreamConfig
from tradewind.cli.frame.account_catalog import open_catalog
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.config_files import read_config
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.output import line, note
from tradewind.cli.frame.text_formats import counted, parse_size, size_text
from tradewind.cli.streams.backup_folders import (
    INFO_NAME,
    check_new_folder,
    load_stream,
    read_backup,
    save_stream,
)
from tradewind.cli.streams.stream_details import show_stream
from tradewind.errors import TradewindError
from tradewind.store.format.layout import name_problem

app = CommandApp("Back up and restore streams")
account_app = CommandApp("Back up and restore all streams")

Folder = Annotated[Path, Argument(metavar="FOLDER")]
ProgressFlag = Annotated[bool, Option("--progress/--no-progress", help="Show a progress bar")]
CheckFlag = Annotated[bool, Option("--check", help="Have the server check the streams first")]
ConsumersFlag = Annotated[bool, Option("--consumers/--no-consumers", help="Include consumers")]


@app.command("backup", aliases=("snapshot",))
def backup_stream(
    stream: Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)],
    target: Folder,
    progress: ProgressFlag = True,
    check: CheckFlag = False,
    consumers: ConsumersFlag = True,
    chunk_size: Annotated[str, Option("--chunk-size", metavar="SIZE")] = "",
    window_size: Annotated[str, Option("--window-size", metavar="SIZE")] = "",
) -> None:
    """Back up a stream with its consumers to a folder."""
    check_new_folder(target)
    request: dict[str, Any] = {"jsck": check, "no_consumers": not consumers}
    if chunk_size:
        request["chunk_size"] = parse_size(chunk_size, "--chunk-size")
    if window_size:
        request["window_size"] = parse_size(window_size, "--window-size")
    with open_catalog() as catalog:
        info = catalog.stream(stream)
        messages, size = counted(info.state.messages, "message"), size_text(info.state.bytes)
        line(f"Starting backup of Stream {stream!r} with {messages} ({size})")
        received = save_stream(catalog, info, target, request, progress=progress)
    line(f"Received {size_text(received)} compressed data for Stream {stream!r} in {target}")


@app.command("restore")
def restore_stream(
    source: Folder,
    progress: ProgressFlag = True,
    config: Annotated[
        str, Option("--config", metavar="FILE", help="JSON file with a different configuration")
    ] = "",
    cluster: Annotated[str, Option("--cluster", help="Place in this cluster")] = "",
    tags: Annotated[
        list[str] | None, Option("--tag", help="Place on servers with these tags")
    ] = None,
    replicas: Annotated[int, Option("--replicas", min=0, help="Number of replicas")] = 0,
) -> None:
    """Restore a stream with its consumers from a backup."""
    wanted, state = read_backup(source)
    if config:
        name = wanted["name"]
        wanted = msgspec.to_builtins(read_config(config, StreamConfig))
        wanted["name"] = wanted.get("name") or name
    if cluster or tags:
        wanted["placement"] = Placement(cluster=cluster, tags=tags or [])
    if replicas:
        wanted["num_replicas"] = replicas
    with open_catalog() as catalog:
        line(f"Starting restore of Stream {wanted['name']!r} from {source}")
        info = load_stream(catalog, source, wanted, state, progress=progress)
    line()
    line(f"Restored Stream {info.config.name!r}")
    line()
    show_stream(info)


@account_app.command("backup")
def backup_account(
    target: Folder,
    progress: ProgressFlag = True,
    check: CheckFlag = False,
    consumers: ConsumersFlag = True,
) -> None:
    """Back up all streams of the account, including those of buckets."""
    check_new_folder(target)
    request = {"jsck": check, "no_consumers": not consumers}
    failed = []
    with open_catalog() as catalog:
        infos = sorted(catalog.manager.streams.list().all(), key=lambda info: info.config.name)
        total = sum(info.state.bytes for info in infos)
        line(f"Starting backup of {counted(len(infos), 'Stream')} ({size_text(total)})")
        for info in infos:
            name = info.config.name
            if problem := name_problem(name):
                # Whoever answers may be anybody; a path is not a name.
                failed.append(repr(name))
                note(f"{name!r}: cannot be the name of a folder: it {problem}")
                continue
            try:
                received = save_stream(catalog, info, target / name, request, progress=progress)
            except TradewindError as error:
                failed.append(name)
                note(f"{name}: {error}")
            else:
                messages = counted(info.state.messages, "message")
                line(f"{name}: {messages}, {size_text(received)} compressed data")
    if failed:
        raise CommandError(f"not saved: {', '.join(failed)}")


@account_app.command("restore")
def restore_account(source: Folder, progress: ProgressFlag = True) -> None:
    """Restore all streams of a backup; existing streams are left alone."""
    folders = sorted(path.parent for path in source.glob(f"*/{INFO_NAME}"))
    if not folders:
        raise CommandError(f"{source}: holds no backup of an account")
    # All are looked at before the first one is made.
    backups = [(folder, *read_backup(folder)) for folder in folders]
    failed = []
    with open_catalog() as catalog:
        existing = set(catalog.manager.streams.names().all())
        for folder, config, state in backups:
            name = config["name"]
            if name in existing:
                failed.append(name)
                note(f"{name}: already exists")
                continue
            try:
                info = load_stream(catalog, folder, config, state, progress=progress)
            except TradewindError as error:
                failed.append(name)
                note(f"{name}: {error}")
            else:
                line(f"{name}: {counted(info.state.messages, 'message')}")
    if failed:
        raise CommandError(f"not restored: {', '.join(failed)}")
