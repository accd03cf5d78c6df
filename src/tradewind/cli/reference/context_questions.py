"""The questions of `tradewind context add`.

Owns their texts, defaults and checks. Passwords and tokens are typed without an echo, and files
must be there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tradewind.cli.frame import context_files
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.questions import Answers, DialogQuestion
from tradewind.client.core.addresses import parse_servers
from tradewind.errors import TradewindError

# The fields of a context that are a login.
LOGIN_FIELDS: Final = ("user", "password", "token", "creds", "nkey", "user_jwt", "user_seed")
LOGINS: Final = ("none", "user", "token", "creds", "nkey")


def context_questions(base: dict[str, Any]) -> list[DialogQuestion]:
    """The questions; `base` has the fields of the context if it exists, as defaults."""
    return [
        DialogQuestion(
            "name",
            "Context Name",
            "the name: context add NAME",
            "The name for --context, for example shop.",
            convert=_context_name,
        ),
        DialogQuestion(
            "description",
            "Description",
            "--description",
            "A few words for the list of contexts; it may stay empty.",
            default=base.get("description", ""),
        ),
        DialogQuestion(
            "url",
            "Server URLs",
            "--server",
            "Where the servers listen; several are joined by commas.",
            default=base.get("url", "") or "nats://127.0.0.1:4222",
            convert=_urls,
        ),
        *_login_questions(base),
    ]


def _login_questions(base: dict[str, Any]) -> list[DialogQuestion]:
    old = next((name for name in LOGINS if base.get(name)), "none")
    return [
        DialogQuestion(
            "login",
            "Login",
            "--user and --password, --token, --creds or --nkey",
            "none: the server asks for no login. user: with a password. token: one secret.\n"
            "creds: a file with a JWT and a seed. nkey: a file with a seed.",
            default=old,
            options=LOGINS,
        ),
        DialogQuestion(
            "user",
            "User",
            "--user",
            "The name of the user.",
            default=base.get("user", ""),
            convert=_not_empty,
            when=_logs_in_with("user"),
        ),
        DialogQuestion(
            "password",
            "Password",
            "--password",
            "The password of the user; it is not shown.",
            is_secret=True,
            when=_logs_in_with("user"),
        ),
        DialogQuestion(
            "token",
            "Token",
            "--token",
            "The token; it is not shown.",
            convert=_not_empty,
            is_secret=True,
            when=_logs_in_with("token"),
        ),
        DialogQuestion(
            "creds",
            "Credentials file",
            "--creds",
            "The path of a file with a JWT and a seed.",
            default=base.get("creds", ""),
            convert=_file,
            when=_logs_in_with("creds"),
        ),
        DialogQuestion(
            "nkey",
            "NKey file",
            "--nkey",
            "The path of a file with a seed.",
            default=base.get("nkey", ""),
            convert=_file,
            when=_logs_in_with("nkey"),
        ),
    ]


def _logs_in_with(login: str) -> Any:
    def when(answers: Answers) -> bool:
        return answers.get("login") == login

    return when


def _context_name(text: str) -> str:
    if not text:
        raise CommandError("the name of a context must not be empty", exit_code=EXIT_USAGE)
    try:
        exists = context_files.exists(text)
    except TradewindError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from None
    if exists:
        raise CommandError(
            f"context {text!r} exists already; choose another name, or leave with Ctrl-C and",
            f"change it: tradewind context add {text} --ask",
            exit_code=EXIT_USAGE,
        )
    return text


def _urls(text: str) -> str:
    try:
        parse_servers(text)
    except TradewindError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from None
    return text


def _not_empty(text: str) -> str:
    if not text:
        raise CommandError("must not be empty", exit_code=EXIT_USAGE)
    return text


def _file(text: str) -> str:
    path = Path(text).expanduser()
    if not text or not path.is_file():
        raise CommandError(f"must be the path of a file, not {text!r}", exit_code=EXIT_USAGE)
    # A context is used in any folder.
    return str(path.absolute())
