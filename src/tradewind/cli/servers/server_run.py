"""`tradewind server run`: starts a server for trying things out.

Owns the configuration of that server and the contexts for it; the server itself is
`tradewind-server`, with all its flags after `--`.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Annotated, Final

from tradewind.cli.frame import context_files
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, Option
from tradewind.cli.frame.output import Columns, flush
from tradewind.own_addresses import address_text

DEFAULT_NAME: Final = "development"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")

_CONFIG: Final = """\
# Written by `tradewind server run {name}`; rewritten at every start.
server_name: "{name}"
listen: "{listen}"
accounts {{
  USER {{
    {jetstream}
    users: [{{user: local, password: "{password}"}}]
  }}
  SYSTEM {{ users: [{{user: system, password: "{system_password}"}}] }}
}}
system_account: SYSTEM
no_auth_user: local
{storage}
"""


def data_folder(name: str) -> Path:
    """Where the server of a name keeps its data."""
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "tradewind" / name


def run(
    name: Annotated[str, Argument(help="Name of the server")] = DEFAULT_NAME,
    more: Annotated[
        list[str] | None,
        Argument(help="Flags for tradewind-server, after --", show_default=False),
    ] = None,
    jetstream: Annotated[
        bool, Option("--jetstream/--no-jetstream", help="Enable JetStream")
    ] = True,
    host: Annotated[str, Option("--host", help="Address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, Option("--port", "-p", min=-1, max=65535, help="Port; -1 for any free port")
    ] = 4222,
    store_dir: Annotated[
        str, Option("--store-dir", "-sd", help="Folder for JetStream data", metavar="FOLDER")
    ] = "",
    config: Annotated[
        str, Option("--config", "-c", help="Use this configuration file instead", metavar="FILE")
    ] = "",
    clean: Annotated[bool, Option("--clean", help="Remove the contexts on exit")] = False,
    debug: Annotated[bool, Option("--debug", "-D", help="Log more")] = False,
    verbose: Annotated[bool, Option("--verbose", "-V", help="Log everything")] = False,
) -> int:
    """Run a server in this terminal until Ctrl-C.

    Clients need no login. Messages are stored in your home folder and survive a restart. Two
    contexts connect to the server: `nats_NAME`, and `nats_NAME_system` for `tradewind server ls`
    and `tradewind top`.
    """
    from tradewind.server.lifecycle.command import run_command

    flags = [*(["-D"] if debug else []), *(["-V"] if verbose else []), *(more or [])]
    if config:
        return run_command(["-c", config, *flags])
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"{name!r} cannot be the name of a server: letters, digits, '-' and '_'",
            exit_code=EXIT_USAGE,
        )
    folder = data_folder(name)
    storage = Path(store_dir) if store_dir else folder
    logins = {"local": secrets.token_urlsafe(12), "system": secrets.token_urlsafe(12)}
    place = address_text(host, port)
    path = folder / "server.conf"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text(
        _CONFIG.format(
            name=name,
            listen=place,
            jetstream="jetstream: enabled" if jetstream else "",
            storage=f'jetstream {{ store_dir: "{storage}" }}' if jetstream else "",
            password=logins["local"],
            system_password=logins["system"],
        )
    )
    contexts = _save_contexts(name, f"nats://{place}", logins) if port > 0 else []
    _show(name, place, path, storage if jetstream else None, contexts)
    try:
        return run_command(["-c", str(path), *flags])
    finally:
        if clean:
            for context in contexts:
                context_files.remove(context)


def _save_contexts(name: str, url: str, logins: dict[str, str]) -> list[str]:
    names = []
    for user, suffix in (("local", ""), ("system", "_system")):
        context = f"nats_{name}{suffix}"
        context_files.save(
            context,
            {
                "description": f"{user.capitalize()} user of the server {name}",
                "url": url,
                "user": user,
                "password": logins[user],
            },
        )
        names.append(context)
    return names


def _show(name: str, address: str, path: Path, storage: Path | None, contexts: list[str]) -> None:
    columns = Columns(f"Starting the server {name!r}")
    columns.row("Address", address)
    columns.row("Configuration", str(path))
    columns.row("Messages", str(storage) if storage else "not stored (--jetstream)")
    for label, context in zip(("User Context", "System Context"), contexts, strict=False):
        columns.row(label, context)
    columns.print()
    flush()
