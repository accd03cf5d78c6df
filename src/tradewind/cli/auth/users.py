"""`tradewind auth user`: users of accounts, and the credentials that they log in with.

Owns these commands. No server is told of a user: its JWT is enough.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tradewind import nkeys
from tradewind.cli.auth.flags import AccountFlag, FolderFlag, OperatorFlag, UserFlags, expire
from tradewind.cli.auth.keyring import Keyring, checked_name, write_private
from tradewind.cli.auth.screens import time_text, user_screen
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option, with_flags
from tradewind.cli.frame.output import Table, line, print_json
from tradewind.jwt import UserClaims
from tradewind.jwt.claims import new_user
from tradewind.jwt.files import credentials

app = CommandApp("Users")
NameArgument = Annotated[str, Argument(metavar="NAME", help="Name of the user")]
ExpiresFlag = Annotated[str, Option("--expires", help="Such as 12h, or never")]
TagFlag = Annotated[list[str] | None, Option("--tag", help="Such as team:web")]


@app.command("add", aliases=("create", "new"))
@with_flags(UserFlags)
def add(
    name: NameArgument,
    flags: UserFlags,
    account: AccountFlag = "",
    operator: OperatorFlag = "",
    role: Annotated[str, Option("--role", help="Role of the account; it says what it may")] = "",
    expires: ExpiresFlag = "",
    tag: TagFlag = None,
    folder: FolderFlag = "",
) -> None:
    """Make a user; `creds` gives the file to log in with."""
    keyring = Keyring(folder)
    owner, home = _home(keyring, operator, account)
    if checked_name(name, "user") in keyring.users(owner, home):
        raise CommandError(f"account {home} has a user {name!r} already")
    if role and flags.is_given():
        raise CommandError("--role: the role says what its users may; give no other restriction")
    claims = new_user(keyring.create_key(nkeys.USER).public, name, is_scoped=bool(role))
    claims.nats.tags = [one.strip().lower() for one in tag or () if one.strip()] or None
    flags.apply(claims.nats)
    expire(claims, expires)
    _sign(keyring, owner, home, name, claims, role)
    line(f"User {name} of account {home} was created: {claims.sub}")


@app.command("edit", aliases=("change",))
@with_flags(UserFlags)
def edit(
    name: NameArgument,
    flags: UserFlags,
    account: AccountFlag = "",
    operator: OperatorFlag = "",
    expires: ExpiresFlag = "",
    tag: TagFlag = None,
    folder: FolderFlag = "",
) -> None:
    """Change a user; whoever has its older credentials can use them until they are revoked."""
    keyring = Keyring(folder)
    owner, home = _home(keyring, operator, account)
    claims, _ = keyring.user(owner, home, name)
    scope = keyring.account(owner, home)[0].scopes().get(claims.iss)
    if scope is not None and flags.is_given():
        raise CommandError(f"user {name} has the role {scope.role!r}, which says what it may")
    flags.apply(claims.nats)
    expire(claims, expires)
    if tag is not None:
        claims.nats.tags = [one.strip().lower() for one in tag if one.strip()] or None
    _sign(keyring, owner, home, name, claims, scope.role if scope is not None else "")
    line(f"User {name} was changed; its new credentials: tradewind auth user creds {name}")


@app.command("creds", aliases=("credentials",))
def creds(
    name: NameArgument,
    account: AccountFlag = "",
    operator: OperatorFlag = "",
    output: Annotated[
        str, Option("--output", "-o", metavar="FILE", help="Write a file; none: print it")
    ] = "",
    force: ForceFlag = False,
    folder: FolderFlag = "",
) -> None:
    """Give the credentials of a user: its JWT and its seed, which is a secret."""
    keyring = Keyring(folder)
    owner, home = _home(keyring, operator, account)
    claims, token = keyring.user(owner, home, name)
    text = credentials(token, keyring.key(claims.sub).seed)
    if not output:
        line(text.rstrip("\n"))
        return
    path = Path(output).expanduser()
    if path.exists() and not force:
        raise CommandError(f"{output} exists already", "overwrite it: --force")
    write_private(path, text)
    line(f"The credentials of {name} are in {output}: tradewind --creds {output} ...")


@app.command("ls", aliases=("list",))
def list_users(
    account: AccountFlag = "",
    operator: OperatorFlag = "",
    json: JsonFlag = False,
    folder: FolderFlag = "",
) -> None:
    """List the users of an account."""
    keyring = Keyring(folder)
    owner, home = _home(keyring, operator, account)
    names = keyring.users(owner, home)
    if json:
        print_json(names)
        return
    table = Table(f"Users of {home}", "Name", "Key", "Issued", "Expires")
    for name in names:
        claims, _ = keyring.user(owner, home, name)
        table.row(name, claims.sub, time_text(claims.iat), time_text(claims.exp))
    table.print()


@app.command("show", aliases=("info",))
def show(
    name: NameArgument,
    account: AccountFlag = "",
    operator: OperatorFlag = "",
    json: JsonFlag = False,
    folder: FolderFlag = "",
) -> None:
    """Show a user."""
    keyring = Keyring(folder)
    owner, home = _home(keyring, operator, account)
    claims, _ = keyring.user(owner, home, name)
    if json:
        print_json(claims)
    else:
        user_screen(name, claims).print()


def _home(keyring: Keyring, operator: str, account: str) -> tuple[str, str]:
    """The operator and the account that are meant; the system account only if it is named."""
    owner = keyring.operator_name(operator)
    if account:
        return owner, keyring.account_name(owner, account)
    system = keyring.operator(owner)[0].nats.system_account
    names = [
        name for name in keyring.accounts(owner) if keyring.account(owner, name)[0].sub != system
    ]
    if len(names) == 1:
        return owner, names[0]
    if not names:
        raise CommandError("there is no account yet", "make one: tradewind auth account add NAME")
    raise CommandError(f"--account: which of {', '.join(names)}?")


def _sign(
    keyring: Keyring, owner: str, home: str, name: str, claims: UserClaims, role: str
) -> None:
    account, _ = keyring.account(owner, home)
    is_strict = keyring.operator(owner)[0].nats.strict_signing_key_usage
    signer, _ = keyring.user_signer(account, role, is_strict=is_strict)
    claims.nats.issuer_account = account.sub if signer.public != account.sub else ""
    keyring.save_user(owner, home, name, claims, signer)
