"""The shared state of all pages of a login: connection, requests, events.

Owns the life of the connection: it is established in the background and reconnects automatically,
so that a page appears immediately and shows the current state.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tradewind.client.connection import Connection
from tradewind.client.core.connect_options import make_options
from tradewind.client.errors import AuthorizationError, ClientError, DisconnectedError
from tradewind.client.events import ErrorEvent, Event, Reconnected, ReconnectFailed
from tradewind.dashboard.data import account_data, load_and_usage
from tradewind.dashboard.data.advisories import Advisories
from tradewind.dashboard.data.catalog import (
    CONSUMER_FIGURES,
    NAMES_KEY,
    STREAM_FIGURES,
    Catalog,
)
from tradewind.dashboard.data.chart_history import ChartHistory
from tradewind.dashboard.data.dead_letter_data import Redrives
from tradewind.dashboard.data.integrity import Integrity
from tradewind.dashboard.data.message_search import MessageSearches
from tradewind.dashboard.data.rights import ALL_RIGHTS, Rights, ask_rights
from tradewind.dashboard.data.samplers import Observation, Question, Samplers
from tradewind.dashboard.data.sql_data import Queries
from tradewind.dashboard.data.survey import (
    STEP_SECONDS,
    ConsumerSummary,
    StreamSummary,
    Survey,
)
from tradewind.dashboard.data.transfer_data import Transfers
from tradewind.dashboard.data.watch_data import Watches
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.client.core.connect_options import ConnectOptions
    from tradewind.client.jetstream import JetStream
    from tradewind.dashboard.data.history_file import HistoryFile

REQUEST_SECONDS: Final = 5.0
HEALTH_SECONDS: Final = 10.0
ACCOUNTS_SECONDS: Final = 3.0
ACCOUNT_KEY: Final = "account"
RIGHTS_SECONDS: Final = 60.0
State = Literal["connecting", "connected", "reconnecting", "refused"]


@dataclass(frozen=True, slots=True)
class LinkState:
    """The state of the connection, and its server."""

    state: State
    server: str
    text: str = ""


class Workspace:
    """One login at one server or cluster."""

    def __init__(
        self,
        options: ConnectOptions,
        history: HistoryFile | None = None,
        system_options: ConnectOptions | None = None,
    ) -> None:
        self.options = make_options(
            options,
            {
                "name": options.name or "tradewind dashboard",
                "wait_for_server": True,
                "reconnect_wait_max": 2.0,
                "timeout": REQUEST_SECONDS,
                "on_event": self._on_event,
            },
        )
        self.history = ChartHistory(history)
        self.samplers = Samplers(history=self.history)
        self.advisories = Advisories()
        self.transfers = Transfers()
        self.integrity = Integrity()
        self.redrives = Redrives()
        self.searches = MessageSearches()
        self.watches = Watches(lambda: self.jetstream)
        self._connection: Connection | None = None
        # A second login, of the system account, for the figures of whole servers.
        self._system_options = system_options
        self._system: Connection | None = None
        self._starting: asyncio.Task[None] | None = None
        self._last_error = ""
        self._refusal = ""
        self._was_connected = False
        self.survey = Survey(lambda: self.jetstream)
        self.survey.on_summary(self._summarized)
        self.survey.on_every_other_turn(self._sample_load)
        self.catalog = Catalog(self)
        self.queries = Queries(self.options)
        self.advisories.on_streams_changed(lambda _stream: self.samplers.forget(NAMES_KEY))

    # ------------------------------------------------------------------ connection

    def start(self) -> None:
        """Start connecting in the background."""
        self._starting = asyncio.create_task(self._start(), name="dashboard connection")
        self.survey.start()
        self.history.start()

    async def wait_started(self) -> None:
        """Wait for the first connection; AuthorizationError if the login is refused."""
        if self._starting is not None:
            await asyncio.shield(self._starting)
        if self._refusal:
            raise AuthorizationError(self._refusal, self._refusal)

    async def close(self) -> None:
        """Close the connection and end all requests."""
        self.queries.close()
        await self.survey.close()
        await self.history.close()
        await self.samplers.close()
        await self.watches.close()
        await self.redrives.close()
        await self.searches.close()
        if self._starting is not None:
            self._starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting
        for connection in (self._connection, self._system):
            if connection is not None:
                await connection.close()

    @property
    def link(self) -> LinkState:
        """The state of the connection."""
        server = server_names(self.options.servers)
        connection = self._connection
        if self._refusal:
            return LinkState("refused", server, self._refusal)
        if connection is not None and connection.is_connected and self._was_connected:
            return LinkState("connected", connection.url)
        if connection is not None and connection.is_closed:
            return LinkState("refused", server, str(connection.closed_error or ""))
        if self._was_connected:
            return LinkState("reconnecting", server, self._last_error)
        return LinkState("connecting", server, self._last_error)

    @property
    def connection(self) -> Connection:
        """The connection, if it is open; otherwise DisconnectedError at once."""
        connection = self._connection
        if connection is None or not connection.is_connected:
            raise DisconnectedError("the server is unreachable")
        return connection

    @property
    def system(self) -> Connection:
        """The connection for questions about servers, with the system account if it can."""
        system = self._system
        return system if system is not None and system.is_connected else self.connection

    @property
    def jetstream(self) -> JetStream:
        """The JetStream context of the connection."""
        return self.connection.jetstream()

    async def _start(self) -> None:
        connection = Connection(self.options)
        self._connection = connection
        # Subscribed before connecting: these are the first subscriptions of any server, including
        # later ones.
        await self.advisories.listen(connection)
        if self._system_options is not None:
            await self._start_system(self._system_options)
        try:
            await connection._start()
        except TradewindError as error:
            self._refusal = str(error)
            return
        # A listener for the connection can rely on receiving every event from then on.
        with contextlib.suppress(ClientError):  # it is disconnected again
            await connection.flush()
        self._was_connected = True

    async def _start_system(self, options: ConnectOptions) -> None:
        """Connect to the system account; without it, pages show only the account's own figures."""
        settings = {
            "name": "tradewind dashboard",
            "wait_for_server": True,
            "timeout": REQUEST_SECONDS,
        }
        self._system = Connection(make_options(options, settings))
        await self.advisories.listen_to_servers(self._system)
        with contextlib.suppress(TradewindError):
            await self._system._start()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Reconnected):
            # Events about streams meanwhile were not received.
            self.samplers.forget(NAMES_KEY)
            # What was refused before may be allowed by this server.
            self.survey.changed()
        if isinstance(event, ReconnectFailed | ErrorEvent):
            self._last_error = str(event.error)

    # ------------------------------------------------------------------ samples for charts

    async def _sample_load(self) -> bool:
        """Add the load to the charts, unless a page has just done so; whether it was requested."""
        series = self.history.series(ACCOUNT_KEY, load_and_usage.FIGURES, 2 * STEP_SECONDS)
        if (last := series.last_time) is not None and time.time() - last < STEP_SECONDS:
            return False
        load = await load_and_usage.ask_load(self.system)
        self.history.add(ACCOUNT_KEY, series, time.time(), load_and_usage.load_figures(load))
        return True

    def _summarized(self, moment: float, summary: StreamSummary | ConsumerSummary) -> None:
        interval = self.survey.round_seconds
        if isinstance(summary, StreamSummary):
            key: tuple[str, ...] = ("stream", summary.name)
            values = (summary.messages, summary.bytes, summary.last_seq, summary.consumers)
            self.history.add_surveyed(key, STREAM_FIGURES, interval, moment, values)
        elif summary.is_durable:
            key = ("consumer", summary.stream, summary.name)
            figures = (
                summary.pending,
                summary.ack_pending,
                summary.delivered,
                summary.acked,
                summary.waiting,
                summary.redelivered,
                summary.delivered_to,
                summary.acked_to,
            )
            self.history.add_surveyed(key, CONSUMER_FIGURES, interval, moment, figures)

    # ------------------------------------------------------------------ data for all pages

    async def account(self) -> Observation[load_and_usage.AccountSnapshot]:
        """The load and usage of the account."""

        async def ask() -> load_and_usage.AccountSnapshot:
            return await load_and_usage.ask_account(self.connection, self.system)

        return await self.samplers.see(
            Question(ACCOUNT_KEY, ask, 2.0, load_and_usage.FIGURES, load_and_usage.figures)
        )

    async def health(self) -> Observation[dict[str, str]]:
        """The health of the servers; only a login of the system account may request it."""

        async def ask() -> dict[str, str]:
            return await load_and_usage.ask_health(self.system)

        return await self.samplers.see(Question("health", ask, HEALTH_SECONDS))

    async def rights(self) -> Rights:
        """The rules of this login; all rights as long as the server has not told them."""

        async def ask() -> Rights:
            return await ask_rights(self.connection)

        seen = await self.samplers.see(Question("rights", ask, RIGHTS_SECONDS))
        return seen.value or ALL_RIGHTS

    async def accounts(self, *, is_whole: bool) -> Observation[account_data.Accounts]:
        """The accounts that the login may see."""

        async def ask() -> account_data.Accounts:
            return await account_data.ask_accounts(self.system, is_whole=is_whole)

        return await self.samplers.see(Question(("accounts", is_whole), ask, ACCOUNTS_SECONDS))


def server_names(servers: str | Sequence[str]) -> str:
    """The addresses, without the logins that they may contain."""
    listed = servers.split(",") if isinstance(servers, str) else servers
    return ", ".join(each.rpartition("@")[2] for each in listed)
