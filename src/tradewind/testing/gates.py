"""Gates for tests: authentication without a configuration file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tradewind.broker.identity import Credentials, DeferredCheck, Identity, Rejection
from tradewind.route.permission_rules import PermissionRules

GLOBAL_ACCOUNT = "$G"


class OpenGate:
    """A gate that admits every client into one account."""

    auth_required = False
    is_required = False
    nonce_required = False

    def __init__(self, account: str = GLOBAL_ACCOUNT) -> None:
        self._identity = Identity(account)

    def check(
        self,
        credentials: Credentials,  # noqa: ARG002
    ) -> Identity | Rejection | DeferredCheck:
        """Admit the client, whatever its credentials."""
        return self._identity


@dataclass(frozen=True, slots=True)
class User:
    """A user known to a `UserGate`."""

    name: str
    password: str = field(default="", repr=False)
    account: str = GLOBAL_ACCOUNT
    permissions: PermissionRules | None = None


class UserGate:
    """A gate that checks user names and passwords; `stranger` is the user of connections without a
    name.

    With `deferred`, `InProcessServer.run_deferred` makes the decision about a name, like that about
    a hashed password.
    """

    is_required = True
    nonce_required = False

    def __init__(
        self, users: Iterable[User], *, stranger: str | None = None, deferred: bool = False
    ) -> None:
        self._users = {user.name: user for user in users}
        self._stranger = stranger
        self._deferred = deferred

    @property
    def auth_required(self) -> bool:
        """Whether a connection has to present credentials."""
        return self._stranger is None

    def check(self, credentials: Credentials) -> Identity | Rejection | DeferredCheck:
        """Compare name and password."""
        if not credentials.user and self._stranger is not None:
            return self._identity(self._users[self._stranger])
        if self._deferred and credentials.user:
            known = credentials.user in self._users
            return DeferredCheck(
                lambda: self._decide(credentials), credentials.user if known else None
            )
        return self._decide(credentials)

    def _decide(self, credentials: Credentials) -> Identity | Rejection:
        user = self._users.get(credentials.user)
        if user is None or user.password != credentials.password:
            return Rejection("unknown user or wrong password")
        return self._identity(user)

    @staticmethod
    def _identity(user: User) -> Identity:
        return Identity(user.account, user.name, user.permissions)
