"""Pushes accounts to a server and pulls them, by requests of the system account.

Owns the two exchanges. They use a user of the system account whose keys are available, unless flags
or a context specify a login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.cli.auth.keyring import Keyring
from tradewind.cli.frame.failures import EXIT_FAILED, CommandError
from tradewind.cli.frame.output import line, note
from tradewind.cli.frame.settings import connect, current
from tradewind.jwt import AccountClaims, JwtError, decode_as

if TYPE_CHECKING:
    from tradewind.sync import Connection

UPDATE = "$SYS.REQ.CLAIMS.UPDATE"
_LOGINS = ("user", "token", "creds", "nkey", "jwt", "seed")


def push_accounts(keyring: Keyring, operator: str, names: list[str]) -> int:
    """Send accounts; returns the exit code."""
    failed = 0
    with _system_connection(keyring, operator) as connection:
        for name in names:
            claims, token = keyring.account(operator, name)
            answer = _ask(connection, UPDATE, f"$SYS.REQ.ACCOUNT.{claims.sub}.CLAIMS.UPDATE", token)
            done = answer.get("data") or {}
            error = answer.get("error") or {}
            if error or not done:
                failed += 1
                note(f"{name}: {error.get('description', 'the response cannot be read')}")
            else:
                line(f"{name}: {done.get('message', '')}")
    return EXIT_FAILED if failed else 0


def pull_account(keyring: Keyring, operator: str, name: str) -> None:
    """Fetch an account; it replaces ours only if the operator has signed it and it is newer."""
    ours, _ = keyring.account(operator, name)
    with _system_connection(keyring, operator) as connection:
        subject = f"$SYS.REQ.ACCOUNT.{ours.sub}.CLAIMS.LOOKUP"
        token = connection.request(subject, b"", timeout=current().timeout).data.decode().strip()
    if not token:
        raise CommandError(f"the server has no account {name} ({ours.sub})")
    try:
        theirs = decode_as(AccountClaims, token)
    except JwtError as error:
        raise CommandError(f"the server's JWT of {name} is not valid: {error}") from None
    claims, _ = keyring.operator(operator)
    if theirs.sub != ours.sub or theirs.iss not in (claims.sub, *(claims.nats.signing_keys or ())):
        raise CommandError(f"the server's JWT of {name} was not signed by {operator}")
    if theirs.iat <= ours.iat:
        line(f"{name}: already up to date")
        return
    keyring.keep_account(operator, name, token + "\n")
    line(f"{name}: replaced by the server's JWT")


def _system_connection(keyring: Keyring, operator: str) -> Connection:
    settings = current()
    if settings.context is None and not any(settings.text(key) for key in _LOGINS):
        system = keyring.operator(operator)[0].nats.system_account
        for account in keyring.accounts(operator):
            if keyring.account(operator, account)[0].sub != system:
                continue
            for user in keyring.users(operator, account):
                claims, token = keyring.user(operator, account, user)
                if keyring.has_key(claims.sub):
                    settings.given["jwt"] = token
                    settings.given["seed"] = keyring.key(claims.sub).seed
                    return connect()
        raise CommandError("no user of the system account is stored here: log in with --creds FILE")
    return connect()


def _ask(connection: Connection, subject: str, otherwise: str, token: str) -> dict[str, Any]:
    """Ask as folders are asked; a server with accounts in memory knows the old subject only."""
    from tradewind.client.errors import NoRespondersError

    timeout = current().timeout
    try:
        answer = connection.request(subject, token.encode(), timeout=timeout)
    except NoRespondersError:
        answer = connection.request(otherwise, token.encode(), timeout=timeout)
    try:
        document = msgspec.json.decode(answer.data)
    except msgspec.DecodeError:
        return {}
    return document if isinstance(document, dict) else {}
