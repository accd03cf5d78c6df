"""`tradewind auth`: the parent command of operators, accounts, users and keys."""

from __future__ import annotations

from tradewind.cli.auth import auth_accounts, auth_keys, auth_operators, auth_users
from tradewind.cli.frame.frame import CommandApp

app = CommandApp("Operators, accounts, users and their keys")
app.add("operator", auth_operators.app, aliases=("op",))
app.add("account", auth_accounts.app, aliases=("a",))
app.add("user", auth_users.app, aliases=("u",))
app.add("nkey", auth_keys.app, aliases=("nk", "key"))
