"""`tradewind auth operator`: operators, which sign accounts.

Owns these commands. A new operator gets a signing key, so that its identity key can be stored
safely, and a system account with a user, which is needed to push accounts.
"""

from __future__ import annotations

from typing import Annotated

from tradewind import nkeys
from tradewind.cli.auth.auth_flags import FolderFlag, OperatorFlag
from tradewind.cli.auth.keyring import Keyring, checked_name
from tradewind.cli.auth.screens import operator_screen, time_text
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import Table, line, print_json
from tradewind.jwt.claims import new_account, new_operator, new_user

app = CommandApp("Operators")
SYSTEM_ACCOUNT = "SYS"
SYSTEM_USER = "sys"


@app.command("add", aliases=("create", "new"))
def add(
    name: Annotated[str, Argument(metavar="NAME", help="Operator name")],
    strict: Annotated[
        bool, Option("--strict", help="Accept only accounts and users signed by signing keys")
    ] = False,
    folder: FolderFlag = "",
) -> None:
    """Create an operator with a signing key, a system account and a system user."""
    keyring = Keyring(folder)
    if checked_name(name, "operator") in keyring.operators():
        raise CommandError(f"operator {name!r} already exists")
    own = keyring.create_key(nkeys.OPERATOR)
    system = keyring.create_key(nkeys.ACCOUNT)
    claims = new_operator(own.public, name)
    claims.nats.signing_keys = [keyring.create_key(nkeys.OPERATOR).public]
    claims.nats.strict_signing_key_usage = strict
    claims.nats.system_account = system.public
    keyring.save_operator(name, claims)
    account = new_account(system.public, SYSTEM_ACCOUNT)
    account.nats.signing_keys = [keyring.create_key(nkeys.ACCOUNT).public]
    keyring.save_account(name, SYSTEM_ACCOUNT, account)
    user = new_user(keyring.create_key(nkeys.USER).public, SYSTEM_USER)
    signer, _ = keyring.user_signer(account, "", is_strict=True)
    user.nats.issuer_account = system.public
    keyring.save_user(name, SYSTEM_ACCOUNT, SYSTEM_USER, user, signer)
    line(f"Operator {name} was created, with the system account {SYSTEM_ACCOUNT}")
    line(f"Its keys are in {keyring.folder}: keep a copy in a safe place")


@app.command("edit", aliases=("change",))
def edit(
    operator: OperatorFlag = "",
    signing_key: Annotated[
        bool, Option("--signing-key", help="Add a signing key; the newest one signs")
    ] = False,
    remove_key: Annotated[
        list[str] | None, Option("--remove-key", metavar="KEY", help="Remove these signing keys")
    ] = None,
    strict: Annotated[
        bool | None, Option("--strict/--no-strict", help="Require signing keys")
    ] = None,
    account_server: Annotated[
        str, Option("--account-server", metavar="URL", help="URL of the account server")
    ] = "",
    folder: FolderFlag = "",
) -> None:
    """Update an operator."""
    keyring = Keyring(folder)
    name = keyring.operator_name(operator)
    claims, _ = keyring.operator(name)
    keys = list(claims.nats.signing_keys or ())
    for key in remove_key or ():
        if key not in keys:
            raise CommandError(f"--remove-key: {key} is not a signing key of {name}")
        keys.remove(key)
    if signing_key:
        keys.insert(0, keyring.create_key(nkeys.OPERATOR).public)
    claims.nats.signing_keys = keys or None
    if strict is not None:
        claims.nats.strict_signing_key_usage = strict
    if account_server:
        claims.nats.account_server_url = account_server
    keyring.save_operator(name, claims)
    line(f"Operator {name} was updated: servers need its new JWT and a restart")


@app.command("ls", aliases=("list",))
def list_operators(json: JsonFlag = False, folder: FolderFlag = "") -> None:
    """List operators."""
    keyring = Keyring(folder)
    names = keyring.operators()
    if json:
        print_json(names)
        return
    if not names:
        line("There is no operator yet: tradewind auth operator add NAME")
        return
    table = Table("Operators", "Name", "Key", "Accounts", "Issued", drop=("Issued",))
    for name in names:
        claims, _ = keyring.operator(name)
        table.row(name, claims.sub, str(len(keyring.accounts(name))), time_text(claims.iat))
    table.print()


@app.command("show", aliases=("info",))
def show(
    operator: OperatorFlag = "",
    json: JsonFlag = False,
    jwt: Annotated[bool, Option("--token", help="Print the raw JWT")] = False,
    folder: FolderFlag = "",
) -> None:
    """Show an operator."""
    keyring = Keyring(folder)
    name = keyring.operator_name(operator)
    claims, token = keyring.operator(name)
    if jwt:
        line(token)
    elif json:
        print_json(claims)
    else:
        operator_screen(name, claims).print()


@app.command("config", aliases=("generate",))
def config(
    operator: OperatorFlag = "",
    accounts: Annotated[
        str,
        Option(
            "--accounts", metavar="DIR", help="Server folder for account JWTs; in memory if omitted"
        ),
    ] = "",
    folder: FolderFlag = "",
) -> None:
    """Print the server configuration for this operator."""
    keyring = Keyring(folder)
    name = keyring.operator_name(operator)
    claims, token = keyring.operator(name)
    line(f"operator: {token}")
    line(f"system_account: {claims.nats.system_account}")
    preloaded = [SYSTEM_ACCOUNT]
    if accounts:
        quoted = accounts.replace("\\", "\\\\").replace('"', '\\"')
        line(f'resolver: {{ type: full, dir: "{quoted}", allow_delete: true }}')
    else:
        line("resolver: MEMORY")
        preloaded = keyring.accounts(name)
    line("resolver_preload: {")
    for account in preloaded:
        account_claims, account_token = keyring.account(name, account)
        line(f"  # {account}")
        line(f"  {account_claims.sub}: {account_token}")
    line("}")
