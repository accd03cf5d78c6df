"""`tradewind server generate`: creates a server configuration from prompts.

Owns the prompts and the text. The file is checked as by `tradewind-server -t` before it takes its
place, so a server can always start with it. It contains hashes of passwords; the passwords
themselves are printed once.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, Option
from tradewind.cli.frame.output import Columns, flush, note, write_text
from tradewind.cli.frame.prompts import ask, ask_value, can_ask, choose, confirm, confirm_or_stop
from tradewind.cli.frame.text_formats import parse_size
from tradewind.own_addresses import address_text
from tradewind.systemd import ServiceUnit

LOGINS: Final = ("none", "user", "token", "accounts")
_LOGIN_HELP: Final = "none, user, token, or accounts (one user each, and a system account)"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_BCRYPT_ROUNDS: Final = 11
_STANDARD_OUTPUT: Final = "-"
# What the unit keeps from the service: ProtectHome, PrivateTmp.
UNIT_HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108


class ServerAnswers(msgspec.Struct):
    """The answers to the questions. None: not answered yet."""

    name: str | None = None
    host: str | None = None
    port: int | None = None
    monitor_port: int | None = None
    jetstream: bool | None = None
    store_dir: str | None = None
    max_storage: str | None = None
    login: str | None = None
    accounts: list[str] | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None


def generate(
    file: Annotated[str, Argument(help="File to write; - for standard output")] = "server.conf",
    name: Annotated[str, Option("--name", help="Name of the server", metavar="NAME")] = "",
    host: Annotated[str, Option("--host", help="Address to listen on", metavar="HOST")] = "",
    port: Annotated[
        int | None, Option("--port", "-p", min=0, max=65535, help="Port for clients")
    ] = None,
    monitor_port: Annotated[
        int | None,
        Option(
            *("--monitor-port", "-m"),
            min=0,
            max=65535,
            help="Port of the monitoring pages; 0 for none",
        ),
    ] = None,
    jetstream: Annotated[
        bool | None, Option("--jetstream/--no-jetstream", help="Store messages")
    ] = None,
    store_dir: Annotated[
        str, Option("--store-dir", "-sd", help="Folder for messages", metavar="FOLDER")
    ] = "",
    max_storage: Annotated[
        str, Option("--max-storage", help="Storage limit, such as 10G", metavar="SIZE")
    ] = "",
    login: Annotated[str, Option("--login", help=_LOGIN_HELP, metavar="KIND")] = "",
    account: Annotated[
        list[str] | None, Option("--account", help="Account; may be repeated")
    ] = None,
    tls_cert: Annotated[str, Option("--tls-cert", help="Certificate (PEM)", metavar="FILE")] = "",
    tls_key: Annotated[
        str, Option("--tls-key", help="Private key of the certificate", metavar="FILE")
    ] = "",
    tls_ca: Annotated[
        str, Option("--tls-ca", help="CA of the client certificates", metavar="FILE")
    ] = "",
    systemd: Annotated[
        bool, Option("--systemd", help="Also write a systemd unit next to the file")
    ] = False,
    defaults: Annotated[bool, Option("--defaults", help="Do not prompt")] = False,
    force: Annotated[bool, Option("--force", "-f", help="Overwrite an existing file")] = False,
) -> None:
    """Write a configuration file interactively.

    Settings that are given as flags are not asked for; with --defaults, nothing is. The file is
    validated before it is written. Generated passwords are printed once; the file has only hashes.
    """
    answers = ServerAnswers(
        name=name or None,
        host=host or None,
        port=port,
        monitor_port=monitor_port,
        jetstream=jetstream,
        store_dir=store_dir or None,
        max_storage=max_storage or None,
        login=login or ("accounts" if account else None),
        accounts=account,
        tls_cert=tls_cert or None,
        tls_key=tls_key or None,
        tls_ca=tls_ca or None,
    )
    path = _target(file, force=force)
    _complete(answers, asks=not defaults)
    text, logins = configuration(answers)
    if systemd and path is None:
        raise CommandError("--systemd requires a file, not standard output", exit_code=EXIT_USAGE)
    _check_and_write(text, path)
    if systemd and path is not None:
        _write_unit(path.absolute(), answers)
    _show(path, answers, logins)


# ---------------------------------------------------------------- questions


def _target(file: str, *, force: bool) -> Path | None:
    """The path of the file, None for standard output; replacing a file must be confirmed."""
    if file == _STANDARD_OUTPUT:
        return None
    path = Path(file).expanduser()
    if path.exists():
        if not force and not can_ask():
            raise CommandError(f"{path} exists; replace it with --force", exit_code=EXIT_USAGE)
        confirm_or_stop(f"Replace {path}", force=force)
    return path


def _complete(answers: ServerAnswers, *, asks: bool) -> None:
    """Ask what is not answered, or take the defaults."""
    if answers.name is None:
        answers.name = (
            ask_value(
                *("Server Name", _name, "nats"),
                flag="--name",
                help_text="What reports and other servers call it: letters, digits, '-' and '_'.",
            )
            if asks
            else "nats"
        )
    _name(answers.name)
    if answers.host is None:
        answers.host = _asked("Listen on", "127.0.0.1", "--host", asks=asks)
    if answers.port is None:
        answers.port = _asked_port("Client Port", "4222", "--port", asks=asks)
    if answers.monitor_port is None:
        question = "Monitoring Port, 0 for none"
        answers.monitor_port = _asked_port(question, "8222", "--monitor-port", asks=asks)
    if answers.jetstream is None:
        answers.jetstream = (
            confirm("Store messages with JetStream", default=True, flag="--jetstream")
            if asks
            else True
        )
    if answers.jetstream:
        if answers.store_dir is None:
            folder = f"./{answers.name}-data"
            answers.store_dir = _asked("Folder for messages", folder, "--store-dir", asks=asks)
        if answers.max_storage is None:
            question = "Storage limit"
            answers.max_storage = (
                ask_value(
                    *(question, _storage, "unlimited"),
                    flag="--max-storage",
                    help_text="How much all streams may store, such as 10GB.",
                )
                if asks
                else "unlimited"
            )
    _complete_login(answers, asks=asks)
    _complete_tls(answers, asks=asks)


def _complete_login(answers: ServerAnswers, *, asks: bool) -> None:
    if answers.login is None:
        answers.login = choose("Login", LOGINS, "user", flag="--login") if asks else "user"
    if answers.login not in LOGINS:
        raise CommandError(
            f"--login: one of {', '.join(LOGINS)}, not {answers.login!r}", exit_code=EXIT_USAGE
        )
    if answers.login == "accounts" and not answers.accounts:
        names = _asked("Accounts, separated by blanks", "APP", "--account", asks=asks)
        answers.accounts = names.split()
    for name in answers.accounts or ():
        if not _NAME.fullmatch(name) or name in ("SYS", "$SYS", "$G"):
            raise CommandError(
                f"--account: {name!r} cannot be the name of an account here",
                exit_code=EXIT_USAGE,
            )


def _complete_tls(answers: ServerAnswers, *, asks: bool) -> None:
    if answers.tls_cert is None and asks and not answers.tls_key:
        answers.tls_cert = ask("TLS Certificate, Enter for none", "", flag="--tls-cert")
    if answers.tls_cert and not answers.tls_key:
        answers.tls_key = _asked("Its private key", "", "--tls-key", asks=asks)
    if not answers.tls_cert and (answers.tls_key or answers.tls_ca):
        raise CommandError("--tls-key and --tls-ca need --tls-cert", exit_code=EXIT_USAGE)


def _asked(question: str, default: str, flag: str, *, asks: bool) -> str:
    return ask(question, default, flag=flag) if asks else default


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise CommandError(
            f"--name must have only letters, digits, '-' and '_', not {text!r}",
            exit_code=EXIT_USAGE,
        )
    return text


def _storage(text: str) -> str:
    if text != "unlimited":
        parse_size(text, "--max-storage")
    return text


def _asked_port(question: str, default: str, flag: str, *, asks: bool) -> int:
    if not asks:
        return int(default)
    return ask_value(question, _port, default, flag=flag)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:9]) > 65535:
        raise CommandError(f"must be a port from 0 to 65535, not {text!r}")
    return int(text)


# ---------------------------------------------------------------- the text


def configuration(answers: ServerAnswers) -> tuple[str, list[tuple[str, str]]]:
    """The file, and the logins in it with their passwords, which the file does not have."""
    lines = [
        "# Written by `tradewind server generate`. Check changes with: tradewind-server -t -c FILE",
        f"server_name: {_quoted(answers.name)}",
        f"host: {_quoted(answers.host)}",
        f"port: {answers.port}",
    ]
    if answers.monitor_port:
        lines.append("# The pages have no login: on this machine only.")
        lines.append(f'http: "127.0.0.1:{answers.monitor_port}"')
    if answers.jetstream:
        lines += ["jetstream {", f"  store_dir: {_quoted(answers.store_dir)}"]
        if answers.max_storage not in ("", "unlimited", None):
            lines.append(f"  max_file_store: {_quoted(answers.max_storage)}")
        lines.append("}")
    if answers.tls_cert:
        lines += ["tls {", f"  cert_file: {_quoted(answers.tls_cert)}"]
        lines.append(f"  key_file: {_quoted(answers.tls_key)}")
        if answers.tls_ca:
            lines += [f"  ca_file: {_quoted(answers.tls_ca)}", "  verify: true"]
        lines.append("}")
    logins: list[tuple[str, str]] = []
    lines += _login_lines(answers, logins)
    return "\n".join(lines) + "\n", logins


def _login_lines(answers: ServerAnswers, logins: list[tuple[str, str]]) -> list[str]:
    if answers.login == "user":
        user = _new_user("user", logins)
        return ["authorization {", f"  users: [ {user} ]", "}"]
    if answers.login == "token":
        token = secrets.token_urlsafe(18)
        logins.append(("token", token))
        return ["authorization {", f"  token: {_quoted(_hashed(token))}", "}"]
    if answers.login != "accounts":
        return []
    lines = ["accounts {"]
    for name in dict.fromkeys(answers.accounts or ()):
        lines.append(f"  {name} {{")
        if answers.jetstream:
            lines.append("    jetstream: enabled")
        lines += [f"    users: [ {_new_user(name.lower(), logins)} ]", "  }"]
    lines.append(f"  SYS {{ users: [ {_new_user('system', logins)} ] }}")
    return [*lines, "}", "system_account: SYS"]


def _new_user(name: str, logins: list[tuple[str, str]]) -> str:
    if any(name == used for used, _ in logins):
        raise CommandError(f"--account: two accounts would have the user {name!r}")
    password = secrets.token_urlsafe(18)
    logins.append((name, password))
    return f"{{ user: {_quoted(name)}, password: {_quoted(_hashed(password))} }}"


def _hashed(secret: str) -> str:
    import bcrypt

    return bcrypt.hashpw(secret.encode(), bcrypt.gensalt(_BCRYPT_ROUNDS)).decode()


def _quoted(text: Any) -> str:
    """A string of the configuration; it has no way to write some characters."""
    value = str(text)
    if any(not one.isprintable() or one in '"\\' for one in value):
        raise CommandError(
            f"{value!r}: a configuration file cannot hold quotes, backslashes or control characters"
            " here",
            exit_code=EXIT_USAGE,
        )
    return f'"{value}"'


# ---------------------------------------------------------------- writing


def _check_and_write(text: str, path: Path | None) -> None:
    """Put the file into its place when a server would start with it."""
    folder = Path() if path is None else path.parent
    trial = folder / f".{'stdout' if path is None else path.name}.{os.getpid()}.new"
    try:
        trial.touch(0o600)
        trial.write_text(text)
        _check(trial)
        if path is not None:
            trial.replace(path)
            return
    except OSError as error:
        raise CommandError(f"{path or folder}: {error.strerror}") from None
    finally:
        trial.unlink(missing_ok=True)
    write_text(text)
    flush()


def _check(path: Path) -> None:
    from tradewind.errors import ConfigError, ServerStartError
    from tradewind.server.config.checks import check_options
    from tradewind.server.config.load import load_config_file

    try:
        loaded = load_config_file(str(path))
        check_options(loaded.options)
    except (ConfigError, ServerStartError) as error:
        reason = str(error).replace(f"{path}:", "line ")
        raise CommandError(
            f"a server would not start with this configuration; nothing was written: {reason}"
        ) from None
    if loaded.warnings:
        raise CommandError(f"nothing was written: {loaded.warnings[0]}")


def _write_unit(path: Path, answers: ServerAnswers) -> None:
    """A hardened unit that starts the server with this file, as the user `tradewind`."""
    unit = ServiceUnit(
        description=f"Tradewind server {answers.name}",
        command=f"{Path(sys.executable).parent / 'tradewind-server'} -c {path}",
        store=str(Path(answers.store_dir or path.parent).absolute()),
        user="tradewind",
        type="notify",
    )
    path.with_suffix(".service").write_text(unit.text())
    for step in (
        "useradd --system --shell /usr/sbin/nologin tradewind",
        f"install --directory --owner tradewind --group tradewind --mode 0700 {unit.store}",
        f"chown tradewind: {path}",
        f"cp {path.with_suffix('.service')} /etc/systemd/system/",
        f"systemctl enable --now {path.stem}",
    ):
        note(f"as root: {step}")
    for what, used in (("server", sys.executable), ("file", path), ("store", unit.store)):
        if any(Path(used).is_relative_to(hidden) for hidden in UNIT_HIDDEN):
            note(f"{used}: a service sees no home folder and has its own /tmp; move the {what}")


def _show(path: Path | None, answers: ServerAnswers, logins: list[tuple[str, str]]) -> None:
    shown = [("Token" if name == "token" else f"Password of {name}", one) for name, one in logins]
    if path is None:
        # The file alone is the output.
        for label, secret in shown:
            note(f"{label}: {secret}")
        return
    columns = Columns(f"Configuration in {path}")
    columns.row("Address", address_text(answers.host or "", answers.port or 0))
    for label, secret in shown:
        columns.row(label, secret)
    columns.row("Start", f"tradewind-server -c {path}")
    columns.print()
    flush()
