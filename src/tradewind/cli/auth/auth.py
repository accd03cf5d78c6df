"""`tradewind auth`: the parent command of operators, accounts, users and keys."""

from __future__ import annotations

from tradewind.cli.auth import accounts, keys, operators, users
from tradewind.cli.frame.frame import CommandApp

app = CommandApp("Operators, accounts, users and their keys")
app.add("operator", operators.app, aliases=("op",))
app.add("account", accounts.app, aliases=("a",))
app.add("user", users.app, aliases=("u",))
app.add("nkey", keys.app, aliases=("nk", "key"))
