"""`tradewind object`: files in object stores.

Owns the commands, the progress bar and the output. It never implements object rules, which are in
the client library. A downloaded file gets its name only when it is complete and verified.
"""

from __future__ import annotations

import base64
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

from tradewind.cli.buckets.bucket_flags import (
    BucketFlags,
    StorageFlag,
    common_settings,
    find_bucket,
    show_cluster,
)
from tradewind.cli.buckets.bucket_questions import bucket_dialog
from tradewind.cli.frame.completion import complete_object
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError, near
from tradewind.cli.frame.frame import (
    Argument,
    AskFlag,
    CommandApp,
    ForceFlag,
    JsonFlag,
    Option,
    with_flags,
)
from tradewind.cli.frame.message_text import header_fields
from tradewind.cli.frame.output import (
    Columns,
    Table,
    flush,
    line,
    print_json,
    print_json_line,
    styled,
)
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, jetstream
from tradewind.cli.frame.text_formats import (
    count_text,
    duration_text,
    limit_text,
    parse_size,
    since_text,
    size_text,
    time_text,
)
from tradewind.client.objects.object_types import CHUNK_BYTES
from tradewind.durations import SECOND_NS, format_duration

if TYPE_CHECKING:
    from tradewind.client.objects.object_types import ObjectInfo, ObjectStoreStatus
    from tradewind.sync import JetStream, ObjectStore

app = CommandApp("Object stores")

# Smaller files are there before a bar is seen.
BAR_BYTES: Final = 20480

BucketArgument = Annotated[
    str, Argument(help="Bucket name", show_default=False, autocompletion=complete_object)
]
FileArgument = Annotated[str, Argument(help="Object name", show_default=False)]
ProgressFlag = Annotated[bool, Option("--progress/--no-progress", help="Show a progress bar")]


@app.command("add", aliases=("new",))
@with_flags(BucketFlags)
def add(
    bucket: BucketArgument = "",
    storage: StorageFlag = None,
    ask_for_all: AskFlag = False,
    json: JsonFlag = False,
    *,
    flags: BucketFlags,
) -> None:
    """Create an object store. On a terminal, prompts if the name is missing, or with --ask."""
    settings = common_settings(flags, storage)
    dialog = bucket_dialog("object", bucket, settings, ask_for_all=ask_for_all)
    with connect() as connection:
        stores = jetstream(connection).objects
        made = dialog.until_accepted(
            lambda answers: stores.create(**{"bucket": bucket, **settings, **answers})
        )
        _show_bucket(made.status(), as_json=json)


@app.command("edit")
@with_flags(BucketFlags)
def edit(
    bucket: BucketArgument,
    force: ForceFlag = False,
    json: JsonFlag = False,
    *,
    flags: BucketFlags,
) -> None:
    """Update the settings of an object store; settings not given stay unchanged."""
    settings = common_settings(flags)
    if not settings:
        raise CommandError(
            "nothing to change: no settings given", "see: tradewind object edit --help"
        )
    with connect() as connection:
        js = jetstream(connection)
        _open(js, bucket)
        confirm_or_stop(f"Really edit bucket {bucket} ({', '.join(settings)})", force=force)
        _show_bucket(js.objects.update(bucket, **settings).status(), as_json=json)


@app.command("put")
def put(
    bucket: BucketArgument,
    file: Annotated[str, Argument(help="File; standard input if omitted")] = "",
    name: Annotated[
        str, Option("--name", help="Object name, if different from the file name")
    ] = "",
    description: Annotated[str, Option("--description", help="Description of the object")] = "",
    header: Annotated[
        list[str] | None, Option("--header", "-H", help="A header, NAME:VALUE", show_default=False)
    ] = None,
    chunk_size: Annotated[str, Option("--chunk-size", help="Chunk size", metavar="BYTES")] = str(
        CHUNK_BYTES
    ),
    progress: ProgressFlag = True,
    force: ForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Store a file or standard input."""
    if not file and not name:
        raise CommandError(
            "--name is required when reading from standard input", exit_code=EXIT_USAGE
        )
    path = Path(file)
    if file and not path.is_file():
        raise CommandError(f"{file}: no such file")
    source: Path | BinaryIO = path if file else sys.stdin.buffer
    size = path.stat().st_size if file else None
    target = name or file
    with connect() as connection:
        store = _open(jetstream(connection), bucket)
        old = store.info(target)
        if old is not None and not force:
            _show_object(old)
            confirm_or_stop(f"Replace existing file {bucket} > {target}", force=False)
        shown = progress and not json and (size is None or size > BAR_BYTES)
        with ProgressBar(target, size, unit="bytes", shown=shown) as bar:
            info = store.put(
                target,
                source,
                description=description,
                headers=header_fields(header or []),
                chunk_size=parse_size(chunk_size, "--chunk-size"),
                progress=bar.set,
            )
    if json:
        print_json(info)
    else:
        _show_object(info)


@app.command("get")
def get(
    bucket: BucketArgument,
    file: FileArgument,
    output: Annotated[
        str, Option("--output", "-O", help="File to write; - for standard output", metavar="FILE")
    ] = "",
    progress: ProgressFlag = True,
    force: ForceFlag = False,
) -> None:
    """Download an object to a file."""
    path = Path(output or Path(file).name)
    with connect() as connection:
        store = _open(jetstream(connection), bucket)
        reader = store.get(file)
        if reader is None:
            raise _missing(store, file)
        if output == "-":
            sys.stdout.flush()
            reader.save(sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        if path.exists() and not force:
            confirm_or_stop(f"Replace existing target file {path}", force=False)
        began = time.perf_counter()
        size = reader.info.size
        with ProgressBar(file, size, unit="bytes", shown=progress and size > BAR_BYTES) as bar:
            info = reader.save(path, progress=bar.set)
        took = time.perf_counter() - began
    rate = size_text(round(info.size / took)) if took else "-"
    line(
        f"Wrote: {size_text(info.size)} to {path} in "
        f"{format_duration(round(took * 1e6) * 1000)} average {rate}/s"
    )


@app.command("del", aliases=("rm", "delete"))
def delete(
    bucket: BucketArgument,
    file: Annotated[str, Argument(help="Object name; deletes the whole store if omitted")] = "",
    force: ForceFlag = False,
) -> None:
    """Delete an object, or a whole object store."""
    with connect() as connection:
        js = jetstream(connection)
        store = _open(js, bucket)
        if not file:
            confirm_or_stop(f"Delete bucket {bucket} and all its files", force=force)
            js.objects.delete(bucket)
            return
        info = store.info(file)
        if info is None:
            raise _missing(store, file)
        confirm_or_stop(f"Delete {size_text(info.size)} file {bucket} > {file}", force=force)
        store.delete(file)
        line(f"Removed {bucket} > {file}")
        _show_bucket(store.status(), as_json=False)


@app.command("info", aliases=("show", "i"))
def info(bucket: BucketArgument = "", file: FileArgument = "", json: JsonFlag = False) -> None:
    """Show details of an object store or of an object."""
    with connect() as connection:
        store = _open(jetstream(connection), bucket)
        if not file:
            _show_bucket(store.status(), as_json=json)
            return
        found = store.info(file)
        if found is None:
            raise _missing(store, file)
    if json:
        print_json(found)
    else:
        _show_object(found)


@app.command("ls", aliases=("list",))
def list_stores_or_objects(
    bucket: BucketArgument = "",
    names: Annotated[bool, Option("--names", "-n", help="Show only names")] = False,
    json: JsonFlag = False,
) -> None:
    """List object stores, or the objects in one."""
    with connect() as connection:
        js = jetstream(connection)
        if bucket:
            found = sorted(_open(js, bucket).list(), key=lambda info: info.name)
            _list_objects(found, names=names, as_json=json)
        else:
            stores = sorted(js.objects.list(), key=lambda status: (status.size, status.bucket))
            _list_stores(stores, names=names, as_json=json)


@app.command("seal")
def seal(bucket: BucketArgument, force: ForceFlag = False) -> None:
    """Seal an object store: it can never be changed again."""
    question = f"Really seal Bucket {bucket}, sealed buckets can not be unsealed or modified"
    with connect() as connection:
        store = _open(jetstream(connection), bucket)
        confirm_or_stop(question, force=force)
        status = store.seal()
    line(f"{bucket} has been sealed")
    _show_bucket(status, as_json=False)


@app.command("watch")
def watch(
    bucket: BucketArgument,
    updates: Annotated[bool, Option("--updates", help="Start with the next change")] = False,
    count: Annotated[int, Option("--count", min=0, help="Stop after this many changes")] = 0,
    json: JsonFlag = False,
) -> None:
    """Watch an object store for changes, until Ctrl-C."""
    shown = 0
    with suppress(KeyboardInterrupt), connect() as connection:
        store = _open(jetstream(connection), bucket)
        for found in store.watch(updates_only=updates):
            _show_change(found, as_json=json)
            shown += 1
            if shown == count:
                return


# ------------------------------------------------------------------ inside


def _open(js: JetStream, bucket: str) -> ObjectStore:
    return find_bucket("object", bucket, js.objects.names, js.objects.open)


def _missing(store: ObjectStore, file: str) -> CommandError:
    known = [info.name for info in store.list()]
    return CommandError(
        f"store {store.bucket!r} has no object {file!r}{near(file, known)}",
        f"see all:  tradewind object ls {store.bucket}",
    )


def _show_change(info: ObjectInfo, *, as_json: bool) -> None:
    if as_json:
        print_json_line(info)
    else:
        place = f"{info.bucket} > {info.name}"
        at = time_text(info.mtime)
        if info.deleted:
            line(f"[{at}] {styled('DEL', 'red')} {place}")
        else:
            size = f"{size_text(info.size)} in {count_text(info.chunks)} chunks"
            line(f"[{at}] {styled('PUT', 'green')} {place}: {size}")
    flush()


def _list_stores(stores: list[ObjectStoreStatus], *, names: bool, as_json: bool) -> None:
    if as_json:
        print_json([status.bucket if names else status.info for status in stores])
    elif names:
        for status in stores:
            line(status.bucket)
    elif not stores:
        line("No Object Store buckets found")
    else:
        headers = ("Bucket", "Description", "Created", "Size", "Last Update")
        table = Table(
            "Object Store Buckets",
            *headers,
            shorten=("Description",),
            drop=("Created", "Description", "Last Update"),
        )
        for status in stores:
            table.row(
                status.bucket,
                status.description,
                time_text(status.info.created),
                size_text(status.size),
                since_text(status.info.state.last_ts),
            )
        table.print()


def _list_objects(found: list[ObjectInfo], *, names: bool, as_json: bool) -> None:
    if as_json:
        print_json([info.name if names else info for info in found])
    elif names:
        for info in found:
            line(info.name)
    elif not found:
        line("No entries found")
    else:
        table = Table("Bucket Contents", "Name", "Size", "Time", drop=("Time",))
        for info in found:
            table.row(info.name, size_text(info.size), time_text(info.mtime))
        table.print()


def _show_object(info: ObjectInfo) -> None:
    columns = Columns(f"Object information for {info.bucket} > {info.name}")
    columns.row_if("Description", info.description)
    columns.row("Size", size_text(info.size))
    columns.row("Modification Time", time_text(info.mtime))
    columns.row("Chunks", info.chunks)
    method, _, digest = (info.digest or "").partition("=")
    if digest:
        columns.row("Digest", f"{method} {base64.urlsafe_b64decode(digest + '==').hex()}")
    if info.link is not None:
        columns.row("Link", " > ".join(filter(None, (info.link.bucket, info.link.name))))
    headers = [f"{name}: {text}" for name, texts in (info.headers or {}).items() for text in texts]
    columns.row_if("Headers", "\n".join(headers))
    columns.print()


def _show_bucket(status: ObjectStoreStatus, *, as_json: bool) -> None:
    info = status.info
    if as_json:
        print_json(info)
        return
    title = f"Information for Object Store Bucket {status.bucket} created "
    columns = Columns(title + time_text(info.created))
    columns.section("Configuration")
    columns.row("Bucket Name", status.bucket)
    columns.row_if("Description", status.description)
    columns.row("Replicas", status.replicas)
    ttl_ns = round(status.ttl * SECOND_NS)
    columns.row("TTL", limit_text(ttl_ns, duration_text(ttl_ns)))
    columns.row("Sealed", status.is_sealed)
    columns.row("Size", size_text(status.size))
    limit = info.config.max_bytes
    columns.row("Maximum Bucket Size", limit_text(limit, size_text(limit)))
    columns.row("Compressed", status.is_compressed)
    columns.row("Storage", status.storage.value.capitalize())
    columns.row("Backing Store Kind", "JetStream")
    columns.row("JetStream Stream", info.config.name)
    meta = {key: text for key, text in status.metadata.items() if not key.startswith("_nats.")}
    columns.row_if("Metadata", "\n".join(f"{key}: {text}" for key, text in meta.items()))
    show_cluster(columns, info)
    columns.print()
