"""`tradewind auth user`: users of accounts, and their credentials.

Owns these commands. It never contacts a server: the JWT of a user is sufficient.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tradewind import nkeys
from tradewind.cli.auth.auth_flags import AccountFlag, FolderFlag, OperatorFlag, UserFlags, expire
from tradewind.cli.auth.keyring import Keyring, checked_name, write_private
from tradewind.cli.auth.screens import time_text, user_screen
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option, with_flags
from tradewind.cli.frame.output import Table, line, print_json
from tradewind.jwt import UserClaims
from tradewind.jwt.claim_files import credentials
from tradewind.jwt.claims import new_user

app = CommandApp("Users")
NameArgument = Annotated[str, Argument(metavar="NAME", help="User name")]
ExpiresFlag = Annotated[str, Option("--expires", help="Expiry, such as 12h, or never")]
TagFlag = Annotated[list[str] | None, Option("--tag", help="Tag, such as team:web")]


@app.command("add", aliases=("create", "new"))
@with_flags(UserFlags)
def add(
    name: NameArgument,
    flags: UserFlags,
    account: AccountFlag = "",
    operator: OperatorFlag = "",
    role: Annotated[
        str, Option("--role", help="Role of the account, which sets the permissions")
    ] = "",
    expires: ExpiresFlag = "",
    tag: TagFlag = None,
    folder: FolderFlag = "",
) -> None:
    """Create a user; `creds` writes its credentials file."""
    keyring = Keyring(folder)
    owner, account_name = _operator_and_account(keyring, operator, account)
    if checked_name(name, "user") in keyring.users(owner, account_name):
        raise CommandError(f"account {account_name} already has a user {name!r}")
    if role and flags.is_given():
        raise CommandError(
            "--role sets the permissions; it cannot be combined with other restrictions"
        )
    claims = new_user(keyring.create_key(nkeys.USER).public, name, is_scoped=bool(role))
    claims.nats.tags = [one.strip().lower() for one in tag or () if one.strip()] or None
    flags.apply(claims.nats)
    expire(claims, expires)
    _sign(keyring, owner, account_name, name, claims, role)
    line(f"User {name} of account {account_name} was created: {claims.sub}")


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
    """Update a user; older credentials stay valid until they are revoked."""
    keyring = Keyring(folder)
    owner, account_name = _operator_and_account(keyring, operator, account)
    claims, _ = keyring.user(owner, account_name, name)
    scope = keyring.account(owner, account_name)[0].scopes().get(claims.iss)
    if scope is not None and flags.is_given():
        raise CommandError(f"user {name} has the role {scope.role!r}, which sets its permissions")
    flags.apply(claims.nats)
    expire(claims, expires)
    if tag is not None:
        claims.nats.tags = [one.strip().lower() for one in tag if one.strip()] or None
    _sign(keyring, owner, account_name, name, claims, scope.role if scope is not None else "")
    line(f"User {name} was updated; get its new credentials: tradewind auth user creds {name}")


@app.command("creds", aliases=("credentials",))
def creds(
    name: NameArgument,
    account: AccountFlag = "",
    operator: OperatorFlag = "",
    output: Annotated[
        str, Option("--output", "-o", metavar="FILE", help="File to write; printed if omitted")
    ] = "",
    force: ForceFlag = False,
    folder: FolderFlag = "",
) -> None:
    """Print the credentials of a user: the JWT and the seed, which is secret."""
    keyring = Keyring(folder)
    owner, account_name = _operator_and_account(keyring, operator, account)
    claims, token = keyring.user(owner, account_name, name)
    text = credentials(token, keyring.key(claims.sub).seed)
    if not output:
        line(text.rstrip("\n"))
        return
    path = Path(output).expanduser()
    if path.exists() and not force:
        raise CommandError(f"{output} already exists", "overwrite it: --force")
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
    owner, account_name = _operator_and_account(keyring, operator, account)
    names = keyring.users(owner, account_name)
    if json:
        print_json(names)
        return
    table = Table(f"Users of {account_name}", "Name", "Key", "Issued", "Expires", drop=("Issued",))
    for name in names:
        claims, _ = keyring.user(owner, account_name, name)
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
    owner, account_name = _operator_and_account(keyring, operator, account)
    claims, _ = keyring.user(owner, account_name, name)
    if json:
        print_json(claims)
    else:
        user_screen(name, claims).print()


def _operator_and_account(keyring: Keyring, operator: str, account: str) -> tuple[str, str]:
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
        raise CommandError("no accounts exist", "create one: tradewind auth account add NAME")
    raise CommandError(f"--account: choose one of {', '.join(names)}")


def _sign(
    keyring: Keyring, owner: str, account_name: str, name: str, claims: UserClaims, role: str
) -> None:
    account, _ = keyring.account(owner, account_name)
    is_strict = keyring.operator(owner)[0].nats.strict_signing_key_usage
    signer, _ = keyring.user_signer(account, role, is_strict=is_strict)
    claims.nats.issuer_account = account.sub if signer.public != account.sub else ""
    keyring.save_user(owner, account_name, name, claims, signer)
