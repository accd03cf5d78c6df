"""`tradewind kv`: key-value buckets, their values and their history.

Owns the commands and their output. It never implements bucket rules, which are in the client
library.
"""

from __future__ import annotations

import base64
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

from tradewind.api.names import KV_STREAM
from tradewind.cli.buckets.bucket_flags import (
    BucketFlags,
    StorageFlag,
    common_settings,
    find_bucket,
    seconds,
    show_cluster,
)
from tradewind.cli.buckets.bucket_questions import bucket_dialog
from tradewind.cli.buckets.key_changes import app as key_changes_app
from tradewind.cli.frame.completion import complete_kv
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import (
    Argument,
    AskFlag,
    CommandApp,
    ForceFlag,
    JsonFlag,
    Option,
    with_flags,
)
from tradewind.cli.frame.message_text import input_is_given, read_input
from tradewind.cli.frame.output import (
    Columns,
    Table,
    flush,
    line,
    print_json,
    print_json_line,
    styled,
)
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, jetstream
from tradewind.cli.frame.text_formats import (
    duration_text,
    limit_text,
    parse_size,
    since_text,
    size_text,
    time_text,
)

if TYPE_CHECKING:
    from tradewind.client.kv.entries import Entry
    from tradewind.client.kv.kv_types import KvStatus
    from tradewind.sync import JetStream, KeyValue

app = CommandApp("Key-value buckets")
app.include(key_changes_app)

VALUE_LENGTH_MAX: Final = 40
_OPERATIONS: Final = {"PUT": "PUT", "DEL": "DELETE", "PURGE": "PURGE", "EXPIRED": "EXPIRED"}

BucketArgument = Annotated[
    str, Argument(help="Bucket name", show_default=False, autocompletion=complete_kv)
]
KeyArgument = Annotated[str, Argument(help="Key")]
ValueArgument = Annotated[str | None, Argument(help="Value; read from standard input if omitted")]
HistoryFlag = Annotated[
    int | None, Option("--history", min=1, max=64, help="Values kept per key, 1 to 64")
]
MarkerTtlFlag = Annotated[
    str | None,
    Option(
        "--marker-ttl", help="Allow per-key TTLs; keep delete markers this long", metavar="DURATION"
    ),
]
AllowTtlFlag = Annotated[
    bool | None, Option("--allow-ttl/--no-allow-ttl", help="Allow per-key TTLs, without markers")
]
MaxValueSizeFlag = Annotated[
    str | None, Option("--max-value-size", help="Maximum size of a value", metavar="BYTES")
]
MirrorFlag = Annotated[str | None, Option("--mirror", help="Mirror this bucket")]
SourceFlag = Annotated[
    list[str] | None, Option("--source", help="Source values from this bucket", show_default=False)
]
MirrorDomainFlag = Annotated[str, Option("--mirror-domain", help="Domain of the mirrored bucket")]
RepublishSourceFlag = Annotated[
    str, Option("--republish-source", help="Republish values of these subjects", metavar="SUBJECT")
]
RepublishDestinationFlag = Annotated[
    str, Option("--republish-destination", help="Republish to this subject", metavar="SUBJECT")
]
RepublishHeadersFlag = Annotated[bool, Option("--republish-headers", help="Republish headers only")]
ValueTtlFlag = Annotated[str, Option("--ttl", help="Time to live of the value", metavar="DURATION")]


# ------------------------------------------------------------------ buckets


@app.command("add", aliases=("new",))
@with_flags(BucketFlags)
def add(
    bucket: BucketArgument = "",
    history: HistoryFlag = None,
    marker_ttl: MarkerTtlFlag = None,
    allow_ttl: AllowTtlFlag = None,
    max_value_size: MaxValueSizeFlag = None,
    storage: StorageFlag = None,
    mirror: MirrorFlag = None,
    mirror_domain: MirrorDomainFlag = "",
    source: SourceFlag = None,
    republish_source: RepublishSourceFlag = "",
    republish_destination: RepublishDestinationFlag = "",
    republish_headers: RepublishHeadersFlag = False,
    ask_for_all: AskFlag = False,
    json: JsonFlag = False,
    *,
    flags: BucketFlags,
) -> None:
    """Create a bucket. On a terminal, prompts if the name is missing, or with --ask."""
    settings = common_settings(flags, storage)
    settings |= _kv_settings(history, marker_ttl, allow_ttl, max_value_size)
    if mirror:
        settings["mirror"] = _mirror(mirror, mirror_domain)
    if source:
        settings["sources"] = source
    if republish_destination:
        from tradewind.api.stream_types import RePublish

        settings["republish"] = RePublish(
            src=republish_source or ">", dest=republish_destination, headers_only=republish_headers
        )
    dialog = bucket_dialog("kv", bucket, settings, ask_for_all=ask_for_all)
    with connect() as connection:
        buckets = jetstream(connection).kv
        made = dialog.until_accepted(
            lambda answers: buckets.create(**{"bucket": bucket, **settings, **answers})
        )
        _show_status(made.status(), as_json=json)


@app.command("edit", aliases=("update-bucket",))
@with_flags(BucketFlags)
def edit(
    bucket: BucketArgument,
    history: HistoryFlag = None,
    marker_ttl: MarkerTtlFlag = None,
    allow_ttl: AllowTtlFlag = None,
    max_value_size: MaxValueSizeFlag = None,
    force: ForceFlag = False,
    json: JsonFlag = False,
    *,
    flags: BucketFlags,
) -> None:
    """Update the settings of a bucket; settings not given stay unchanged."""
    settings = common_settings(flags)
    settings |= _kv_settings(history, marker_ttl, allow_ttl, max_value_size)
    if not settings:
        raise CommandError("nothing to change: no settings given", "see: tradewind kv edit --help")
    with connect() as connection:
        js = jetstream(connection)
        _open(js, bucket)
        confirm_or_stop(f"Really edit bucket {bucket} ({', '.join(settings)})", force=force)
        _show_status(js.kv.update(bucket, **settings).status(), as_json=json)


@app.command("info", aliases=("view", "status"))
def info(bucket: BucketArgument = "", json: JsonFlag = False) -> None:
    """Show the settings and the size of a bucket."""
    with connect() as connection:
        _show_status(_open(jetstream(connection), bucket).status(), as_json=json)


@app.command("ls", aliases=("list",))
def list_buckets_or_keys(
    bucket: BucketArgument = "",
    names: Annotated[bool, Option("--names", "-n", help="Show only names")] = False,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Show details of each key")] = False,
    display_value: Annotated[
        bool, Option("--display-value", help="With --verbose, also show values")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """List buckets, or the keys in one."""
    with connect() as connection:
        js = jetstream(connection)
        if bucket:
            _list_keys(_open(js, bucket), verbose=verbose, values=display_value, as_json=json)
            return
        found = sorted(js.kv.list(), key=lambda status: (status.bytes, status.bucket))
    if json:
        print_json([status.bucket if names else status.info for status in found])
    elif names:
        for status in found:
            line(status.bucket)
    elif not found:
        line("No Key-Value buckets found")
    else:
        headers = ("Bucket", "Description", "Created", "Size", "Values", "Last Update")
        table = Table(
            "Key-Value Buckets",
            *headers,
            shorten=("Description",),
            drop=("Created", "Description", "Last Update"),
        )
        for status in found:
            state = status.info.state
            table.row(
                status.bucket,
                status.description,
                time_text(status.info.created),
                size_text(status.bytes),
                status.values,
                since_text(state.last_ts),
            )
        table.print()


@app.command("compact")
def compact(
    bucket: BucketArgument,
    older_than: Annotated[
        str, Option("--older-than", help="Only remove markers older than this", metavar="DURATION")
    ] = "30m",
    force: ForceFlag = False,
) -> None:
    """Remove the markers of deleted keys."""
    question = f"Purge all historic values and audit trails for deleted keys in bucket {bucket}"
    with connect() as connection:
        store = _open(jetstream(connection), bucket)
        confirm_or_stop(question, force=force)
        count = store.purge_deletes(seconds(older_than, "--older-than"))
    line(f"Removed {count:,} deleted keys from bucket {bucket}")


# ------------------------------------------------------------------ values


@app.command("put")
def put(
    bucket: BucketArgument, key: KeyArgument, value: ValueArgument = None, ttl: ValueTtlFlag = ""
) -> None:
    """Set the value of a key. With --ttl it replaces the history, and the key expires."""
    data = _value(value)
    lifetime = seconds(ttl, "--ttl") if ttl else None
    with connect() as connection:
        _open(jetstream(connection), bucket).put(key, data, ttl=lifetime)
    _echo(value)


@app.command("create")
def create(
    bucket: BucketArgument, key: KeyArgument, value: ValueArgument = None, ttl: ValueTtlFlag = ""
) -> None:
    """Set the value of a key that does not exist."""
    data = _value(value)
    lifetime = seconds(ttl, "--ttl") if ttl else None
    with connect() as connection:
        _open(jetstream(connection), bucket).create(key, data, ttl=lifetime)
    _echo(value)


@app.command("update")
def update(
    bucket: BucketArgument,
    key: KeyArgument,
    value: Annotated[str, Argument(help="The value")],
    revision: Annotated[int, Argument(min=0, help="Expected last revision of the key")],
    ttl: Annotated[
        str, Option("--ttl", help="Time to live of the value, or keep", metavar="DURATION")
    ] = "",
) -> None:
    """Set the value of a key if its revision is unchanged."""
    lifetime = ttl if ttl == "keep" else seconds(ttl, "--ttl") if ttl else None
    with connect() as connection:
        _open(jetstream(connection), bucket).update(key, value, revision, ttl=lifetime)
    _echo(value)


@app.command("get")
def get(
    bucket: BucketArgument,
    key: KeyArgument,
    revision: Annotated[int, Option("--revision", min=0, help="Get this revision")] = 0,
    renew: Annotated[
        str, Option("--renew", help="If it expires, let it live this long", metavar="DURATION")
    ] = "",
    raw: Annotated[bool, Option("--raw", help="Print only the raw value")] = False,
    json: JsonFlag = False,
) -> None:
    """Show the value of a key."""
    lifetime = seconds(renew, "--renew") if renew else None
    with connect() as connection:
        opened = _open(jetstream(connection), bucket)
        entry = opened.get(key, revision=revision or None, renew=lifetime)
    if entry is None:
        which = f" of revision {revision}" if revision else ""
        raise CommandError(
            f"key {key!r} of bucket {bucket!r} has no value{which}",
            f"see its history:  tradewind kv history {bucket} {key}",
        )
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(entry.value)
        sys.stdout.buffer.flush()
    elif json:
        print_json(_document(entry))
    else:
        created = entry.created.astimezone().isoformat(timespec="seconds")
        ttl = "" if entry.ttl_ns is None else f" ttl: {duration_text(entry.ttl_ns)}"
        line(f"{bucket} > {key} revision: {entry.revision} created @ {created}{ttl}\n")
        line(_readable(entry.value))


@app.command("del", aliases=("rm", "delete"))
def delete(
    bucket: BucketArgument,
    key: Annotated[str, Argument(help="Key; deletes the whole bucket if omitted")] = "",
    force: ForceFlag = False,
) -> None:
    """Delete a key, or a whole bucket."""
    with connect() as connection:
        js = jetstream(connection)
        store = _open(js, bucket)
        if key:
            confirm_or_stop(f"Delete key {bucket} > {key}", force=force)
            store.delete(key)
        else:
            confirm_or_stop(f"Delete bucket {bucket}", force=force)
            js.kv.delete(bucket)


@app.command("purge")
def purge(
    bucket: BucketArgument, key: KeyArgument, ttl: ValueTtlFlag = "", force: ForceFlag = False
) -> None:
    """Delete a key with its history."""
    lifetime = seconds(ttl, "--ttl") if ttl else None
    with connect() as connection:
        store = _open(jetstream(connection), bucket)
        confirm_or_stop(f"Purge key {bucket} > {key}", force=force)
        store.purge(key, ttl=lifetime)


@app.command("history")
def history(bucket: BucketArgument, key: KeyArgument, json: JsonFlag = False) -> None:
    """Show the history of a key."""
    with connect() as connection:
        entries = list(_open(jetstream(connection), bucket).history(key))
    if json:
        print_json([_document(entry) for entry in entries])
    else:
        _show_history(bucket, key, entries)


@app.command("revert")
def revert(
    bucket: BucketArgument,
    key: KeyArgument,
    revision: Annotated[int, Argument(min=1, help="Revision to restore")],
    force: ForceFlag = False,
) -> None:
    """Restore an earlier revision of a key."""
    with connect() as connection:
        store = _open(jetstream(connection), bucket)
        entries = list(store.history(key))
        old = next((entry for entry in entries if entry.revision == revision), None)
        if old is None or old.is_deleted:
            kept = ", ".join(str(entry.revision) for entry in entries if not entry.is_deleted)
            raise CommandError(
                f"key {key!r} of bucket {bucket!r} has no revision {revision} "
                f"(available: {kept or 'none'})"
            )
        if not force:
            line(f"Revision: {revision}\n\n{_shortened(old.value)}\n")
        confirm_or_stop(f"Really revert to revision {revision}", force=force)
        store.update(key, old.value, entries[-1].revision)
        _show_history(bucket, key, list(store.history(key)))


@app.command("watch")
def watch(
    bucket: BucketArgument,
    key: Annotated[str, Argument(help="Key or wildcard pattern")] = ">",
    history: Annotated[bool, Option("--history", help="Start with the full history")] = False,
    updates: Annotated[bool, Option("--updates", help="Start with the next change")] = False,
    deletes: Annotated[bool, Option("--deletes/--no-deletes", help="Show deletions")] = True,
    revision: Annotated[int, Option("--revision", min=0, help="Start at this revision")] = 0,
    count: Annotated[int, Option("--count", min=0, help="Stop after this many changes")] = 0,
    json: JsonFlag = False,
) -> None:
    """Watch a bucket for changes, until Ctrl-C."""
    shown = 0
    with suppress(KeyboardInterrupt), connect() as connection:
        watcher = _open(jetstream(connection), bucket).watch(
            *([] if key == ">" else [key]),
            history=history,
            updates_only=updates,
            ignore_deletes=not deletes,
            from_revision=revision,
        )
        with watcher:
            for entry in watcher:
                _show_change(entry, as_json=json)
                shown += 1
                if shown == count:
                    return


# ------------------------------------------------------------------ inside


def _open(js: JetStream, bucket: str) -> KeyValue:
    return find_bucket("kv", bucket, js.kv.names, js.kv.open)


def _kv_settings(
    history: int | None, marker_ttl: str | None, allow_ttl: bool | None, max_value_size: str | None
) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if history is not None:
        settings["history"] = history
    if marker_ttl is not None:
        settings["marker_ttl"] = seconds(marker_ttl, "--marker-ttl")
    if allow_ttl is not None:
        settings["allow_ttl"] = allow_ttl
    if max_value_size is not None:
        settings["max_value_size"] = parse_size(max_value_size, "--max-value-size")
    return settings


def _mirror(bucket: str, domain: str) -> Any:
    if not domain:
        return bucket
    from tradewind.api.stream_types import ExternalStream, StreamSource

    return StreamSource(name=bucket, external=ExternalStream(api=f"$JS.{domain}.API"))


def _value(value: str | None) -> bytes:
    if value is not None:
        return value.encode()
    if not input_is_given():
        raise CommandError("no value given: pass it as an argument or on standard input")
    return read_input()


def _echo(value: str | None) -> None:
    if value is not None:
        line(value)


def _readable(value: bytes) -> str:
    """A value as text; Base64 if it is none."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
    if all(character.isprintable() or character in "\t\r\n" for character in text):
        return text
    return base64.b64encode(value).decode()


def _shortened(value: bytes) -> str:
    text = _readable(value)
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:15]}...{text[-15:]}"


def _document(entry: Entry) -> dict[str, Any]:
    document: dict[str, Any] = {
        "bucket": entry.bucket,
        "key": entry.key,
        "revision": entry.revision,
        "operation": _OPERATIONS[entry.operation],
        "created": entry.created.isoformat().replace("+00:00", "Z"),
    }
    if entry.ttl is not None:
        document["ttl"] = entry.ttl
    try:
        document["value"] = entry.value.decode()
    except UnicodeDecodeError:
        document["value_base64"] = base64.b64encode(entry.value).decode()
    return document


def _created(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.created_ns / 1e9))


def _show_change(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        print_json_line(_document(entry))
    else:
        operation = _OPERATIONS[entry.operation]
        text = f"{entry.bucket} > {entry.key}"
        if entry.is_deleted:
            line(f"[{_created(entry)}] {styled(operation, 'red')} {text}")
        else:
            value = _readable(entry.value)
            line(f"[{_created(entry)}] {styled(operation, 'green')} {text}: {value}")
    flush()


def _show_history(bucket: str, key: str, entries: list[Entry]) -> None:
    if not entries:
        raise CommandError(f"key {key!r} of bucket {bucket!r} has no values")
    headers = ("Key", "Revision", "Op", "Created", "Length", "Value")
    table = Table(
        f"History for {bucket} > {key}", *headers, shorten=("Value",), drop=("Length", "Created")
    )
    for entry in entries:
        table.row(
            entry.key,
            entry.revision,
            _OPERATIONS[entry.operation],
            _created(entry),
            len(entry.value),
            _shortened(entry.value).replace("\n", "\\n"),
        )
    table.print()


def _list_keys(store: KeyValue, *, verbose: bool, values: bool, as_json: bool) -> None:
    if not verbose:
        keys = sorted(store.keys())
        if as_json:
            print_json(keys)
            return
        for key in keys:
            line(key)
        if not keys:
            line("No keys found in bucket")
        return
    with store.watch(ignore_deletes=True, meta_only=not values) as watcher:
        entries = sorted(watcher.initial(), key=lambda entry: entry.key)
    if as_json:
        documents = [_document(entry) for entry in entries]
        if not values:
            for document in documents:
                document.pop("value", None)
        print_json(documents)
        return
    if not entries:
        line("No keys found in bucket")
        return
    headers = ("Key", "Created", "Delta", "Revision", *(("Value",) if values else ()))
    table = Table(
        f"Contents for bucket '{store.bucket}'",
        *headers,
        shorten=("Value",) if values else (),
        drop=("Delta", "Created"),
    )
    for entry in entries:
        row = (entry.key, _created(entry), entry.delta, entry.revision)
        table.row(*row, *((_shortened(entry.value),) if values else ()))
    table.print()


def _show_status(status: KvStatus, *, as_json: bool) -> None:
    info = status.info
    if as_json:
        print_json(info)
        return
    config = info.config
    title = f"Information for Key-Value Store Bucket {status.bucket} created "
    columns = Columns(title + time_text(info.created))
    columns.section("Configuration")
    columns.row("Bucket Name", status.bucket)
    columns.row("History Kept", status.history)
    columns.row("Values Stored", status.values)
    columns.row("Compressed", status.is_compressed)
    columns.row("Per-Key TTL Supported", config.allow_msg_ttl)
    if status.marker_ttl:
        columns.row("Limit Marker TTL", duration_text(config.subject_delete_marker_ttl))
    columns.row("Backing Store Kind", "JetStream")
    columns.row_if("Description", status.description)
    columns.row("Bucket Size", size_text(status.bytes))
    columns.row("Maximum Bucket Size", limit_text(config.max_bytes, size_text(config.max_bytes)))
    columns.row(
        "Maximum Value Size", limit_text(config.max_msg_size, size_text(config.max_msg_size))
    )
    columns.row("Maximum Age", limit_text(config.max_age, duration_text(config.max_age)))
    columns.row("JetStream Stream", config.name)
    columns.row("Storage", config.storage.value.capitalize())
    columns.row("Replicas", config.num_replicas)
    if config.republish is not None:
        label = "Republishing Headers" if config.republish.headers_only else "Republishing"
        columns.row(label, f"{config.republish.src} to {config.republish.dest}")
    meta = {key: text for key, text in config.metadata.items() if not key.startswith("_nats.")}
    columns.row_if("Metadata", "\n".join(f"{key}: {text}" for key, text in meta.items()))
    if info.mirror is not None:
        columns.section("Mirror Information")
        columns.row("Origin Bucket", info.mirror.name.removeprefix(KV_STREAM))
        columns.row("Lag", info.mirror.lag)
    for source in info.sources:
        columns.section("Sources Information")
        columns.row("Source Bucket", source.name.removeprefix(KV_STREAM))
        columns.row("Lag", source.lag)
    show_cluster(columns, info)
    columns.print()
