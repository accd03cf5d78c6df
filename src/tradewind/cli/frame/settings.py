"""The flags that all commands share: server, login, timeout.

Owns the table of flags with their environment variables, their values, and connecting with them. A
flag overrides the environment, and the environment overrides a context file, as in the `nats`
command line. It never prints a secret.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.output import note, set_wide
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.client.core.connect_options import ConnectSettings
    from tradewind.client.events import Event
    from tradewind.sync import Connection, JetStream, JetStreamManager

DEFAULT_TIMEOUT: Final = "5s"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that every command has. `setting` is the option of `connect` that it sets as it is."""

    name: str
    help: str
    metavar: str = ""  # none: a switch
    env: str = ""
    short: str = ""
    setting: str = ""
    is_path: bool = False

    @property
    def key(self) -> str:
        """The name under which its value is kept."""
        return self.name.replace("-", "_")


FLAGS: Final[tuple[Flag, ...]] = (
    Flag("server", "URLs of NATS servers, separated by commas", "URL", "NATS_URL", "-s"),
    Flag("user", "User name, or a token if there is no password", "USER", "NATS_USER"),
    Flag("password", "Password", "PASSWORD", "NATS_PASSWORD"),
    Flag("token", "Token", "TOKEN", "NATS_TOKEN", setting="token"),
    Flag(
        "creds",
        "File with the credentials of a user",
        "FILE",
        "NATS_CREDS",
        setting="credentials",
        is_path=True,
    ),
    Flag("nkey", "File with an nkey seed", "FILE", "NATS_NKEY", setting="nkey_file", is_path=True),
    Flag("jwt", "JWT of a user, with --seed", "TEXT", "NATS_JWT", setting="user_jwt"),
    Flag("seed", "Nkey seed of a user", "TEXT", "NATS_SEED", setting="nkey_seed"),
    Flag("tlscert", "TLS certificate", "FILE", "NATS_CERT", setting="tls_cert_file", is_path=True),
    Flag("tlskey", "TLS private key", "FILE", "NATS_KEY", setting="tls_key_file", is_path=True),
    Flag(
        "tlsca",
        "TLS certificates of authorities to trust",
        "FILE",
        "NATS_CA",
        setting="tls_ca_file",
        is_path=True,
    ),
    Flag("tlsfirst", "Perform the TLS handshake before INFO"),
    Flag("timeout", f"Time to wait for responses ({DEFAULT_TIMEOUT})", "DURATION", "NATS_TIMEOUT"),
    Flag("socks-proxy", "Not supported", "PROXY", "NATS_SOCKS_PROXY"),
    Flag(
        "js-api-prefix",
        "Subject prefix of the JetStream API",
        "PREFIX",
        "NATS_JS_API_PREFIX",
        setting="jetstream_api_prefix",
    ),
    Flag("js-event-prefix", "Subject prefix of JetStream events", "PREFIX", "NATS_JS_EVENT_PREFIX"),
    Flag(
        "js-domain",
        "JetStream domain",
        "DOMAIN",
        "NATS_JS_DOMAIN",
        setting="jetstream_domain",
    ),
    Flag(
        "inbox-prefix",
        "Prefix of reply subjects",
        "PREFIX",
        "NATS_INBOX_PREFIX",
        setting="inbox_prefix",
    ),
    Flag("connection-name", "Name of this connection on the server", "NAME"),
    Flag("context", "Named set of options, see `tradewind context`", "NAME", "NATS_CONTEXT"),
    Flag("no-context", "Ignore the selected context"),
    Flag("trace", "Show JetStream API requests and responses"),
    Flag("wide", "Show all columns of tables, also those that the terminal has no room for"),
)
_BY_KEY: Final = {flag.key: flag for flag in FLAGS}
_LOGIN_KEYS: Final = ("user", "token", "creds", "nkey", "jwt", "seed")


@dataclass(slots=True)
class Settings:
    """The shared flags of one call; `given` has those of the command line."""

    given: dict[str, str | bool] = field(default_factory=dict, repr=False)
    # Errors that no call has raised, such as a message that may not be published.
    troubles: list[Exception] = field(default_factory=list)

    def text(self, key: str) -> str:
        """The value of a flag, else of its environment variable, else ""."""
        value = self.given.get(key)
        if isinstance(value, str):
            return value
        env = _BY_KEY[key].env
        return os.environ.get(env, "") if env else ""

    def is_on(self, key: str) -> bool:
        """Whether a switch was given."""
        return bool(self.given.get(key))

    @property
    def timeout(self) -> float:
        """How long to wait for an answer, in seconds."""
        text = self.text("timeout") or DEFAULT_TIMEOUT
        timeout_ns = parse_duration_ns(text, "--timeout")
        if timeout_ns <= 0:
            raise CommandError(f"--timeout: more than 0, not {text!r}")
        return timeout_ns / SECOND_NS

    @property
    def event_prefix(self) -> str:
        """The subject prefix of JetStream's advisories and metrics."""
        return self.text("js_event_prefix") or "$JS.EVENT"

    @property
    def context(self) -> str | None:
        """The context to use: the one that is named, else the selected one; None if there is none.

        The empty string stands for the selected one.
        """
        if self.is_on("no_context"):
            return None
        from tradewind.client.core.contexts import selected_context

        return self.text("context") or ("" if selected_context() else None)

    def for_programs(self) -> tuple[list[str], dict[str, str]]:
        """The arguments and environment with which another program connects as this call does.

        Values go into the environment, because other users can see the arguments of a process.
        """
        words: list[str] = []
        environment: dict[str, str] = {}
        for flag in FLAGS:
            value = self.given.get(flag.key)
            if isinstance(value, str) and flag.env:
                path = str(Path(value).expanduser().absolute())
                environment[flag.env] = path if flag.is_path and value else value
            elif value is True and flag.key not in ("trace", "wide"):
                words.append(f"--{flag.name}")
        return words, environment

    @property
    def servers(self) -> str | None:
        """The URLs of the servers; None for those of the context, or the default.

        A login on the command line counts more than one in a URL.
        """
        given = self.text("server")
        if not any(key in self.given for key in _LOGIN_KEYS):
            return given or None
        if not given and self.context is not None:
            from tradewind.client.core.contexts import load_context

            known = load_context(self.context).servers
            given = known if isinstance(known, str) else ",".join(known)
        return ",".join(_without_login(url) for url in given.split(",")) or None

    def connect_settings(self) -> ConnectSettings:
        """The arguments of `connect` that the flags and the environment give."""
        if self.text("socks_proxy"):
            raise CommandError("--socks-proxy: not supported; use a tunnel and --server")
        settings: ConnectSettings = {
            "name": self.text("connection_name") or "tradewind CLI",
            "timeout": self.timeout,
            "connect_timeout": self.timeout,
        }
        for flag in FLAGS:
            if flag.setting and (value := self.text(flag.key)):
                settings[flag.setting] = (  # type: ignore[literal-required]
                    str(Path(value).expanduser()) if flag.is_path else value
                )
        user, password = self.text("user"), self.text("password")
        if user and password:
            settings |= {"user": user, "password": password}
        elif user:
            settings["token"] = user
        elif password:
            raise CommandError("--password requires --user")
        if self.is_on("tlsfirst"):
            settings["tls_handshake_first"] = True
        if self.is_on("trace"):
            settings["on_api_call"] = _trace
        return settings


_current: ContextVar[Settings] = ContextVar("tradewind_cli_settings")


def _without_login(url: str) -> str:
    """A URL without a user name and a password."""
    login, at, place = url.strip().rpartition("@")
    scheme, separator, _ = login.partition("://")
    return f"{scheme}{separator}{place}" if at and separator else place


def begin() -> None:
    """A new call: nothing is given yet."""
    _current.set(Settings())
    set_wide(False)


def current() -> Settings:
    """The settings of this call."""
    return _current.get()


def connect() -> Connection:
    """A connection to the server that flags, environment and context name; use it with `with`."""
    from tradewind.sync import connect as connect_blocking

    settings = current()
    made = settings.connect_settings()
    made["on_event"] = partial(_on_event, settings)
    return connect_blocking(settings.servers, context=settings.context, **made)


def _on_event(settings: Settings, event: Event) -> None:
    from tradewind.client.events import Closed, Connected, ErrorEvent

    if isinstance(event, ErrorEvent):
        settings.troubles.append(event.error)
    elif not isinstance(event, Connected | Closed):
        note(str(event))


def jetstream(connection: Connection) -> JetStream:
    """JetStream as the flags say: domain and prefix are in the connection's options."""
    return connection.jetstream()


def manager(connection: Connection) -> JetStreamManager:
    """The manager of streams and consumers, as the flags say."""
    return connection.jetstream_manager()


def _trace(subject: str, request: bytes, answer: bytes) -> None:
    """Shows a request on the error output, so that --json stays clean."""
    note(f">>> {subject}\n{request.decode(errors='replace')}")
    note(f"<<< {answer.decode(errors='replace')}\n")
