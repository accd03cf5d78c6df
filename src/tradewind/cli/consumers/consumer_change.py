"""`tradewind consumer add`, `edit` and `copy`: configurations from flags, files and prompts.

Owns the dialog and the confirmation. It never validates a configuration, which is up to the server.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo
from tradewind.api.versioning import user_metadata
from tradewind.cli.consumers.consumer_details import show_consumer
from tradewind.cli.consumers.consumer_flags import ConsumerFlags, apply_flags
from tradewind.cli.consumers.consumer_questions import (
    check_filters,
    consumer_dialog,
    with_answers,
)
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
from tradewind.cli.frame.prompts import can_ask, confirm_or_stop

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
    if not (consumer or flags.ephemeral or config or can_ask()):
        raise _no_name()
    is_complete = bool(stream and (consumer or flags.ephemeral))
    ask_all = can_ask() and not (config or defaults) and (ask_for_all or not is_complete)
    if output or validate:
        answers = {}
        if not config:
            answers = consumer_dialog(consumer, flags, None, None, ask_all=ask_all).ask()
        wanted = _completed(wanted, consumer, flags, answers, is_file=bool(config))
        if output:
            write_config(output, wanted)
        else:
            line("Configuration is valid")
        return
    with open_catalog() as catalog:
        found = catalog.existing_stream(stream) if ask_all else catalog.stream(stream)

        def make(answers: dict[str, Any]) -> ConsumerInfo:
            whole = _completed(wanted, consumer, flags, answers, is_file=bool(config))
            check_filters(found.config, [whole.filter_subject, *whole.filter_subjects])
            return catalog.manager.consumers.add(found.config.name, whole)

        if config:
            info = make({})
        else:
            dialog = consumer_dialog(consumer, flags, catalog, found.config, ask_all=ask_all)
            info = dialog.until_accepted(make)
    _show_made(info, json=json)


def _completed(
    config: ConsumerConfig,
    name: str,
    flags: ConsumerFlags,
    answers: dict[str, Any],
    *,
    is_file: bool,
) -> ConsumerConfig:
    """The configuration with the answers, a name and a policy for acknowledgments."""
    changes = dict(answers)
    name = changes.pop("name", "") or name
    if not is_file and flags.ack_policy is None and "ack_policy" not in changes:
        is_push = bool(changes.get("deliver_subject") or config.deliver_subject)
        changes["ack_policy"] = "none" if is_push else "explicit"
    config = with_answers(config, changes)
    if name or not is_file:
        is_ephemeral = flags.ephemeral or bool(config.name and not config.durable_name)
        config = _named(config, name, ephemeral=is_ephemeral)
    return config


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
        raise _no_name()
    return msgspec.structs.replace(config, durable_name=name, name=name)


def _no_name() -> CommandError:
    return CommandError(
        "no name given: consumer add STREAM NAME, or --ephemeral", exit_code=EXIT_USAGE
    )


def _show_made(info: ConsumerInfo, *, json: bool) -> None:
    if json:
        print_json(info)
        return
    line(f"Consumer {info.stream_name} > {info.name} was created")
    line()
    show_consumer(info)


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
