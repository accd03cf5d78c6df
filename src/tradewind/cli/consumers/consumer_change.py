"""`tradewind consumer add`, `edit` and `copy`: configurations from flags, files and prompts.

Owns the dialog and the confirmation. It never validates a configuration, which is up to the server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import msgspec

from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo
from tradewind.api.stream_types import StreamConfig
from tradewind.api.versioning import user_metadata
from tradewind.cli.consumers.consumer_details import show_consumer
from tradewind.cli.consumers.consumer_flags import ConsumerFlags, apply_flags, filters, start_of
from tradewind.cli.frame.account_catalog import AccountCatalog, open_catalog
from tradewind.cli.frame.completion import complete_consumer, complete_stream
from tradewind.cli.frame.config_files import (
    config_of,
    diff_lines,
    kept_marks,
    print_diff,
    read_config,
    read_document,
    write_config,
)
from tradewind.cli.frame.editor import edit_config
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import (
    Argument,
    AskFlag,
    CommandApp,
    ForceFlag,
    JsonFlag,
    Option,
    with_flags,
)
from tradewind.cli.frame.output import line, print_json
from tradewind.cli.frame.prompts import ask, ask_value, can_ask, choose, confirm, confirm_or_stop
from tradewind.cli.streams.stream_flags import split_subjects
from tradewind.subjects import collides_with_any

app = CommandApp("Create and update consumers")

ConfigFlag = Annotated[
    str, Option("--config", metavar="FILE", help="JSON file with the configuration")
]
StreamName = Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)]
NewName = Annotated[str, Argument(metavar="CONSUMER")]
ConsumerName = Annotated[str, Argument(metavar="CONSUMER", autocompletion=complete_consumer)]


@app.command("add", aliases=("create", "new"))
@with_flags(ConsumerFlags)
def add_consumer(
    stream: StreamName = "",
    consumer: NewName = "",
    config: ConfigFlag = "",
    validate: Annotated[
        bool, Option("--validate", help="Only validate the file and flags")
    ] = False,
    output: Annotated[
        str,
        Option(
            "--output",
            metavar="FILE",
            help="Save the configuration to this file without creating anything",
        ),
    ] = "",
    defaults: Annotated[bool, Option("--defaults", help="Do not prompt")] = False,
    ask_for_all: AskFlag = False,
    json: JsonFlag = False,
    *,
    flags: ConsumerFlags,
) -> None:
    """Create a consumer. On a terminal, prompts for settings if no name is given, or with --ask."""
    stream, wanted = _from_file(stream, config) if config else (stream, ConsumerConfig())
    wanted = apply_flags(wanted, flags)
    if not config:
        ask_all = can_ask() and not defaults and (ask_for_all or not (stream and consumer))
        wanted, consumer = _complete(wanted, consumer, flags, ask_all=ask_all)
    if consumer or not config:
        is_ephemeral = flags.ephemeral or bool(wanted.name and not wanted.durable_name)
        wanted = _named(wanted, consumer, ephemeral=is_ephemeral)
    if output:
        write_config(output, wanted)
        return
    if validate:
        line("Configuration is valid")
        return
    with open_catalog() as catalog:
        stream = catalog.pick_stream(stream)
        _check_filters(catalog.stream(stream).config, wanted)
        info = catalog.manager.consumers.add(stream, wanted)
    _show_made(info, json=json)


def _check_filters(stream: StreamConfig, wanted: ConsumerConfig) -> None:
    """CommandError if a filter can never match: nothing would ever be delivered.

    A mirror, or a stream with sources, stores subjects that its configuration does not name.
    """
    if not stream.subjects or stream.mirror or stream.sources or stream.subject_transform:
        return
    for subject in filter(None, [wanted.filter_subject, *wanted.filter_subjects]):
        if not collides_with_any(subject, stream.subjects):
            raise CommandError(
                f"--filter: {subject!r} matches no subject of Stream {stream.name}: "
                f"{', '.join(stream.subjects)}",
                exit_code=EXIT_USAGE,
            )


def _from_file(stream: str, path: str) -> tuple[str, ConsumerConfig]:
    """The configuration, and the stream that the file names if none was given."""
    document = read_document(path)
    if isinstance(document.get("config"), dict):
        named = document.get("stream_name")
        stream = stream or (named if isinstance(named, str) else "")
        document = document["config"]
    return stream, config_of(document, ConsumerConfig, path)


def _named(config: ConsumerConfig, name: str, *, ephemeral: bool) -> ConsumerConfig:
    if ephemeral:
        return msgspec.structs.replace(config, durable_name="", name=name)
    name = name or config.durable_name or config.name
    if not name:
        raise CommandError(
            "no name given: consumer add STREAM NAME, or --ephemeral", exit_code=EXIT_USAGE
        )
    return msgspec.structs.replace(config, durable_name=name, name=name)


def _show_made(info: ConsumerInfo, *, json: bool) -> None:
    if json:
        print_json(info)
        return
    line(f"Consumer {info.stream_name} > {info.name} was created")
    line()
    show_consumer(info)


def _complete(
    config: ConsumerConfig, name: str, flags: ConsumerFlags, *, ask_all: bool
) -> tuple[ConsumerConfig, str]:
    """Asks for what is missing; without a terminal the defaults are taken."""
    changes: dict[str, Any] = {}
    if not name and not flags.ephemeral and can_ask():
        name = ask("Consumer name", flag="a name: consumer add STREAM NAME")
    if ask_all and flags.deliver_subject is None and not flags.pull:
        target = ask("Delivery target (empty for Pull Consumers)", flag="--target or --pull")
        changes["deliver_subject"] = target
    is_push = bool(changes.get("deliver_subject") or config.deliver_subject)
    if ask_all:
        changes |= _ask_rest(flags, is_push=is_push)
    elif flags.ack_policy is None:
        changes["ack_policy"] = "none" if is_push else "explicit"
    document = msgspec.to_builtins(config) | changes
    return msgspec.convert(document, ConsumerConfig), name


def _ask_rest(flags: ConsumerFlags, *, is_push: bool) -> dict[str, Any]:
    """The questions of nats, each unless its flag was given."""
    changes: dict[str, Any] = {}
    if flags.deliver is None:
        changes |= ask_value(
            "Start policy (all, new, last, subject, 1h, msg sequence)",
            start_of,
            "all",
            flag="--deliver",
            help_text="",
        )
    if flags.ack_policy is None:
        policies = ["none", "all", "explicit"] if is_push else ["explicit", "all", "none"]
        changes["ack_policy"] = choose("Acknowledgment policy", policies, flag="--ack")
    if flags.replay_policy is None:
        replay = choose("Replay policy", ["instant", "original"], flag="--replay")
        changes["replay_policy"] = replay
    if flags.filter_subjects is None:
        text = ask("Filter Stream by subjects (blank for all)", flag="--filter")
        changes |= filters(split_subjects([text]))
    acknowledges = changes.get("ack_policy", flags.ack_policy) != "none"
    if flags.max_deliver is None and acknowledges:
        question = "Maximum Allowed Deliveries"
        changes["max_deliver"] = _ask_count(question, "-1", "--max-deliver")
    if flags.max_ack_pending is None and acknowledges:
        question = "Maximum Acknowledgments Pending"
        changes["max_ack_pending"] = _ask_count(question, "0", "--max-pending")
    if flags.headers_only is None:
        question = "Deliver headers only without bodies"
        changes["headers_only"] = confirm(question, flag="--headers-only")
    if flags.backoff is None and acknowledges:
        changes |= _ask_backoff(changes.get("max_deliver", flags.max_deliver) or -1)
    return changes


def _ask_backoff(max_deliver: int) -> dict[str, Any]:
    if not confirm("Add a Retry Backoff Policy", flag="--backoff"):
        return {}
    policy = replace(ConsumerFlags(), backoff="linear")
    backoff = apply_flags(ConsumerConfig(), policy).backoff
    return {"backoff": backoff[: max_deliver - 1] if max_deliver > 0 else backoff}


def _ask_count(question: str, default: str, flag: str) -> int:
    def count(text: str) -> int:
        if not text.removeprefix("-").isdigit():
            raise CommandError(f"a number, not {text!r}")
        return int(text)

    return ask_value(question, count, default, flag=flag, help_text="")


@app.command("edit", aliases=("update",))
@with_flags(ConsumerFlags)
def edit_consumer(
    stream: StreamName = "",
    consumer: ConsumerName = "",
    config: ConfigFlag = "",
    force: ForceFlag = False,
    interactive: Annotated[
        bool, Option("--interactive", "-i", help="Edit the configuration in $EDITOR")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show the differences")] = False,
    json: JsonFlag = False,
    *,
    flags: ConsumerFlags,
) -> None:
    """Update a consumer after showing the differences and asking for confirmation."""
    with open_catalog() as catalog:
        info = catalog.consumer(stream, consumer)
        wanted = _edited(info, config, flags, interactive=interactive)
        wanted = with_current_values(wanted, info.config)
        lines = diff_lines(info.config, wanted)
        if not lines:
            line("No difference in configuration")
            return
        if not json:
            print_diff(lines)
        if dry_run:
            return
        question = f"Really edit Consumer {info.stream_name} > {info.name}"
        confirm_or_stop(question, force=force)
        info = catalog.manager.consumers.update(info.stream_name, wanted)
    if json:
        print_json(info)
        return
    line(f"Consumer {info.stream_name} > {info.name} was updated")
    line()
    show_consumer(info)


def _edited(
    info: ConsumerInfo, path: str, flags: ConsumerFlags, *, interactive: bool
) -> ConsumerConfig:
    wanted = info.config
    if path:
        wanted = read_config(path, ConsumerConfig)
        name = wanted.name or wanted.durable_name
        if name and name != info.name:
            raise CommandError(f"{path}: contains the configuration of Consumer {name!r}")
        wanted = msgspec.structs.replace(
            wanted, name=info.config.name, durable_name=info.config.durable_name
        )
    if interactive:
        wanted = edit_config(wanted, ConsumerConfig)
    return apply_flags(wanted, flags)


def with_current_values(wanted: ConsumerConfig, current: ConsumerConfig) -> ConsumerConfig:
    """A file may leave out members for which 0 means the default; these stay as they are."""
    changes: dict[str, Any] = {}
    for name in ("ack_wait", "max_waiting", "max_ack_pending", "max_deliver"):
        if not getattr(wanted, name):
            changes[name] = getattr(current, name)
    changes["metadata"] = kept_marks(wanted.metadata, current.metadata)
    return msgspec.structs.replace(wanted, **changes)


@app.command("copy", aliases=("cp",))
@with_flags(ConsumerFlags)
def copy_consumer(
    stream: StreamName,
    source: Annotated[str, Argument(metavar="SOURCE")],
    destination: Annotated[str, Argument(metavar="DESTINATION")],
    json: JsonFlag = False,
    *,
    flags: ConsumerFlags,
) -> None:
    """Create a consumer with the configuration of another one."""
    with open_catalog() as catalog:
        base = _copied(catalog, stream, source)
        wanted = _named(apply_flags(base, flags), destination, ephemeral=flags.ephemeral)
        info = catalog.manager.consumers.add(stream, wanted)
    _show_made(info, json=json)


def _copied(catalog: AccountCatalog, stream: str, source: str) -> ConsumerConfig:
    config = catalog.consumer(stream, source).config
    return msgspec.structs.replace(config, metadata=user_metadata(config.metadata))
