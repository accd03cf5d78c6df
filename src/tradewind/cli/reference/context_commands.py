"""`tradewind context`: named sets of options, shared with the `nats` tool.

Owns the commands; the files are in `context_files.py`. Secrets are never shown, only stars.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from tradewind.cli.frame import context_files
from tradewind.cli.frame.completion import complete_context
from tradewind.cli.frame.editor import run_editor
from tradewind.cli.frame.failures import CommandError, near
from tradewind.cli.frame.frame import Argument, AskFlag, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.json_input import read_json
from tradewind.cli.frame.output import Columns, Table, line, print_json, styled
from tradewind.cli.frame.prompts import choose, confirm_or_stop
from tradewind.cli.frame.questions import Dialog
from tradewind.cli.frame.settings import FLAGS, current
from tradewind.cli.reference.context_questions import LOGIN_FIELDS, context_questions
from tradewind.client.core.contexts import load_context
from tradewind.errors import TradewindError

app = CommandApp("Manage connection contexts")

NameArgument = Annotated[
    str,
    Argument(help="Context name", show_default=False, autocompletion=complete_context),
]
DescriptionFlag = Annotated[str | None, Option("--description", help="Description")]
SelectFlag = Annotated[bool, Option("--select", help="Select the new context")]
NscFlag = Annotated[str | None, Option("--nsc", help="URL kept for other tools", metavar="URL")]
ConnectFlag = Annotated[bool, Option("--connect", help="Also try to connect")]

# The fields of a context that shared flags set, by flag.
_FIELDS: Final = {
    "server": "url",
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "jwt": "user_jwt",
    "seed": "user_seed",
    "tlscert": "cert",
    "tlskey": "key",
    "tlsca": "ca",
    "socks_proxy": "socks_proxy",
    "js_domain": "jetstream_domain",
    "js_api_prefix": "jetstream_api_prefix",
    "js_event_prefix": "jetstream_event_prefix",
    "inbox_prefix": "inbox_prefix",
}
_LABELS: Final = {
    "description": "Description",
    "url": "Server URLs",
    "socks_proxy": "SOCKS5 Proxy",
    "user": "Username",
    "password": "Password",
    "token": "Token",
    "creds": "Credentials",
    "nkey": "NKey",
    "user_jwt": "User JWT",
    "user_seed": "User Seed",
    "cert": "Certificate",
    "key": "Key",
    "ca": "CA",
    "nsc": "NSC Lookup",
    "jetstream_api_prefix": "JS API Prefix",
    "jetstream_event_prefix": "JS Event Prefix",
    "jetstream_domain": "JS Domain",
    "inbox_prefix": "Inbox Prefix",
    "color_scheme": "Color Scheme",
}
# In an url: what follows the user's name, or a token in its place.
_PASSWORD: Final = re.compile(r"(?<=//)[^:@/,]+(?=@)|(?<=:)[^:@/,]+(?=@)")
_FILES: Final = frozenset({"creds", "nkey", "cert", "key", "ca"})


@app.command("add", aliases=("save", "create"))
def add(
    name: NameArgument = "",
    description: DescriptionFlag = None,
    select: SelectFlag = False,
    nsc: NscFlag = None,
    ask_for_all: AskFlag = False,
) -> None:
    """Create or update a context from --server, --user, --creds and other connection flags.

    On a terminal, prompts if the name is missing, or with --ask.
    """
    base = context_files.load(name) if name and context_files.exists(name) else {}
    answers: dict[str, Any] = {}
    if ask_for_all or not name:
        answers = _ask(name, base, description)
        name = name or answers["name"]
    if answers.get("description"):
        description = answers["description"]
    _save(name, _with_login(base, answers), description=description, select=select, nsc=nsc)


@app.command("copy", aliases=("cp",))
def copy(
    source: Annotated[str, Argument(help="Context to copy")],
    name: NameArgument,
    description: DescriptionFlag = None,
    select: SelectFlag = False,
    nsc: NscFlag = None,
) -> None:
    """Copy a context; flags change the copy."""
    if context_files.exists(name):
        raise CommandError(f"context {name!r} already exists", f"remove it:  context rm {name}")
    _save(name, _load(source), description=description, select=select, nsc=nsc)


@app.command("edit", aliases=("vi",))
def edit(name: NameArgument) -> None:
    """Edit a context in your editor."""
    before = context_files.save_text(_load(name))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        path.touch(0o600)
        path.write_bytes(before)
        run_editor(str(path))
        changed = path.read_bytes()
    fields = read_json(changed, "the edited text; nothing was changed", dict[str, Any])
    context_files.save(name, fields)
    try:
        load_context(name)
    except TradewindError as error:
        context_files.save(name, msgspec.json.decode(before, type=dict[str, Any]))
        raise CommandError(f"{error}; nothing was changed") from None
    _show(name, connect=False)


@app.command("ls", aliases=("list", "l"))
def list_contexts(
    names: Annotated[bool, Option("--names", "-n", help="Show only names")] = False,
    json: JsonFlag = False,
) -> None:
    """List contexts; a star marks the selected one."""
    known = context_files.names()
    if names:
        if json:
            print_json(known)
            return
        for name in known:
            line(name)
        return
    loaded = {name: context_files.load(name) for name in known}
    if json:
        print_json([{"name": name, **_masked(fields)} for name, fields in loaded.items()])
        return
    if not loaded:
        line("No known contexts")
        return
    selected = context_files.selected()
    table = Table("Known Contexts", "Name", "Description", shorten=("Description",))
    for name, fields in loaded.items():
        table.row(f"{name}*" if name == selected else name, fields.get("description", ""))
    table.print()


@app.command("rm", aliases=("remove",))
def remove(name: NameArgument, force: ForceFlag = False) -> None:
    """Remove a context."""
    _load(name)
    confirm_or_stop(f"Really delete context {name!r}", force=force)
    context_files.remove(name)


@app.command("select", aliases=("switch", "set"))
def select(name: NameArgument = "") -> None:
    """Select the default context."""
    if not name:
        known = context_files.names()
        if not known:
            raise CommandError("no contexts exist", "create one: tradewind context add NAME")
        name = choose("Select a Context", known, context_files.selected(), flag="its name")
    _load(name)
    context_files.select(name)
    _show(name, connect=False)


@app.command("unselect")
def unselect() -> None:
    """Clear the default context."""
    context_files.unselect()


@app.command("previous", aliases=("-",))
def previous() -> None:
    """Select the previous context."""
    name = context_files.previous()
    if not name:
        raise CommandError("no context was selected before", "choose one:  context select NAME")
    _load(name)
    context_files.select(name)
    _show(name, connect=False)


@app.command("info", aliases=("show", "view", "v"))
def info(name: NameArgument = "", connect: ConnectFlag = False, json: JsonFlag = False) -> int:
    """Show a context; the selected one if omitted."""
    name = name or context_files.selected()
    if not name:
        raise CommandError(
            "no context is selected and none is named", "choose one:  context select NAME"
        )
    if json:
        print_json({"name": name, **_masked(_load(name))})
        return 0
    return _show(name, connect=connect)


@app.command("validate")
def validate(name: NameArgument = "", connect: ConnectFlag = False) -> int:
    """Validate one context or all of them; with --connect, also connect."""
    worst = 0
    for each in [name] if name else context_files.names():
        try:
            worst = max(worst, _show(each, connect=connect))
        except TradewindError as error:
            line(f"Could not load {each}: {styled(str(error), 'red')}\n")
            worst = 1
    return worst


# ------------------------------------------------------------------ inside


def _ask(name: str, base: dict[str, Any], description: str | None) -> dict[str, Any]:
    """The answers to what the name and the flags of the connection leave open."""
    given = current().given
    known = {_FIELDS[key]: value for key, value in given.items() if key in _FIELDS}
    if known.keys() & set(LOGIN_FIELDS):
        known["login"] = "flags"
    if name:
        known["name"] = name
    if description is not None:
        known["description"] = description
    dialog = Dialog(context_questions(base), known)
    dialog.check()
    return dialog.ask()


def _with_login(base: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    """The fields with the address and the login that were asked for; another login goes."""
    if "login" not in answers:
        return base | {key: answers[key] for key in ("url",) if key in answers}
    fields = {key: value for key, value in base.items() if key not in LOGIN_FIELDS}
    asked = ("url", *LOGIN_FIELDS)
    return fields | {key: answers[key] for key in asked if answers.get(key)}


def _load(name: str) -> dict[str, Any]:
    if not context_files.exists(name):
        known = context_files.names()
        there = ", ".join(known) or "none"
        raise CommandError(
            f"context {name!r} does not exist{near(name, known)} (available: {there})",
            f"create it: tradewind context add {name} --server URL",
        )
    return context_files.load(name)


def _save(
    name: str,
    base: dict[str, Any],
    *,
    description: str | None,
    select: bool,
    nsc: str | None,
) -> None:
    given = current().given
    fields = dict(base)
    for flag in FLAGS:
        if flag.key in given and flag.key in _FIELDS:
            fields[_FIELDS[flag.key]] = given[flag.key]
    if given.get("tlsfirst"):
        fields["tls_first"] = True
    if "user" in given and "password" not in given and not fields.get("password"):
        fields |= {"token": fields["user"], "user": ""}
    if description is not None:
        fields["description"] = description
    if nsc is not None:
        fields["nsc"] = nsc
    context_files.save(name, fields)
    if select:
        context_files.select(name)
    _show(name, connect=False)


def _masked(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a context, those with secrets as stars."""
    masked = {
        key: "*" * 8 if key in context_files.SECRETS and value else value
        for key, value in fields.items()
    }
    if isinstance(url := masked.get("url"), str):
        masked["url"] = _PASSWORD.sub("*" * 8, url)
    return masked


def _show(name: str, *, connect: bool) -> int:
    """Print a context; the exit code says whether it can be used."""
    fields = _masked(_load(name))
    worst = 0
    columns = Columns(f'NATS Configuration Context "{name}"')
    for key, label in _LABELS.items():
        value = fields.get(key)
        if not value:
            continue
        if key in _FILES:
            readable = os.access(Path(value).expanduser(), os.R_OK)
            worst = worst if readable else 1
            mark = styled("OK", "green") if readable else styled("ERROR", "red")
            value = f"{value} ({mark})"
        columns.row(label, value)
    if fields.get("tls_first"):
        columns.row("TLS First", value=True)
    columns.row("Path", str(context_files.path_of(name)))
    if connect:
        problem = _try_connection(name)
        worst = 1 if problem else worst
        columns.row("Connection", styled(problem, "red") if problem else styled("OK", "green"))
    columns.print()
    return worst


def _try_connection(name: str) -> str:
    """The error of a connection with a context; empty if it works."""
    from tradewind.sync import connect as connect_blocking

    try:
        with connect_blocking(context=name, connect_timeout=current().timeout):
            return ""
    except TradewindError as error:
        return str(error)
