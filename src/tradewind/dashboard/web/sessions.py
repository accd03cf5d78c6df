"""Sessions of visitors: cookies, the token of forms, and logins with their own connections.

Owns the sessions and their limits. Without logins all visitors share one workspace, and a cookie
only ties forms to a browser. With logins each session has the NATS login of its user, so that the
server's permissions decide what each may see and do. A secret is passed to the connection and never
stored elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tradewind.client.core.connect_options import make_options
from tradewind.client.core.credentials import parse_credentials
from tradewind.client.errors import AuthorizationError, OperationTimeoutError
from tradewind.dashboard.data.workspace import Workspace
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.client.core.connect_options import ConnectOptions
    from tradewind.dashboard.data.history_file import HistoryFile

LOGINS_MAX: Final = 64
IDLE_SECONDS: Final = 3600.0
# The limit for concurrent login attempts, and the minimum duration of a failed one.
TRIES_MAX: Final = 4
WRONG_SECONDS: Final = 1.0
LOGIN_SECONDS: Final = 10.0
NOTICES_MAX: Final = 256
CHOICES_MAX: Final = 1024
ID_BYTES: Final = 32
TOKEN_LENGTH: Final = 43


@dataclass
class LoginSession:
    """A login: its workspace, and when it was last used."""

    workspace: Workspace
    user: str
    used_at: float
    # The name of the context; empty for the one that the dashboard was started with.
    context: str = ""


class LoginRefusedError(TradewindError):
    """A login that the server has refused; the text is shown to the visitor."""


class Sessions:
    """All visitors. `clock` returns seconds that never decrease."""

    def __init__(
        self,
        options: ConnectOptions,
        *,
        needs_login: bool,
        history: HistoryFile | None = None,
        system_options: ConnectOptions | None = None,
        contexts: Mapping[str, ConnectOptions] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.needs_login = needs_login
        self._options = options
        self._history = history
        self._system_options = system_options
        # Other servers that visitors can switch to, their connections, and who has done so.
        self.contexts = dict(contexts or {})
        self._others: dict[str, Workspace] = {}
        self._choices: OrderedDict[str, str] = OrderedDict()
        self._clock = clock
        self._secret = secrets.token_bytes(ID_BYTES)
        self._logins: OrderedDict[str, LoginSession] = OrderedDict()
        self._notices: OrderedDict[str, str] = OrderedDict()
        self._tries = asyncio.Semaphore(TRIES_MAX)
        self._shared: Workspace | None = None

    def start(self) -> None:
        """Connect, if all visitors share one connection."""
        if not self.needs_login:
            self._shared = Workspace(self._options, self._history, self._system_options)
            self._shared.start()

    async def close(self) -> None:
        """Close all connections."""
        workspaces = [login.workspace for login in self._logins.values()]
        if self._shared is not None:
            workspaces.append(self._shared)
        workspaces += self._others.values()
        self._others.clear()
        self._logins.clear()
        await asyncio.gather(*(workspace.close() for workspace in workspaces))

    def __len__(self) -> int:
        return len(self._logins)

    # ------------------------------------------------------------------ cookies and tokens

    @staticmethod
    def new_id() -> str:
        """A session id that cannot be guessed."""
        return secrets.token_urlsafe(ID_BYTES)

    def csrf(self, session_id: str) -> str:
        """The token that the forms of a session must contain; a form is for one context only."""
        about = f"{session_id} {self._choices.get(session_id, '')}".rstrip()
        return hmac.new(self._secret, about.encode(), hashlib.sha256).hexdigest()

    def is_csrf(self, session_id: str, token: str) -> bool:
        """Whether a form was created for this session."""
        return hmac.compare_digest(self.csrf(session_id).encode(), token.encode(errors="replace"))

    def tell(self, session_id: str, notice: str) -> None:
        """Set the sentence for the next page of a session."""
        self._notices[session_id] = notice
        while len(self._notices) > NOTICES_MAX:
            self._notices.popitem(last=False)

    def told(self, session_id: str) -> str:
        """The sentence for this page, which is then removed."""
        return self._notices.pop(session_id, "")

    # ------------------------------------------------------------------ logins

    def find(self, session_id: str) -> LoginSession | None:
        """The login of a session; None if a login is needed first."""
        if self._shared is not None:
            context = self._choices.get(session_id, "")
            return LoginSession(self._workspace(context), "", self._clock(), context)
        login = self._logins.get(session_id)
        if login is None or self._clock() - login.used_at > IDLE_SECONDS:
            return None
        login.used_at = self._clock()
        self._logins.move_to_end(session_id)
        return login

    def choose(self, session_id: str, context: str) -> None:
        """Switch a visitor to a context; LoginRefusedError if there is none of that name."""
        if self.needs_login:
            raise LoginRefusedError("Log out first: a login is for one server.")
        if context and context not in self.contexts:
            raise LoginRefusedError(f"There is no context {context[:60]!r} here.")
        self._choices.pop(session_id, None)
        if context:
            self._choices[session_id] = context
        while len(self._choices) > CHOICES_MAX:
            self._choices.popitem(last=False)

    def _workspace(self, context: str) -> Workspace:
        assert self._shared is not None, "visitors share connections"
        if not context:
            return self._shared
        if context not in self._others:
            made = self._others[context] = Workspace(self.contexts[context])
            made.start()
        return self._others[context]

    async def log_in(self, fields: Mapping[str, str]) -> str:
        """Try a NATS login and return the id of the new session. LoginRefusedError if it fails."""
        await self.drop_idle()
        if len(self._logins) >= LOGINS_MAX:
            raise LoginRefusedError(f"There are {LOGINS_MAX} logins already; try again later.")
        settings = login_settings(fields)
        context = fields.get("context", "")
        if context and context not in self.contexts:
            raise LoginRefusedError(f"There is no context {context[:60]!r} here.")
        options = self.contexts.get(context, self._options)
        async with self._tries:
            workspace = Workspace(make_options(options, settings))
            workspace.start()
            try:
                async with asyncio.timeout(LOGIN_SECONDS):
                    await workspace.wait_started()
            except (AuthorizationError, OperationTimeoutError, TimeoutError) as error:
                await workspace.close()
                # Slows down attempts to guess passwords.
                await asyncio.sleep(WRONG_SECONDS)
                is_late = isinstance(error, TimeoutError)
                raise LoginRefusedError(
                    "The server does not respond." if is_late else "The server rejected this login."
                ) from None
        session_id = self.new_id()
        user = fields.get("user", "") or ("token" if fields.get("token") else "credentials")
        self._logins[session_id] = LoginSession(workspace, user, self._clock(), context)
        return session_id

    async def log_out(self, session_id: str) -> None:
        """End a login and its connection."""
        login = self._logins.pop(session_id, None)
        if login is not None:
            await login.workspace.close()

    async def drop_idle(self) -> None:
        """End logins that have not been used for long."""
        now = self._clock()
        idle = [key for key, login in self._logins.items() if now - login.used_at > IDLE_SECONDS]
        for key in idle:
            await self.log_out(key)


def login_settings(fields: Mapping[str, str]) -> dict[str, Any]:
    """The options of a connection for the fields of a login form; LoginRefusedError if they are not
    a login.

    The options replace the login that the dashboard itself was started with.
    """
    settings: dict[str, Any] = {
        "user": "",
        "password": "",
        "token": "",
        "nkey_seed": "",
        "nkey_file": "",
        "credentials": "",
        "user_jwt": "",
    }
    user, password = fields.get("user", ""), fields.get("password", "")
    token, text = fields.get("token", ""), fields.get("credentials", "").strip()
    if user and password:
        return settings | {"user": user, "password": password}
    if token:
        return settings | {"token": token}
    if text:
        try:
            jwt, seed = parse_credentials(text) if "JWT" in text else ("", text)
        except TradewindError as error:
            raise LoginRefusedError(str(error)) from None
        return settings | {"user_jwt": jwt, "nkey_seed": seed}
    raise LoginRefusedError("Enter a user and a password, a token, or credentials.")
