"""`tradewind auth account`: limits, signing keys, roles and revocations of accounts.

Owns these commands. A change takes effect on a server only after it is pushed.
"""

from __future__ import annotations

import time
from typing import Annotated

from tradewind import nkeys
from tradewind.cli.auth.auth_flags import FolderFlag, LimitFlags, OperatorFlag, UserFlags, expire
from tradewind.cli.auth.keyring import Keyring, checked_name, scopes_of
from tradewind.cli.auth.pushing import pull_account, push_accounts
from tradewind.cli.auth.screens import account_screen, time_text
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option, with_flags
from tradewind.cli.frame.output import Table, line, print_json
from tradewind.jwt.claims import EVERYBODY, ScopeTemplate, UserScope, new_account

app = CommandApp("Accounts")
NameArgument = Annotated[str, Argument(metavar="NAME", help="Account name")]
ExpiresFlag = Annotated[str, Option("--expires", help="Expiry, such as 90d, or never")]
DescriptionFlag = Annotated[str, Option("--description", help="Description")]
TagFlag = Annotated[list[str] | None, Option("--tag", help="Tag, such as region:eu")]


@app.command("add", aliases=("create", "new"))
@with_flags(LimitFlags)
def add(
    name: NameArgument,
    flags: LimitFlags,
    operator: OperatorFlag = "",
    expires: ExpiresFlag = "",
    description: DescriptionFlag = "",
    tag: TagFlag = None,
    folder: FolderFlag = "",
) -> None:
    """Create an account with a signing key."""
    keyring = Keyring(folder)
    owner = keyring.operator_name(operator)
    if checked_name(name, "account") in keyring.accounts(owner):
        raise CommandError(f"account {name!r} already exists")
    claims = new_account(keyring.create_key(nkeys.ACCOUNT).public, name)
    claims.nats.signing_keys = [keyring.create_key(nkeys.ACCOUNT).public]
    claims.nats.description = description
    claims.nats.tags = _tags(tag)
    flags.apply(claims.nats.limits)
    expire(claims, expires)
    keyring.save_account(owner, name, claims)
    line(f"Account {name} was created: {claims.sub}")


@app.command("edit", aliases=("change",))
@with_flags(LimitFlags)
def edit(
    name: NameArgument,
    flags: LimitFlags,
    operator: OperatorFlag = "",
    expires: ExpiresFlag = "",
    description: DescriptionFlag = "",
    tag: TagFlag = None,
    signing_key: Annotated[bool, Option("--signing-key", help="Add a signing key")] = False,
    remove_key: Annotated[
        list[str] | None,
        Option(
            "--remove-key",
            metavar="KEY",
            help="Remove these signing keys and the users they signed",
        ),
    ] = None,
    folder: FolderFlag = "",
) -> None:
    """Update an account; settings not given stay unchanged."""
    keyring = Keyring(folder)
    owner = keyring.operator_name(operator)
    name = keyring.account_name(owner, name)
    claims, _ = keyring.account(owner, name)
    flags.apply(claims.nats.limits)
    expire(claims, expires)
    if description:
        claims.nats.description = description
    if tag is not None:
        claims.nats.tags = _tags(tag)
    for key in remove_key or ():
        if key not in claims.scopes():
            raise CommandError(f"--remove-key: {key} is not a signing key of {name}")
        claims.nats.signing_keys = [
            entry
            for entry in claims.nats.signing_keys
            if key != (entry if isinstance(entry, str) else entry.key)
        ]
    if signing_key:
        claims.nats.signing_keys.insert(0, keyring.create_key(nkeys.ACCOUNT).public)
    keyring.save_account(owner, name, claims)
    line(f"Account {name} was updated; push it to the servers: tradewind auth account push {name}")


@app.command("role", aliases=("scope",))
@with_flags(UserFlags)
def role(
    name: NameArgument,
    role_name: Annotated[str, Argument(metavar="ROLE", help="Role name")],
    flags: UserFlags,
    operator: OperatorFlag = "",
    folder: FolderFlag = "",
) -> None:
    """Create or update a role: a signing key that limits what its users may do.

    Subjects may contain {{name()}}, {{subject()}}, {{tag(KEY)}} and other templates.
    """
    keyring = Keyring(folder)
    owner = keyring.operator_name(operator)
    name = keyring.account_name(owner, name)
    claims, _ = keyring.account(owner, name)
    scope = next((one for one in scopes_of(claims) if one.role == role_name), None)
    if scope is None:
        key = keyring.create_key(nkeys.ACCOUNT).public
        scope = UserScope(key=key, role=role_name, template=ScopeTemplate())
        claims.nats.signing_keys.append(scope)
    flags.apply(scope.template)
    keyring.save_account(owner, name, claims)
    line(f"Role {role_name} of account {name} was saved: tradewind auth account push {name}")


@app.command("revoke")
def revoke(
    name: NameArgument,
    user: Annotated[
        str, Argument(metavar="USER", help="Name or key of the user; all for everyone")
    ],
    operator: OperatorFlag = "",
    undo: Annotated[bool, Option("--undo", help="Remove the revocation")] = False,
    folder: FolderFlag = "",
) -> None:
    """Revoke the JWTs issued to a user so far."""
    keyring = Keyring(folder)
    owner = keyring.operator_name(operator)
    name = keyring.account_name(owner, name)
    claims, _ = keyring.account(owner, name)
    key = EVERYBODY if user == "all" else user
    if key != EVERYBODY and not nkeys.is_public(user, nkeys.USER):
        key = keyring.user(owner, name, user)[0].sub
    if undo:
        if claims.nats.revocations.pop(key, None) is None:
            raise CommandError(f"{user} is not revoked")
    else:
        claims.nats.revocations[key] = int(time.time())
    keyring.save_account(owner, name, claims)
    what = "is no longer revoked" if undo else "is revoked"
    line(f"{user} {what}; push the account to the servers: tradewind auth account push {name}")


@app.command("ls", aliases=("list",))
def list_accounts(
    operator: OperatorFlag = "", json: JsonFlag = False, folder: FolderFlag = ""
) -> None:
    """List accounts."""
    keyring = Keyring(folder)
    owner = keyring.operator_name(operator)
    names = keyring.accounts(owner)
    if json:
        print_json(names)
        return
    table = Table(f"Accounts of {owner}", "Name", "Key", "Users", "Expires", drop=("Users",))
    for name in names:
        claims, _ = keyring.account(owner, name)
        users = str(len(keyring.users(owner, name)))
        table.row(name, claims.sub, users, time_text(claims.exp))
    table.print()


@app.command("show", aliases=("info",))
def show(
    name: NameArgument,
    operator: OperatorFlag = "",
    json: JsonFlag = False,
    jwt: Annotated[bool, Option("--token", help="Print the raw JWT")] = False,
    folder: FolderFlag = "",
) -> None:
    """Show an account."""
    keyring = Keyring(folder)
    owner = keyring.operator_name(operator)
    name = keyring.account_name(owner, name)
    claims, token = keyring.account(owner, name)
    if jwt:
        line(token)
    elif json:
        print_json(claims)
    else:
        account_screen(name, claims).print()


@app.command("push")
def push(
    names: Annotated[
        list[str] | None, Argument(metavar="NAME", help="Accounts; all if omitted")
    ] = None,
    operator: OperatorFlag = "",
    folder: FolderFlag = "",
) -> int:
    """Push accounts to a server; requires the system account."""
    keyring = Keyring(folder)
    owner = keyring.operator_name(operator)
    wanted = [keyring.account_name(owner, name) for name in names or keyring.accounts(owner)]
    return push_accounts(keyring, owner, wanted)


@app.command("pull")
def pull(name: NameArgument, operator: OperatorFlag = "", folder: FolderFlag = "") -> None:
    """Fetch the JWT of an account from a server."""
    keyring = Keyring(folder)
    owner = keyring.operator_name(operator)
    pull_account(keyring, owner, keyring.account_name(owner, name))


def _tags(tags: list[str] | None) -> list[str] | None:
    return [tag.strip().lower() for tag in tags or () if tag.strip()] or None
