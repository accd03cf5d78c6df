"""`tradewind export`: writes the state of a server as a file for `tradewind apply`.

Owns the command only; `declared` creates the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tradewind.cli.frame.failures import CommandError, near
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import json_text, note, write_text
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, manager
from tradewind.client.errors import PermissionsError

if TYPE_CHECKING:
    from tradewind.cli.declared.apply_plan import LiveThing
    from tradewind.cli.declared.declaration_files import Thing

app = CommandApp("Export the configuration as a file for `apply`")


@app.command()
def export(
    names: Annotated[list[str] | None, Argument(metavar="[STREAM]...", show_default=False)] = None,
    output: Annotated[str, Option("--output", "-o", help="File to write")] = "",
    force: Annotated[bool, Option("--force", help="Overwrite the file without asking")] = False,
    json: JsonFlag = False,
) -> None:
    """Export streams, consumers and buckets as a file for `apply`; all of them, or some streams."""
    from tradewind.cli.declared.declaration_files import as_file, yaml_text
    from tradewind.cli.declared.live_objects import read_server, read_templates

    with connect() as connection:
        found = read_server(manager(connection))
        if connection.info.tradewind and not names:
            try:
                found |= read_templates(manager(connection))
            except PermissionsError:
                note("templates are left out: this login may not list them")
    known = {thing.stream for thing in found if thing.stream}
    for name in names or ():
        if name not in known:
            raise CommandError(f"stream {name!r} does not exist{near(name, known)}")
    content = as_file(
        {
            thing: each.written
            for thing, each in found.items()
            if not thing.name.startswith("$")
            and (thing.stream in names if names else not _is_made(thing, found))
        }
    )
    text = json_text(content) + "\n" if json else yaml_text(content)
    if not output:
        write_text(text)
        return
    _write(Path(output), text, force=force)
    note(f"wrote {output}")


def _is_made(thing: Thing, found: Mapping[Thing, LiveThing]) -> bool:
    """Whether a template has made it, or its stream: the template is what is written."""
    owner = found.get(replace(thing, consumer=""))
    return owner is not None and owner.is_made


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write the whole file or nothing: a program may be reading it, or the disk may be full."""
    if path.exists():
        confirm_or_stop(f"Really overwrite {path}", force=force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
