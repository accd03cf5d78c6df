"""Connect to the servers in `jetstream.remotes`.

Owns one connection per remote, which is open while a stream uses it, and its reconnects, with a
doubling and randomised delay. It is an ordinary client connection; the remote server needs no
special support. It never blocks the event loop, its failures affect only the mirrors and sources
that use it, and it never logs credentials or seeds.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from tradewind.client.connection import Connection
from tradewind.client.core.connect_options import ConnectOptions, ConnectSettings, make_options
from tradewind.client.core.message import Msg
from tradewind.errors import TradewindError
from tradewind.server.jetstream.remote_subscription import RemoteSubscription
from tradewind.status_codes import NO_RESPONDERS

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker
    from tradewind.client.events import Event
    from tradewind.jetstream.replication.inbox import Inbox
    from tradewind.jetstream.replication.origin_links import Answered
    from tradewind.options import RemoteOptions

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
RETRY_SECONDS_MIN: Final = 0.5
RETRY_SECONDS_MAX: Final = 30.0
RETRY_DOUBLINGS_MAX: Final = 10
PING_SECONDS: Final = 5.0
STOP_SECONDS: Final = 2.0


class RemoteLink:
    """The link to one remote; see `jetstream.replication.origin_links`."""

    def __init__(self, options: RemoteOptions, broker: Broker, enter: Enter) -> None:
        self._options = options
        self._broker = broker
        self._enter = enter
        self._api = f"$JS.{options.domain}.API." if options.domain else "$JS.API."
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._watchers: dict[object, Callable[[], None]] = {}
        self._context: ssl.SSLContext | None = None
        self.problem = f"remote '{options.name}' is not connected yet"
        self.on_arrival = enter.now

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self._options.name

    @property
    def server_id(self) -> str:
        """The id of the remote server; empty while it is not connected."""
        return self._connection.info.server_id if self._connection is not None else ""

    @property
    def connection(self) -> Connection | None:
        """The open connection, or None."""
        return self._connection

    # ---------------------------------------------------------------- for streams

    def ask(self, request: str, header: bytes, body: bytes, answered: Answered) -> None:
        """Send a request of the JetStream API."""
        connection = self._connection
        if connection is None:
            return
        question = connection.replies.ask(self._api + request, body, header or None, ANSWER_SECONDS)
        question.future.add_done_callback(partial(self._answered, answered))

    def _answered(self, answered: Answered, future: asyncio.Future[Msg]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._enter.call(partial(answered, b"", b"", str(error)))
            return
        message = future.result()
        problem = ""
        if message.status == NO_RESPONDERS and not message.data:
            problem = "no response: is JetStream enabled for that account?"
        self._enter.call(partial(answered, message.header_block, message.data, problem))

    def publish(self, subject: str, header: bytes) -> None:
        """Send a message without a body."""
        if self._connection is not None:
            self._connection.publish(subject, b"", headers=header)

    def listen(self, subject: str, inbox: Inbox) -> Callable[[], None]:
        """Subscribe on the remote server; returns the function that unsubscribes."""
        connection = self._connection
        subscription = RemoteSubscription(subject, inbox)
        if connection is None:
            return _nothing
        connection._subscribe(subscription)

        def stop() -> None:
            if not connection.is_closed:
                connection._unsubscribe(subscription)

        return stop

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Stay connected until the returned function is called."""
        key = object()
        self._watchers[key] = changed
        if self._task is None:
            self._start()
        return partial(self._unwatch, key)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name=f"remote {self.name}")

    def _unwatch(self, key: object) -> None:
        self._watchers.pop(key, None)
        if not self._watchers and self._task is not None:
            # Requests already made are still sent.
            asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        if not self._watchers and self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Close the connection."""
        self._watchers.clear()
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_SECONDS)

    # ---------------------------------------------------------------- the connection

    async def _run(self) -> None:
        """Connect, wait until the connection breaks, and connect again."""
        failures = 0
        try:
            while True:
                try:
                    connection = await self._connect()
                except (TradewindError, OSError) as error:
                    self._set_problem(f"remote '{self.name}': {error}")
                else:
                    failures = 0
                    try:
                        self._connected(connection)
                        reason = await _closed(connection)
                    finally:
                        self._connection = None
                        await connection.close()
                    self._set_problem(f"remote '{self.name}': the connection was lost: {reason}")
                doubled = RETRY_SECONDS_MIN * 2.0 ** min(failures, RETRY_DOUBLINGS_MAX)
                failures += 1
                wait = min(doubled, RETRY_SECONDS_MAX)
                await asyncio.sleep(wait * self._broker.chance.uniform(0.5, 1.0))
        finally:
            self._connection = None
            self._task = None
            self.problem = f"remote '{self.name}' is not connected yet"
            if self._watchers:  # a watcher was added while it ended
                self._start()

    async def _connect(self) -> Connection:
        options = self._options
        settings = ConnectOptions(
            servers=[url.reveal() for url in options.urls],
            name=f"tradewind {self._broker.server_name}",
            user=options.user,
            password=options.password.reveal(),
            token=options.token.reveal(),
            nkey_file=options.nkey_file,
            credentials=options.credentials,
            connect_timeout=CONNECT_SECONDS,
            reconnect=False,
            discover_servers=False,
            ping_interval=PING_SECONDS,
            on_event=_hear,
        )
        connection = Connection(make_options(settings, await self._tls()))
        await connection._start()
        return connection

    async def _tls(self) -> ConnectSettings:
        """Create the TLS context once, in a thread: reading all authorities takes long."""
        tls = self._options.tls
        if tls is None:
            return {}
        if self._context is None:
            files = ConnectOptions(
                tls_ca_file=tls.ca_file, tls_cert_file=tls.cert_file, tls_key_file=tls.key_file
            )
            loop = asyncio.get_running_loop()
            self._context = await loop.run_in_executor(None, files.ssl_context)
        return {
            "tls": self._context,
            "tls_hostname": tls.hostname,
            "tls_handshake_first": tls.handshake_first,
        }

    def _connected(self, connection: Connection) -> None:
        self._connection = connection
        self._broker.log.notice(f"JetStream remote '{self.name}': connected to {connection.url}")
        self._set_problem("")

    def _set_problem(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._broker.log.warn(f"JetStream {problem}")
        for changed in list(self._watchers.values()):
            self._enter.call(changed)


class Enter:
    """The entry into the engine from outside a turn: sets the present time, and a turn follows."""

    def __init__(self, broker: Broker, turn_needed: Callable[[], None]) -> None:
        self._broker = broker
        self._turn_needed = turn_needed
        self.set_time: Callable[[], None] = _nothing

    def now(self) -> None:
        """Called when something has arrived."""
        self.set_time()
        self._turn_needed()

    def call(self, callback: Callable[[], None]) -> None:
        """Call a callback; its errors are logged and end here."""
        self.now()
        try:
            callback()
        except Exception as error:
            self._broker.faults.contain("remote", error)


class ServerRemotes:
    """The links to all configured remotes."""

    def __init__(
        self,
        remotes: tuple[RemoteOptions, ...],
        broker: Broker,
        turn_needed: Callable[[], None],
    ) -> None:
        self.enter = Enter(broker, turn_needed)
        self._links = {
            (remote.account, remote.prefix): RemoteLink(remote, broker, self.enter)
            for remote in remotes
        }

    def find(self, account: str, prefix: str) -> RemoteLink | None:
        """The link through which streams of an account reach the API with this prefix."""
        return self._links.get((account, prefix))

    def prefixes(self, account: str) -> list[str]:
        """The prefixes that `find` knows."""
        return [prefix for owner, prefix in self._links if owner == account]

    async def stop(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(link.stop() for link in self._links.values()))


async def _closed(connection: Connection) -> str:
    """Wait until a connection has ended, and return why."""
    try:
        await connection.wait_closed()
    except TradewindError as error:
        return str(error)
    return "it was closed"


def _hear(_event: Event) -> None:
    """Ignore the event: the link's problem has the important part."""


def _nothing() -> None:
    pass
