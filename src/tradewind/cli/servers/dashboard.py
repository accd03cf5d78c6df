"""`tradewind dashboard`: streams, messages and consumers in a browser.

Owns the flags; `tradewind.dashboard` does the work. It connects with the shared flags, like any
other command.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from tradewind.cli.frame.frame import CommandApp, Option
from tradewind.cli.frame.output import flush, line
from tradewind.cli.frame.settings import current

if TYPE_CHECKING:
    from tradewind.client.core.connect_options import ConnectOptions
    from tradewind.dashboard.data.runs import LaunchCommand

app = CommandApp("View and manage a server in a browser")


OtherContexts = Annotated[
    list[str] | None,
    Option(
        "--also",
        help="Context that visitors can switch to; may be repeated",
        metavar="CONTEXT",
        show_default=False,
    ),
]


@app.command()
def dashboard(
    host: Annotated[
        str, Option("--host", help="Address to listen on; beyond loopback a login is required")
    ] = "127.0.0.1",
    port: Annotated[
        int, Option("--port", "-p", help="Port; 0 for any free port", min=0, max=65535)
    ] = 8280,
    read_only: Annotated[bool, Option("--read-only", help="Disable all changes")] = False,
    login: Annotated[bool, Option("--login", help="Require a login on loopback too")] = False,
    https_cert: Annotated[
        str, Option("--https-cert", help="Certificate for browsers", metavar="FILE")
    ] = "",
    https_key: Annotated[
        str, Option("--https-key", help="Private key of the certificate", metavar="FILE")
    ] = "",
    plain_http: Annotated[bool, Option("--plain-http", help="Allow plain HTTP")] = False,
    allow_host: Annotated[
        list[str] | None,
        Option("--allow-host", help="Additional host name that browsers use", show_default=False),
    ] = None,
    pipelines: Annotated[
        list[str] | None,
        Option(
            "--pipelines",
            help="Pipeline file, or folder of such files, to show; may be repeated",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    also: OtherContexts = None,
    history: Annotated[
        str, Option("--history", help="File for the charts of a day", metavar="FILE")
    ] = "",
    allow_run: Annotated[
        bool,
        Option("--allow-run", help="Let all visitors run pipelines and SQL on this machine"),
    ] = False,
) -> None:
    """Show streams, messages, consumers and buckets in a browser, until Ctrl-C.

    The connection flags apply: --context, --server, --creds and so on. With a login, each visitor
    enters NATS credentials, and the server decides what they may see and do.
    """
    from tradewind.dashboard.web.serving import Dashboard, DashboardSettings

    made = Dashboard(
        DashboardSettings(
            options=connect_options(),
            host=host,
            port=port,
            is_read_only=read_only,
            needs_login=login,
            https_cert_file=https_cert,
            https_key_file=https_key,
            allow_plain_http=plain_http,
            allowed_hosts=tuple(allow_host or ()),
            pipelines=tuple(pipelines or ()),
            allow_run=allow_run,
            history_path=history,
            contexts=_contexts(also or []),
            launching=_launching(),
        )
    )

    def tell() -> None:
        line(f"The dashboard is on {made.url} (Ctrl-C stops it)")
        flush()

    asyncio.run(made.run_async(tell))


def _contexts(names: list[str]) -> dict[str, ConnectOptions]:
    """The options of the contexts that visitors can switch to."""
    from tradewind.client.core.connect_options import make_options
    from tradewind.client.core.contexts import load_context

    named = {"name": "tradewind dashboard"}
    return {name: make_options(load_context(name), named) for name in names}


def _launching() -> LaunchCommand:
    """How programs are started that connect as this one does; logins are not among their words."""
    from tradewind.dashboard.data.runs import PROGRAM, LaunchCommand

    words, environment = current().for_programs()
    return LaunchCommand((*PROGRAM, *words), environment)


def connect_options() -> ConnectOptions:
    """The options of a connection that flags, environment and context give."""
    from tradewind.client.core.connect_options import ConnectOptions, make_options
    from tradewind.client.core.contexts import load_context

    settings = current()
    context = settings.context
    base = ConnectOptions() if context is None else load_context(context)
    made = settings.connect_settings()
    if not settings.text("connection_name"):
        made["name"] = "tradewind dashboard"
    options = make_options(base, made)
    servers = settings.text("server")
    return make_options(options, {"servers": servers}) if servers else options
