"""`tradewind stream add`, `edit` and `copy`: configurations from flags, files and prompts.

Owns the dialog and the confirmation. It never validates a configuration, which is up to the server.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tradewind.api.stream_types import StreamConfig, StreamInfo
from tradewind.api.versioning import user_metadata
from tradewind.cli.frame.account_catalog import AccountCatalog, open_catalog
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.config_files import (
    changed_members,
    diff_lines,
    kept_marks,
    print_diff,
    read_config,
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
from tradewind.cli.frame.questions import Dialog
from tradewind.cli.streams.stream_details import show_stream
from tradewind.cli.streams.stream_flags import StreamFlags, apply_flags
from tradewind.cli.streams.stream_questions import stream_questions

app = CommandApp("Create and update streams")

ConfigFlag = Annotated[
    str, Option("--config", metavar="FILE", help="JSON file with the configuration")
]
OptionalName = Annotated[str, Argument(metavar="STREAM")]
ExistingName = Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)]
# What nats gives a stream of which only name and subjects are known.
DEFAULTS = StreamConfig(
    max_consumers=-1,
    max_msgs=-1,
    max_bytes=-1,
    max_msgs_per_subject=-1,
    max_msg_size=-1,
    num_replicas=1,
    allow_direct=True,
)


@app.command("add", aliases=("create", "new"))
@with_flags(StreamFlags)
def add_stream(
    stream: OptionalName = "",
    config: ConfigFlag = "",
    validate: Annotated[bool, Option("--validate", help="Only validate the configuration")] = False,
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
    flags: StreamFlags,
) -> None:
    """Create a stream. On a terminal, prompts if name or subjects are missing, or with --ask."""
    base = read_config(config, StreamConfig) if config else DEFAULTS
    wanted = apply_flags(base, flags)
    if stream:
        wanted = msgspec.structs.replace(wanted, name=stream)
    if config and not wanted.name:
        raise CommandError(
            f"{config}: has no name; specify one: stream add NAME", exit_code=EXIT_USAGE
        )
    dialog = _dialog(wanted, flags, None, ask_for_all=ask_for_all, defaults=defaults)
    if not config:
        dialog.check()
    if output or validate:
        if not config:
            wanted = _with_answers(wanted, dialog.ask())
        if output:
            write_config(output, wanted)
        else:
            _validate(wanted)
        return
    with open_catalog() as catalog:
        if config:
            info, is_new = _create(catalog, wanted)
        else:
            dialog = _dialog(wanted, flags, catalog, ask_for_all=ask_for_all, defaults=defaults)
            info, is_new = dialog.until_accepted(
                lambda answers: _create(catalog, _with_answers(wanted, answers))
            )
    if json:
        print_json(info)
        return
    line(f"Stream {info.config.name} {'was created' if is_new else 'exists already'}")
    line()
    show_stream(info)


def _create(catalog: AccountCatalog, wanted: StreamConfig) -> tuple[StreamInfo, bool]:
    """The stream, and whether it is a new one."""
    if existing := _existing(catalog, wanted):
        return existing, False
    return catalog.manager.streams.add(wanted), True


def _existing(catalog: AccountCatalog, wanted: StreamConfig) -> StreamInfo | None:
    """The stream if there is one with these settings; CommandError if its settings differ."""
    from tradewind.client.api_errors import StreamNotFoundError

    try:
        info = catalog.manager.streams.info(wanted.name)
    except StreamNotFoundError:
        return None
    if changed := changed_members(info.config, with_current_values(wanted, info.config)):
        raise CommandError(
            f"Stream {wanted.name} exists with other settings: {'; '.join(changed)}",
            f"change it: tradewind stream edit {wanted.name}",
        )
    return info


def _validate(config: StreamConfig) -> None:
    from tradewind.api.errors import ApiError
    from tradewind.api.limits import ServerLimits
    from tradewind.api.responses import JetStreamAccountLimits
    from tradewind.api.stream_rules import check_stream_create

    try:
        check_stream_create(
            config, streams={}, server=ServerLimits(), account=JetStreamAccountLimits()
        )
    except ApiError as error:
        raise CommandError(f"not valid: {error.description}") from None
    line("Configuration is valid")


def _dialog(
    config: StreamConfig,
    flags: StreamFlags,
    catalog: AccountCatalog | None,
    *,
    ask_for_all: bool,
    defaults: bool,
) -> Dialog:
    """The questions that flags and name have not answered: all of them, or only what is missing."""
    questions = stream_questions(catalog)
    known = msgspec.to_builtins(config)
    given = {name for name, value in vars(flags).items() if value not in (None, False)}
    given |= {name for name in ("name", "subjects", "mirror", "sources") if known.get(name)}
    missing = [each for each in questions[:2] if each.key not in given and each.when(known)]
    if defaults or not can_ask() or not (ask_for_all or missing):
        given |= {each.key for each in questions if each not in missing}
    return Dialog(questions, {name: known.get(name) for name in given})


def _with_answers(config: StreamConfig, answers: dict[str, Any]) -> StreamConfig:
    return msgspec.convert(msgspec.to_builtins(config) | answers, StreamConfig)


@app.command("edit", aliases=("update",))
@with_flags(StreamFlags)
def edit_stream(
    stream: ExistingName = "",
    config: ConfigFlag = "",
    force: ForceFlag = False,
    interactive: Annotated[
        bool, Option("--interactive", "-i", help="Edit the configuration in $EDITOR")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show the differences")] = False,
    json: JsonFlag = False,
    *,
    flags: StreamFlags,
) -> None:
    """Update a stream after showing the differences and asking for confirmation."""
    with open_catalog() as catalog:
        current = catalog.stream(stream).config
        wanted = current
        if config:
            wanted = read_config(config, StreamConfig)
            if wanted.name and wanted.name != current.name:
                raise CommandError(
                    f"{config}: contains the configuration of Stream {wanted.name!r}"
                )
            wanted = msgspec.structs.replace(wanted, name=current.name)
        if interactive:
            wanted = edit_config(wanted, StreamConfig)
        wanted = with_current_values(apply_flags(wanted, flags), current)
        lines = diff_lines(current, wanted)
        if not lines:
            line("No difference in configuration")
            return
        if not json:
            print_diff(lines)
        if dry_run:
            return
        confirm_or_stop(f"Really edit Stream {current.name}", force=force)
        info = catalog.manager.streams.update(wanted)
    if json:
        print_json(info)
        return
    line(f"Stream {info.config.name} was updated")
    line()
    show_stream(info)


def with_current_values(wanted: StreamConfig, current: StreamConfig) -> StreamConfig:
    """A file may leave out members for which 0 means the default; these stay as they are."""
    changes: dict[str, Any] = {}
    for name in ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size"):
        if getattr(wanted, name) == 0 and getattr(current, name) == -1:
            changes[name] = -1
    for name in ("num_replicas", "duplicate_window"):
        if not getattr(wanted, name):
            changes[name] = getattr(current, name)
    changes["metadata"] = kept_marks(wanted.metadata, current.metadata)
    return msgspec.structs.replace(wanted, **changes)


@app.command("copy", aliases=("cp",))
@with_flags(StreamFlags)
def copy_stream(
    source: Annotated[str, Argument(metavar="SOURCE", autocompletion=complete_stream)],
    destination: Annotated[str, Argument(metavar="DESTINATION")],
    json: JsonFlag = False,
    *,
    flags: StreamFlags,
) -> None:
    """Create a stream with the configuration of another one; messages are not copied."""
    with open_catalog() as catalog:
        base = msgspec.structs.replace(catalog.stream(source).config, name=destination)
        metadata = user_metadata(base.metadata)
        wanted = apply_flags(msgspec.structs.replace(base, metadata=metadata), flags)
        info = catalog.manager.streams.add(wanted)
    if json:
        print_json(info)
        return
    line(f"Stream {destination} was created")
    line()
    show_stream(info)
